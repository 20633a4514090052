"""docs/kubernetes.md, its first section: every command as it stands there, in its order, ends in a burst."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, programs
from tests import typed
from tests.clusters import A100
from tests.conftest import ROOT, Part
from tests.front.kit import DELAY, binding
from tests.typed import Checkout

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "kubernetes.md"
PLANS = (
    ClusterPlan("lab", (NodePlan(1, gpus=4, model=A100),)),
    ClusterPlan("east", (NodePlan(2, gpus=4, model=A100),)),
)


def job() -> str:
    """The page's; kwok's pods end by an annotation, as no container does it there."""
    made = yaml.safe_load(typed.files(PAGE)["train.yaml"])
    made["spec"]["template"]["metadata"] = {"annotations": {DELAY: "300ms"}}
    return yaml.safe_dump(made)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[ClusterGroup]:
    """Clusters of this test alone, never touched before: the page takes them for its own."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    with ClusterGroup(tmp_path / "clusters", PLANS) as made:
        yield made


def test_the_page_leads_from_two_clusters_to_the_first_burst(bed: ClusterGroup, checkout: Checkout) -> None:
    """The page's first command was `pip install 'penstock[kubernetes]'`, which is another project's program; the test
    passed because it brought its own Penstock along and forbade pip the index. A line below the block needed a
    KUBECONFIG that the block had not set.
    """
    for name in ("lab", "east"):
        (checkout.folder / f"{name}.kubeconfig").write_text(bed.cluster(name).kubeconfig.read_text())
    (checkout.folder / "train.yaml").write_text(job())
    typed_there, lab = typed.blocks(PAGE), bed.cluster("lab")
    with checkout.typing(typed_there["the first terminal"], "Penstock is up at", programs.folder()):
        said = checkout.type(typed_there["the second terminal"], programs.folder())
    assert binding(lab.get("-n", "vision", "job", "train"))["site"] == "east"
    assert said.count("Bursts to east/a100") >= 2, said  # by `describe` and by `why`
