"""What the watchman ends, and what its Lease proves. Pure; `test_cluster_api` runs it on a real cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.capacity.machine_deployment import deadline_marks, describe, marked, shortage_of
from penstock.capacity.watchman import KINDS, judge
from penstock.capacity.watchman_proof import GuardedOffer, doubt
from penstock.core.units import HOUR, MINUTE, NEVER, SECOND
from penstock.kube import annotations, manifests
from penstock.kube.client import MACHINE_DEPLOYMENTS, NODE_CLAIMS, Cluster

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def rented(name: str, ends_at: str | None = None, deleted: timedelta | None = None) -> dict[str, Any]:
    notes = {} if ends_at is None else {annotations.ENDS_AT: ends_at}
    gone = {} if deleted is None else {"deletionTimestamp": (NOW - deleted).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {"metadata": {"name": name, "namespace": "m", "annotations": notes, **gone}}


def test_it_ends_what_is_past_its_deadline_and_nothing_else() -> None:
    objects = [
        rented("past", "2026-11-18T11:59:59Z"),
        rented("now", "2026-11-18T12:00:00Z"),
        rented("later", "2026-11-18T12:00:01Z"),
        rented("elsewhere", "2026-11-18T14:00:00+02:00"),
        rented("unmarked"),
        rented("nonsense", "soon"),
        rented("no zone", "2026-11-18T11:00:00"),
        rented("going", "2026-11-18T11:00:00Z", deleted=timedelta(minutes=14)),
        rented("stuck", "2026-11-18T11:00:00Z", deleted=timedelta(minutes=16)),
    ]
    verdict = judge(objects, NOW)
    assert [obj["metadata"]["name"] for obj in verdict.due] == ["past", "now", "elsewhere"]
    assert [obj["metadata"]["name"] for obj in verdict.stuck] == ["stuck"]


def test_its_rights_are_to_list_and_delete_what_it_guards() -> None:
    (rule,) = manifests.WATCHING
    assert set(rule["resources"]) == {kind.plural for kind in KINDS}
    assert rule["apiGroups"] == ["cluster.x-k8s.io"]
    assert rule["verbs"] == ["list", "delete"]


def test_a_deadline_is_written_by_both_clocks_and_never_without_an_end() -> None:
    marks = deadline_marks(5 * HOUR, 4 * HOUR, NOW)
    assert marks == {annotations.NODE_DEADLINE: str(5 * HOUR), annotations.ENDS_AT: "2026-11-18T13:00:00Z"}
    assert deadline_marks(0, HOUR, NOW)[annotations.ENDS_AT] == "2026-11-18T12:00:00Z"
    assert deadline_marks(NEVER, HOUR, NOW)[annotations.ENDS_AT] == "2026-12-18T12:00:00Z"


class At(Cluster):
    """A cluster that only knows the time."""

    def __init__(self) -> None:
        pass

    @property
    def time_there(self) -> datetime:
        return NOW


def lease(age_s: float, **notes: str) -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    said = {annotations.WATCHES: MACHINE_DEPLOYMENTS.resource, **notes}
    return {"metadata": {"annotations": said}, "spec": {"renewTime": renewed}}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (lease(29), ""),
        (lease(31), "The watchman has not renewed its Lease for 31 s."),
        ({"metadata": {}, "spec": {}}, "The watchman has never renewed its Lease."),
        (lease(1, **{annotations.WATCHES: NODE_CLAIMS.resource}), "may not delete machinedeployments"),
        (lease(1, **{annotations.STUCK: "MachineDeployment m/a"}), "does not go: MachineDeployment m/a."),
    ],
)
def test_only_a_fresh_lease_of_a_watchman_that_can_delete_proves_anything(found: dict[str, Any], says: str) -> None:
    doubted = doubt(found, GuardedOffer("cloud", At(), "penstock", MACHINE_DEPLOYMENTS))
    assert says in doubted if says else doubted == ""


def test_what_a_provider_says_is_told_apart() -> None:
    def machine(message: str) -> dict[str, Any]:
        condition = {"type": "InfrastructureReady", "status": "False", "reason": "Failed", "message": message}
        return {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-11-18T12:00:00Z"}]}}

    words = {
        "insufficient capacity in zone a": "stock_out",
        "No valid host was found.": "stock_out",
        "ZONE_RESOURCE_POOL_EXHAUSTED": "stock_out",
        "Quota exceeded for cores: 96 of 64": "quota",
        "waiting for the network": "",
    }
    assert {text: shortage_of(describe(machine(text))[0]) for text in words} == words
    assert len(describe(machine("x" * 10_000))[0]) == 300
    assert describe({"status": {}}) == ("", "")


def test_a_node_is_marked_once_and_not_before_core_has_seen_to_it() -> None:
    ours, taint = {annotations.NODE: "penstock-x"}, {"key": annotations.RENTED, "value": "home", "effect": "NoSchedule"}
    theirs = {"key": "gpu", "effect": "NoSchedule"}
    node = {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [theirs]}}
    assert marked(node, ours, {"n": "1"}, [taint]) == {
        "metadata": {"labels": ours, "annotations": {"n": "1"}},
        "spec": {"taints": [theirs, taint]},
    }
    assert marked({"metadata": {"labels": ours}}, ours, {}, [taint]) is None
    new = {"metadata": {}, "spec": {"taints": [{"key": "node.cluster.x-k8s.io/uninitialized"}]}}
    assert marked(new, ours, {}, [taint]) is None


def test_a_minute_is_enough_to_know_that_it_is_dead() -> None:
    from penstock.capacity import watchman, watchman_proof

    longest = watchman.LEASE_SECONDS + watchman_proof.LOOK_SECONDS + watchman_proof.ANSWER_SECONDS
    assert longest * SECOND <= MINUTE
