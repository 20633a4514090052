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
DEFAULT = typed.default_in("vision")
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


@pytest.fixture
def terminal(bed: ClusterGroup, checkout: Checkout) -> Checkout:
    """A checkout with the files that the page asks for."""
    for name in ("lab", "east"):
        (checkout.folder / f"{name}.kubeconfig").write_text(bed.cluster(name).kubeconfig.read_text())
    (checkout.folder / "train.yaml").write_text(job())
    return checkout


def test_the_page_leads_from_two_clusters_to_the_first_burst_and_away_without_a_trace(
    bed: ClusterGroup, terminal: Checkout
) -> None:
    """The page's first command was `pip install 'penstock[kubernetes]'`, which is another project's program; the test
    passed because it brought its own Penstock along and forbade pip the index. A line below the block needed a
    KUBECONFIG that the block had not set. And its way out left roles, bindings and admission policies, which went on
    refusing people's Jobs.
    """
    blocks, lab, east = typed.blocks(PAGE), bed.cluster("lab"), bed.cluster("east")
    before = [typed.everything_in(cluster) for cluster in (lab, east)]
    with terminal.typing(blocks["the first terminal"], "Penstock is up at", programs.folder()):
        said = terminal.type(blocks["the second terminal"], programs.folder())
        assert binding(lab.get("-n", "vision", "job", "train"))["site"] == "east"
        assert said.count("Bursts to east/a100") >= 2, said  # by `describe` and by `why`
        applied = terminal.type(blocks["the policies"], programs.folder())
        assert applied.count("created") == 8, applied
        assert terminal.type(blocks["leaving"]).count("of Penstock is left there") == 2
    terminal.type(blocks["the rest"], programs.folder())
    after = [typed.everything_in(cluster) for cluster in (lab, east)]
    stays = {("Namespace", "", "vision"), ("ConfigMap", "vision", "kube-root-ca.crt"), DEFAULT}
    assert [new - old for new, old in zip(after, before, strict=True)] == [stays | {("Job", "vision", "train")}, stays]
    assert [old - new for new, old in zip(after, before, strict=True)] == [set(), set()]


def test_nobodys_jobs_and_no_namespace_go_with_penstocks_rights(bed: ClusterGroup, terminal: Checkout) -> None:
    """`penstock connect ... --print | kubectl delete -f -`, docs/install.md's last line, deleted the namespace `vision`
    with all Jobs in it. What is printed now has no namespace; and `disconnect` finds the roles there by itself.
    """
    lab = bed.cluster("lab")
    before = typed.everything_in(lab)
    connect = "penstock connect lab.kubeconfig --home --also vision --name lab"
    terminal.type(f"make install; . .venv/bin/activate; {connect}", programs.folder())
    plain = {"apiVersion": "batch/v1", "kind": "Job", **yaml.safe_load(job()), "metadata": {"name": "mine"}}
    plain["spec"]["suspend"] = True
    lab.apply({**plain, "metadata": {"name": "mine", "namespace": "vision"}})
    undone = f". .venv/bin/activate; {connect} --print | kubectl --kubeconfig lab.kubeconfig delete -f -"
    terminal.type(undone, programs.folder())
    terminal.type(f". .venv/bin/activate; {connect}; penstock disconnect lab.kubeconfig", programs.folder())
    left = typed.everything_in(lab) - before
    assert {what for what in left if what[1] != "vision" and what[2] != "vision"} == {
        ("Namespace", "", "penstock"), ("ConfigMap", "penstock", "kube-root-ca.crt"),
        ("ServiceAccount", "penstock", "default"),
    }  # fmt: skip
    assert {what for what in left if what[1] == "vision"} == {
        ("Job", "vision", "mine"), ("ConfigMap", "vision", "kube-root-ca.crt"), DEFAULT,
    }  # fmt: skip
