"""Which ways to rent need which packages: an SDK is imported where an offer needs it, and nowhere else."""

import re
import subprocess
import sys

import pytest

from penstock.capacity.cluster_nodes import RentingSite
from penstock.capacity.pools import NodePools
from penstock.capacity.ways import capacity_of
from penstock.core.errors import BadInput
from penstock.core.model.types import NodeShape, Offer
from penstock.extras import install
from penstock.kube.client import Cluster
from penstock.kube.node_selection import AksWay, EksWay, GkeWay, NodeSelection, OvhWay, PoolWay, RentedNodes
from tests.conftest import ROOT

WAYS: dict[str, PoolWay] = {
    "eks": EksWay("eu-central-1", "gpu", "role", ("subnet-1",)),
    "aks": AksWay("s", "g", "gpu"),
    "gke": GkeWay("p", "europe-west4-a", "gpu"),
    "ovh": OvhWay(),
}


def site(way: PoolWay) -> RentingSite:
    offer = Offer("lab/a100", "lab", "on_demand", (NodeShape(8, name="x"),))

    def nowhere() -> Cluster:
        raise AssertionError("nobody asks the cluster")

    place = NodeSelection(rent=RentedNodes(way))
    return RentingSite("lab", "home", lambda: 0, nowhere, lambda: {"lab/a100": (offer, place)})


@pytest.mark.parametrize("extra", ["eks", "aks", "gke"])
def test_a_way_whose_packages_are_missing_says_which_to_install(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.capacity.ways.find_spec", lambda _: None)
    words = f"Site lab rents nodes with 'way: {extra}', which needs packages: {install(extra)}"
    with pytest.raises(BadInput, match=f"^{re.escape(words)}$"):
        capacity_of(site(WAYS[extra]))


def test_no_sdk_is_imported_before_a_node_is_asked_for() -> None:
    program = """
import sys
from tests.capacity.test_ways import WAYS, site
from penstock.capacity.ways import capacity_of
for way in WAYS.values():
    capacity_of(site(way))
heavy = ("boto3", "botocore", "azure.mgmt.containerservice", "google.auth", "requests")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_names_of_pools_are_what_each_cloud_takes_and_differ() -> None:
    made = {kind: capacity_of(site(way)) for kind, way in WAYS.items()}
    names = {kind: pools.pool_name("a.1/n0") for kind, pools in made.items() if isinstance(pools, NodePools)}
    assert {kind: len(name) for kind, name in names.items()} == {"eks": 29, "aks": 12, "gke": 29, "ovh": 29}
    aks = made["aks"]
    assert isinstance(aks, NodePools)
    many = {aks.pool_name(f"a.{k}/n0") for k in range(5000)}
    assert len(many) == 5000
    assert all(name.isalnum() and name == name.lower() and name[0].isalpha() for name in many)
