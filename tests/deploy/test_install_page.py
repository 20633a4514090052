"""docs/install.md, "The chart" to the end: every command as it stands there, in its order, on real pods.

The image is the one thing that is replaced: no registry is there, so this tree's is put on the nodes, as `make image`
writes it, and values.yaml names that. The page says so.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, kubelet_nodes, programs
from penstock.devcluster.images import BUSYBOX
from tests import typed
from tests.clusters import A100
from tests.conftest import ROOT, Part
from tests.deploy.test_installed import disk_of, on_nodes
from tests.typed import Checkout

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "install.md"
PLANS = tuple(ClusterPlan(name, (NodePlan(1, gpus=8, model=A100),), real=True) for name in ("lab", "east"))
MINE = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "mine", "namespace": "vision"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "x", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "3600"]}
                ],
            }
        }
    },
}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[ClusterGroup]:
    """Real pods in clusters that nobody touched before: the page takes the namespace `penstock` for its own."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    if programs.helm() is None:
        pytest.skip(Part.HELM)
    if kubelet_nodes.lacks():
        pytest.skip(Part.REAL_PODS)
    with ClusterGroup(tmp_path / "clusters", PLANS) as made:
        yield made


def test_the_page_installs_upgrades_and_leaves_no_trace_but_peoples_jobs(
    bed: ClusterGroup, checkout: Checkout, tmp_path: Path
) -> None:
    """In the page's own order Helm refused the account that `connect` had made a line before; the last line deleted the
    namespace with people's Jobs in it; and admission policies stayed. The chart's test had connected no home cluster.
    """
    blocks, lab, east = typed.blocks(PAGE), bed.cluster("lab"), bed.cluster("east")
    before = [typed.everything_in(cluster) for cluster in (lab, east)]
    for name, text in typed.files(PAGE).items():
        (checkout.folder / name).write_text(text)
    values = yaml.safe_load(typed.files(PAGE)["values.yaml"])
    values["image"] = {"repository": on_nodes(lab, tmp_path), "pullPolicy": "Never"}
    (checkout.folder / "values.yaml").write_text(yaml.safe_dump(values))
    for cluster in (lab, east):
        (checkout.folder / f"{cluster.name}.kubeconfig").write_text(cluster.kubeconfig.read_text())
    checkout.type("make install", programs.folder())
    with disk_of(lab, "10Gi"):
        said = checkout.type(blocks["the chart"], programs.folder())
        assert re.findall(r"^(east|lab) .* open$", said, re.MULTILINE) == ["east", "lab"], said
        lab.apply(MINE)
        checkout.type(blocks["the upgrade"], programs.folder())
        assert checkout.type(blocks["the way out"], programs.folder()).count("of Penstock is left there") == 2
    after = [typed.everything_in(cluster) for cluster in (lab, east)]
    gone = [old - new for new, old in zip(after, before, strict=True)]
    stays = [
        {what for what in new - old if what[0] not in ("Pod", "PersistentVolume")}
        for new, old in zip(after, before, strict=True)
    ]
    empty = {("Namespace", "", "vision"), ("ConfigMap", "vision", "kube-root-ca.crt"), typed.default_in("vision")}
    assert gone == [set(), set()]
    assert stays == [empty | {("Job", "vision", "mine")}, empty]
