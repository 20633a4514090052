"""A cluster with Cluster API: machines come and go by the released core, and its webhooks answer."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.devcluster import DevCluster, cluster_api, programs
from penstock.devcluster.external import Refusal
from penstock.kube.client import MACHINE_DEPLOYMENTS, MACHINES
from tests.conftest import Part

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not cluster_api.is_available(), reason=Part.CLUSTER_API),
]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def machines(cluster: DevCluster, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.api.ask("GET", MACHINES.path(namespace)).body["items"]
    return found


def test_a_pool_of_size_one_has_a_machine_with_a_node_and_of_size_zero_none(
    managing: DevCluster, managed_namespace: str
) -> None:
    pool = MACHINE_DEPLOYMENTS.path(managed_namespace, "a100")
    managing.api.ask("PATCH", pool, {"spec": {"replicas": 1}})
    until(
        lambda: any((machine.get("status") or {}).get("nodeRef") for machine in machines(managing, managed_namespace))
    )
    (machine,) = machines(managing, managed_namespace)
    node = machine["status"]["nodeRef"]["name"]
    assert managing.get("node", node)["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    managing.api.ask("PATCH", pool, {"spec": {"replicas": 0}})
    until(lambda: machines(managing, managed_namespace) == [])
    with pytest.raises(Refusal, match="not found"):
        managing.get("node", node)


def test_core_s_own_webhook_refuses_a_deployment_that_selects_nothing(
    managing: DevCluster, managed_namespace: str
) -> None:
    _, pool = cluster_api.pool("b", managed_namespace, "own", gpus=8)
    pool["spec"]["selector"] = {"matchLabels": {"pool": "another"}}
    with pytest.raises(Refusal, match=r"must match spec\.selector"):
        managing.apply(pool)
