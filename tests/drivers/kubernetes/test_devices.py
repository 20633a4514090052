"""GPUs that are devices of a DRA driver, on a real API server: counted as those of any other node."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster import NodePlan
from penstock.devcluster.external import ExternalCluster
from penstock.devcluster.plan import node_object
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.kube.connect.gpu_survey import survey
from penstock.kube.node_selection import NodeSelection
from penstock.kube.resource_slices import VERSIONS
from tests.awaiting import story
from tests.contract.kit import KubernetesGround, opened
from tests.kube.test_resource_slices import device, published

Json = dict[str, Any]
DEVICES = [device(f"gpu-{number}") for number in range(2)]


@pytest.fixture
def node(lab: ExternalCluster, namespace: str) -> Iterator[str]:
    """One whose status names no GPU; a driver publishes two."""
    name = f"{namespace}-dra"
    made = {"apiVersion": VERSIONS[0], "kind": "ResourceSlice", "metadata": {"name": name}, **published(name, *DEVICES)}
    lab.apply(node_object(name, NodePlan(1, labels={"room": namespace}), real=False), made)
    lab.kubectl("wait", "--for=condition=Ready", "--timeout=50s", f"node/{name}")
    yield name
    lab.kubectl("delete", f"node/{name}", f"resourceslice/{name}", "--ignore-not-found", "--wait=false")


def somebodys_claim(lab: ExternalCluster, namespace: str, node: str) -> None:
    """It has a GPU: what the scheduler would write is written for it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    metadata = {"name": "theirs", "namespace": namespace}
    spec = {"devices": {"requests": [request]}}
    lab.apply({"apiVersion": VERSIONS[0], "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
    row = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"}
    status = json.dumps({"status": {"allocation": {"devices": {"results": [row]}}}})
    lab.kubectl(
        "-n", namespace, "patch", "resourceclaim", "theirs", "--subresource=status", "--type=merge", "-p", status
    )


@pytest.mark.slow
@story
async def test_gpus_that_are_devices_are_counted_and_those_of_other_peoples_claims_taken_off(
    lab: ExternalCluster, namespace: str, node: str, tmp_path: Path
) -> None:
    """Where a DeviceClass stands for `nvidia.com/gpu`, no node's status has the number: the cluster "had no GPUs"."""
    place = NodeSelection(selector=(("room", namespace),))
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, places=(("lab/owned", place),))
    async with opened(ground) as site:
        driver = site.driver
        assert isinstance(driver, KubernetesDriver)

        async def counts(gpus: int) -> None:
            async with asyncio.timeout(50):
                while driver.reporter.reported.get("lab/owned") != ((node, gpus),):
                    await asyncio.sleep(0.05)

        await counts(2)
        await asyncio.to_thread(somebodys_claim, lab, namespace, node)
        await counts(1)
        (surveyed,) = [kind for kind in (await survey(driver.here.cluster)).gpus if kind.gpus_per_node == 2]
        assert (surveyed.model, surveyed.nodes) == ("A100-SXM4-80GB", 1)
