"""What `penstock disconnect` leaves: what others still need, and rights that Jobs wait for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, programs
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.external import Refusal
from penstock.kube import annotations
from tests.clusters import A100
from tests.conftest import Part
from tests.front.kit import home_job

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DevCluster]:
    """A cluster of this test alone: there is one set of admission policies in it."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    monkeypatch.chdir(tmp_path)
    with ClusterGroup(tmp_path / "clusters", (ClusterPlan("lab", (NodePlan(1, gpus=4, model=A100),)),)) as made:
        yield made.cluster("lab")


def connect(lab: DevCluster, own: str) -> None:
    assert main(["connect", str(lab.kubeconfig), "--home", "--also", "vision", "-n", own, "--name", own]) == 0


def policies(lab: DevCluster) -> set[str]:
    return set(
        lab.kubectl("get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name").split()
    )


def test_what_another_penstock_needs_stays_until_it_goes_too(
    lab: DevCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for own in ("penstock", "nlp"):
        connect(lab, own)
    capsys.readouterr()
    assert main(["manifests", "admission", "--as", "system:serviceaccount:nlp:penstock"]) == 0
    lab.kubectl("apply", "-f", "-", stdin=capsys.readouterr().out)
    before = policies(lab)

    assert main(["disconnect", str(lab.kubeconfig)]) == 0
    said = capsys.readouterr().out
    assert "ValidatingAdmissionPolicy penstock-users stays: the Penstock of account nlp/penstock uses it, too." in said
    assert policies(lab) == before  # also those that name no login
    other = "role.rbac.authorization.k8s.io/nlp.penstock-act\n"
    assert lab.kubectl("get", "roles", "-n", "vision", "-o", "name") == other

    assert main(["disconnect", str(lab.kubeconfig), "-n", "nlp"]) == 0
    assert policies(lab) == set()  # they still name the account that went first
    assert lab.kubectl("get", "roles", "-n", "vision", "-o", "name") == ""


def test_while_a_job_waits_for_penstock_its_rights_stay(lab: DevCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Without them nobody can let go of the Job, and its namespace could never be deleted."""
    connect(lab, "penstock")
    held = home_job("train")
    held["metadata"] |= {"namespace": "vision", "finalizers": [annotations.CANCEL]}
    lab.apply(held)
    capsys.readouterr()
    assert main(["disconnect", str(lab.kubeconfig)]) == 2
    assert capsys.readouterr().err.startswith(
        "Error: 1 Job there still waits for Penstock (vision/train): `penstock leave` gives them back first."
    )
    lab.kubectl("get", "clusterrole", "penstock-act")
    assert main(["disconnect", str(lab.kubeconfig), "--anyway"]) == 0
    with pytest.raises(Refusal, match="NotFound"):
        lab.kubectl("get", "clusterrole", "penstock-act")


def test_what_helm_owns_is_left_to_helm(lab: DevCluster, capsys: pytest.CaptureFixture[str]) -> None:
    connect(lab, "penstock")
    lab.kubectl("annotate", "serviceaccount", "penstock", "-n", "penstock", "meta.helm.sh/release-name=penstock")
    capsys.readouterr()
    assert main(["disconnect", str(lab.kubeconfig)]) == 0
    sentence = (
        "ServiceAccount penstock/penstock stays: it belongs to the Helm release penstock; helm uninstall removes it."
    )
    assert sentence in capsys.readouterr().out
    lab.kubectl("get", "serviceaccount", "penstock", "-n", "penstock")
