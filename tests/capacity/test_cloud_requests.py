"""What is asked of EKS, GKE and AKS, and what their answers mean: the cloud's own description judges each request. No
cluster is needed.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capacity import aks, eks, gke
from penstock.capacity.pools import BlockingPools, CloudPool, PoolExists, PoolOrder, escaped, unescaped
from penstock.core.units import HOUR
from penstock.kube.node_selection import AksWay, EksWay, GkeWay, PoolWay, RentedNodes, Taint
from penstock.site_answers import NoCapacity, Refused, Unreachable, still_leads
from tests.capacity.played_cloud import PlayedCloud, playing
from tests.capacity.pool_grounds import BY_API, CLOUDS

CONNECT = {"eks": eks.connect, "gke": gke.connect, "aks": aks.connect}
MARKS = {
    "penstock-installation": "home",
    "penstock-node": "j.1/n0",
    "penstock-deadline": "7200000",
    "penstock-asked": "3600000",
}


@dataclass
class Place:
    kind: str
    cloud: PlayedCloud
    way: PoolWay
    api: BlockingPools


@pytest.fixture(params=BY_API)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    cloud, way_at = CLOUDS[request.param](None, monkeypatch)
    with playing(cloud) as url:
        way = way_at(url)
        yield Place(request.param, cloud, way, CONNECT[request.param](way))


def order(way: PoolWay, name: str = "penstock0001", **more: Any) -> PoolOrder:
    asked = PoolOrder(
        name=name,
        rent=RentedNodes(way),
        types=("a2-highgpu-8g",),
        gpus=8,
        spot=False,
        mig="",
        labels=(("penstock.dev/node", "penstock-0001"), ("team", "x")),
        taints=(Taint("penstock.dev/rented", "home"),),
        marks=tuple(MARKS.items()),
        lasts_ms=HOUR,
    )
    return replace(asked, **more)


def shown(pool: CloudPool | None) -> dict[str, str]:
    assert pool is not None
    return dict(pool.marks)


def test_a_pool_is_made_once_shown_with_its_marks_and_gone_when_deleted(place: Place) -> None:
    place.cloud.faults.ends_after = 0.0
    assert place.api.get("penstock0001") is None
    place.api.create(order(place.way))
    assert shown(place.api.get("penstock0001")).items() >= MARKS.items()
    assert [pool.name for pool in place.api.list() if pool.mark("penstock-node")] == _listed(place.kind)
    place.api.delete("penstock0001")
    until_gone(place)
    place.api.delete("penstock0001")
    assert place.cloud.creates == 1


def _listed(kind: str) -> list[str]:
    """EKS lists names alone: those that begin as ours do are looked at."""
    return [] if kind == "eks" else ["penstock0001"]


def until_gone(place: Place) -> None:
    for _ in range(1000):
        if place.api.get("penstock0001") is None:
            return
    raise AssertionError("still there")


def test_asked_again_nothing_is_made_and_nothing_is_changed(place: Place) -> None:
    """At another time, with another deadline: for Azure and AWS that is another request under the same name."""
    place.api.create(order(place.way))
    later = {**MARKS, "penstock-asked": "3600001", "penstock-deadline": "9900000"}
    with pytest.raises(PoolExists):
        place.api.create(order(place.way, marks=tuple(later.items())))
    assert shown(place.api.get("penstock0001")).items() >= MARKS.items()
    assert place.cloud.creates == 1


def test_if_the_answer_to_a_create_is_lost_there_is_one_pool(place: Place) -> None:
    place.cloud.faults.lose_answers = 1
    for _ in range(2):
        with suppress(
            Unreachable, PoolExists
        ):  # AWS knows the request by its token, and answers as if for the first time
            place.api.create(order(place.way))
    assert place.cloud.creates == 1
    assert shown(place.api.get("penstock0001")).items() >= MARKS.items()


def test_a_create_that_an_sdk_sends_late_or_again_leaves_only_while_we_lead(place: Place) -> None:
    """It logs in, waits, and tries again by itself: each try asks whether somebody else leads by now."""
    later = (503, {"message": "later", "error": {"code": 503, "message": "later"}})
    for leads in ([False], [True, False]):  # before the first try, and before the second
        place.cloud.faults.answers = [later] * (len(leads) - 1)
        told = still_leads.set(iter([*leads, False]).__next__)
        try:
            with pytest.raises(Unreachable):
                place.api.create(order(place.way))
        finally:
            still_leads.reset(told)
        assert place.cloud.creates == 0
    place.api.create(order(place.way))
    assert place.cloud.creates == 1


def test_a_list_that_fails_is_never_none(place: Place) -> None:
    place.cloud.faults.answers = [(503, {"message": "later", "error": {"code": 503, "message": "later"}})] * 9
    with pytest.raises(Unreachable):
        place.api.list()
    place.cloud.faults.answers = [(503, {"message": "later", "error": {"code": 503, "message": "later"}})] * 9
    with pytest.raises(Unreachable):
        place.api.get("penstock0001")


def test_a_cloud_that_nobody_reaches_is_asked_again_later(place: Place) -> None:
    nowhere = CONNECT[place.kind](replace(place.way, endpoint="http://127.0.0.1:9"))  # type: ignore[arg-type]  # OVH
    for ask in (nowhere.list, lambda: nowhere.get("penstock0001"), lambda: nowhere.create(order(place.way))):
        with pytest.raises(Unreachable):
            ask()


def test_a_cluster_that_is_not_there_is_never_a_pool_that_is_gone(place: Place) -> None:
    """A typo in the sites file would close holds of nodes that live."""
    elsewhere = CONNECT[place.kind](replace(place.way, cluster="gqu"))  # type: ignore[arg-type]  # OVH has none
    for ask in (lambda: elsewhere.get("penstock0001"), elsewhere.list, lambda: elsewhere.delete("penstock0001")):
        with pytest.raises(Refused, match="right"):
            ask()


def test_a_list_has_all_pages(place: Place) -> None:
    for k in range(5):
        place.api.create(order(place.way, f"penstock-00{k}" if place.kind != "aks" else f"penstock00{k}"))
    assert len(place.api.list()) == 5


DENIED = {
    "eks": (403, {"code": "AccessDeniedException", "message": "eks:CreateNodegroup on resource"}),
    "gke": (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "container.nodePools.create"}}),
    "aks": (403, {"error": {"code": "AuthorizationFailed", "message": "does not have authorization"}}),
}
WRONG = {
    "eks": (400, {"code": "InvalidParameterException", "message": "Subnets are not in the VPC"}),
    "gke": (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "machine type is invalid"}}),
    "aks": (400, {"error": {"code": "InvalidParameter", "message": "vmSize is not known"}}),
}


EXPIRED = {
    "eks": (403, {"code": "ExpiredTokenException", "message": "The security token included in the request is expired"}),
    "gke": (401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "invalid authentication"}}),
    "aks": (401, {"error": {"code": "ExpiredAuthenticationToken", "message": "The access token expiry is in past"}}),
}


def test_a_request_that_we_may_not_make_or_that_is_wrong_wants_a_person(place: Place) -> None:
    for refusal in (DENIED[place.kind], EXPIRED[place.kind]):
        place.cloud.faults.on_create = [refusal] * 2  # SDKs repeat some
        with pytest.raises(Refused, match="which rights it needs"):
            place.api.create(order(place.way))
    place.cloud.faults.on_create = [WRONG[place.kind]]
    with pytest.raises(Refused, match="repair the offer's 'rent'"):
        place.api.create(order(place.way))
    assert place.cloud.pools == {}


REFUSALS: dict[str, list[tuple[int, Any, str]]] = {
    "eks": [(400, {"code": "ResourceLimitExceededException", "message": "node groups per cluster"}, "quota")],
    "gke": [
        (403, {"error": {"code": 403, "status": "FORBIDDEN", "message": "Insufficient regional quota"}}, "quota"),
        (
            429,
            {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}},
            "again",
        ),
        (
            400,
            {"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": "running incompatible operation x"}},
            "again",
        ),
    ],
    "aks": [
        (409, {"error": {"code": "SkuNotAvailable", "message": "not in westeurope"}}, "stock_out"),
        (409, {"error": {"code": "AllocationFailed", "message": "try another size"}}, "stock_out"),
        (409, {"error": {"code": "QuotaExceeded", "message": "cores"}}, "quota"),
        (409, {"error": {"code": "OperationNotAllowed", "message": "exceeding approved Total Cores quota"}}, "quota"),
        (409, {"error": {"code": "OperationNotAllowed", "message": "another operation is in progress"}}, "again"),
        (409, {"error": {"code": "Conflict", "message": ""}}, "again"),
    ],
}


def test_stock_quota_and_a_busy_cluster_are_told_apart_and_a_conflict_adopts_nothing(place: Place) -> None:
    """Azure answers 409 to all of them, and its SDK calls each one `ResourceExistsError`."""
    for status, body, means in REFUSALS[place.kind]:
        place.cloud.faults.on_create = [(status, body)] * 2  # SDKs repeat some
        with pytest.raises((NoCapacity, Unreachable)) as refused:
            place.api.create(order(place.way))
        assert getattr(refused.value, "shortage", "again") == means, body
        place.cloud.faults.on_create = []
    assert place.cloud.pools == {}


ISSUES = {
    "eks": [
        (("AsgInstanceLaunchFailures", "Could not launch: InsufficientInstanceCapacity - none in 1a"), "stock_out"),
        (("AsgInstanceLaunchFailures", "Could not launch: VcpuLimitExceeded - You have requested more"), "quota"),
        (("AsgInstanceLaunchFailures", "Could not launch: InvalidParameterValue"), "settings"),
        (("InsufficientFreeAddresses", "subnet-1 has no free addresses"), "settings"),
    ],
    "gke": [
        (("GCE_STOCKOUT", "zone has no A100"), "stock_out"),
        (("GCE_QUOTA_EXCEEDED", "NVIDIA_A100_GPUS"), "quota"),
        (("GKE_SERVICE_ACCOUNT_DELETED", "no such account"), "settings"),
    ],
    "aks": [
        (("ZonalAllocationFailed", "no more in zone 1"), "stock_out"),
        (("ErrCode_InsufficientVCPUQuota", "left 0"), "quota"),
        (("VMExtensionProvisioningError", "the node did not join"), "settings"),
    ],
}


def test_why_no_machine_comes_is_read_from_the_cloud_s_own_codes(place: Place) -> None:
    place.cloud.faults.starts_after = 60
    place.api.create(order(place.way))
    for issue, means in ISSUES[place.kind]:
        place.cloud.faults.issue = issue
        pool = place.api.get("penstock0001")
        assert pool is not None
        assert (pool.failed, pool.shortage) == (True, means), issue
        assert issue[0] in pool.status


# --- what the request says -------------------------------------------------------------------------------------------


def test_a_group_of_eks_says_whose_it_is_and_its_token_knows_no_time() -> None:
    way = EksWay(
        "eu-central-1", "gpu", "arn:aws:iam::1:role/n", ("subnet-1",), image="AL2023_x86_64_NVIDIA", disk_gb=200
    )
    asked = eks.node_group(order(way, spot=True, mig="1g.10gb"), "gpu")
    assert asked == {
        "clusterName": "gpu",
        "nodegroupName": "penstock0001",
        "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
        "subnets": ["subnet-1"],
        "instanceTypes": ["a2-highgpu-8g"],
        "nodeRole": "arn:aws:iam::1:role/n",
        "labels": {"nvidia.com/mig.config": "all-1g.10gb", "penstock.dev/node": "penstock-0001", "team": "x"},
        "taints": [{"key": "penstock.dev/rented", "value": "home", "effect": "NO_SCHEDULE"}],
        "capacityType": "SPOT",
        "tags": MARKS,
        "clientRequestToken": asked["clientRequestToken"],
        "amiType": "AL2023_x86_64_NVIDIA",
        "diskSize": 200,
    }
    later = eks.node_group(order(way, marks=(("penstock-asked", "9"),)), "gpu")
    assert later["clientRequestToken"] == asked["clientRequestToken"]
    assert eks.node_group(order(way, "other"), "gpu")["clientRequestToken"] != asked["clientRequestToken"]


def test_a_pool_of_gke_ends_its_machine_by_itself_and_cuts_its_gpus() -> None:
    way = GkeWay("p", "europe-west4-a", "gpu", "nvidia-tesla-a100", accelerators=2)
    asked = gke.node_pool(order(way, gpus=14, mig="1g.5gb", rent=RentedNodes(way, zones=("europe-west4-a",))))
    assert asked == {
        "name": "penstock0001",
        "initialNodeCount": 1,
        "locations": ["europe-west4-a"],
        "config": {
            "machineType": "a2-highgpu-8g",
            "labels": {"penstock.dev/node": "penstock-0001", "team": "x"},
            "taints": [{"key": "penstock.dev/rented", "value": "home", "effect": "NO_SCHEDULE"}],
            "metadata": MARKS,
            "resourceLabels": {key: text for key, text in MARKS.items() if key != "penstock-node"},
            "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
            "spot": False,
            "maxRunDuration": "3600s",
            "accelerators": [
                {
                    "acceleratorType": "nvidia-tesla-a100",
                    "acceleratorCount": "2",
                    "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
                    "gpuPartitionSize": "1g.5gb",
                }
            ],
        },
        "management": {"autoRepair": False, "autoUpgrade": False},
        "autoscaling": {"enabled": False},
    }


def test_a_pool_of_gke_is_in_one_zone_because_it_has_a_machine_in_each() -> None:
    way = GkeWay("p", "europe-west4", "gpu")
    for zones in ((), ("europe-west4-a", "europe-west4-b")):
        with pytest.raises(Refused, match="name one in 'zones'"):
            gke.node_pool(order(way, rent=RentedNodes(way, zones=zones)))
    assert gke.node_pool(order(replace(way, location="europe-west4-c")))["locations"] == ["europe-west4-c"]


def test_a_tpu_slice_is_one_pool_with_a_machine_for_each_of_its_hosts() -> None:
    way = GkeWay("p", "us-west4-a", "gpu", topology="4x4")
    asked = gke.node_pool(order(way, gpus=16, types=("ct5lp-hightpu-4t",)))
    assert (asked["initialNodeCount"], asked["placementPolicy"]) == (4, {"type": "COMPACT", "tpuTopology": "4x4"})
    alone = gke.node_pool(order(replace(way, topology="2x2"), gpus=4, types=("ct5lp-hightpu-4t",)))
    assert (alone["initialNodeCount"], "placementPolicy" in alone) == (1, False)
    with pytest.raises(Refused, match="has 16 chips, and its offer says 8"):
        gke.node_pool(order(way, gpus=8, types=("ct5lp-hightpu-4t",)))
    with pytest.raises(Refused, match="no TPU machine type"):
        gke.node_pool(order(way, gpus=16))


def test_a_spot_pool_of_aks_is_deleted_when_it_is_evicted_and_cuts_its_gpus() -> None:
    way = AksWay("s", "lab", "gpu", image="AzureLinux", disk_gb=200)
    asked = aks.agent_pool(order(way, spot=True, mig="3g.40gb", rent=RentedNodes(way, zones=("1",))))
    assert asked == {
        "properties": {
            "mode": "User",
            "count": 1,
            "enableAutoScaling": False,
            "vmSize": "a2-highgpu-8g",
            "osType": "Linux",
            "nodeLabels": {"penstock.dev/node": "penstock-0001", "team": "x"},
            "nodeTaints": ["penstock.dev/rented=home:NoSchedule"],
            "tags": MARKS,
            "scaleSetPriority": "Spot",
            "scaleSetEvictionPolicy": "Delete",
            "spotMaxPrice": -1.0,
            "availabilityZones": ["1"],
            "gpuInstanceProfile": "MIG3g",
            "osSKU": "AzureLinux",
            "osDiskSizeGB": 200,
        }
    }
    with pytest.raises(Refused, match="no MIG profile 5g"):
        aks.mig_profile("5g.40gb")


# --- marks and notices -----------------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=80))
def test_a_node_s_id_survives_every_cloud_s_tags(text: str) -> None:
    assert unescaped(escaped(text)) == text
    assert set(escaped(text)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/:-=")


@given(st.text(max_size=30))
def test_marks_that_others_wrote_say_nothing_wrong(text: str) -> None:
    assert unescaped(text) == "" or escaped(unescaped(text)) == text
