"""A cluster with Karpenter: nodes come for Jobs and for claims, and go; the cloud may have none left."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.devcluster import DevCluster, karpenter, programs
from penstock.devcluster.plan import GPU
from tests.conftest import Part

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not karpenter.is_available(), reason=Part.KARPENTER),
]
LIMIT_S = 120  #: a wait that takes longer has failed


def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.2)


def of(cloud: DevCluster, path: str, name: str) -> list[dict[str, Any]]:
    """The objects there whose claim's name begins so."""
    items = cloud.api.ask("GET", path).body["items"]
    return [item for item in items if item["metadata"]["name"].removeprefix("kwok-").startswith(name)]


def job(taint: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    tolerates = [{"key": taint, "operator": "Exists"}]
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "tolerations": tolerates}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}, "spec": {"template": template}}


def claim(name: str, kind: str) -> dict[str, Any]:
    asked = {"node.kubernetes.io/instance-type": kind, "karpenter.sh/capacity-type": "on-demand"}
    spec = {
        "nodeClassRef": {"group": karpenter.GROUP, "kind": "KWOKNodeClass", "name": name},
        "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in asked.items()],
        "resources": {"requests": {GPU: "8"}},
    }
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name}, "spec": spec}


def allocatable(cloud: DevCluster, name: str) -> list[str]:
    ready = [node for node in of(cloud, "/api/v1/nodes", name) if "conditions" in node["status"]]
    return [node["status"]["allocatable"][GPU] for node in ready]


def test_a_node_comes_for_a_job_from_zero_and_goes_when_it_is_empty(cloud: DevCluster, cloud_namespace: str) -> None:
    pool = karpenter.node_pool(cloud_namespace, types=("a100-8x", "h100-8x"), taint=cloud_namespace)
    cloud.apply(karpenter.node_class(cloud_namespace), pool)
    cloud.kubectl("-n", cloud_namespace, "create", "-f", "-", stdin=json.dumps(job(cloud_namespace, 8)))
    wait = ("-n", cloud_namespace, "wait", "job/one", "--for=jsonpath={.status.ready}=1", f"--timeout={LIMIT_S}s")
    cloud.kubectl(*wait)
    assert allocatable(cloud, cloud_namespace) == ["8"]
    (node,) = of(cloud, "/api/v1/nodes", cloud_namespace)
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "a100-8x"  # the cheaper one
    cloud.empty_namespace(cloud_namespace)
    until(lambda: not of(cloud, karpenter.CLAIMS, cloud_namespace))
    assert not of(cloud, "/api/v1/nodes", cloud_namespace)


def test_a_claim_of_ones_own_is_a_node_until_it_is_deleted(cloud: DevCluster, cloud_namespace: str) -> None:
    cloud.apply(karpenter.node_class(cloud_namespace))
    cloud.apply(claim(cloud_namespace, "a100-8x"))
    until(lambda: allocatable(cloud, cloud_namespace) == ["8"])
    cloud.kubectl("wait", f"nodeclaim/{cloud_namespace}", "--for=condition=Ready", f"--timeout={LIMIT_S}s")
    cloud.kubectl("delete", f"nodeclaim/{cloud_namespace}", f"--timeout={LIMIT_S}s")
    until(lambda: not of(cloud, "/api/v1/nodes", cloud_namespace))


def test_a_node_may_never_show_its_gpus(cloud: DevCluster, cloud_namespace: str) -> None:
    cloud.apply(karpenter.node_class(cloud_namespace))
    cloud.apply(claim(cloud_namespace, "a100-blind"))
    until(lambda: allocatable(cloud, cloud_namespace) == ["0"])


def test_where_the_cloud_has_none_left_the_claim_goes_with_an_event(cloud: DevCluster, cloud_namespace: str) -> None:
    cloud.apply(karpenter.node_class(cloud_namespace, stock_out="no a100-8x in zone-a"))
    cloud.apply(claim(cloud_namespace, "a100-8x"))
    about = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={cloud_namespace}"
    until(lambda: any(event["reason"] == "InsufficientCapacityError" for event in _events(cloud, about)))
    (said,) = [event["message"] for event in _events(cloud, about) if event["reason"] == "InsufficientCapacityError"]
    assert "no a100-8x in zone-a" in said
    until(lambda: not of(cloud, karpenter.CLAIMS, cloud_namespace))


def _events(cloud: DevCluster, about: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cloud.api.ask("GET", about).body["items"]
    return found
