"""`penstock connect --rent` at a real Karpenter and a real Cluster API: rights, offers, and what is missing."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.config.sites import parse_sites
from penstock.devcluster import DevCluster, cluster_api, karpenter
from penstock.kube.access import Access, connect
from penstock.kube.client import EVENTS, MACHINE_DEPLOYMENTS, NODE_CLAIMS, NODES, Kind

pytestmark = pytest.mark.slow
Json = dict[str, Any]


def test_the_account_may_rent_the_sites_file_has_an_offer_and_a_plugin_that_would_not_come_is_named(
    cloud: DevCluster, cloud_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, sites = cloud_namespace, tmp_path / "sites.yaml"
    pool = karpenter.node_pool(name, types=("p4d.24xlarge", "cpu-8"), labels={"team": "x"})
    cloud.apply(karpenter.node_class(name), pool, device_plugin(name))
    words = [str(cloud.kubeconfig), "--rent", "--price", "2.10", "-n", name, "--name", "cloud", "--sites", str(sites)]
    assert main(["connect", *words, "--json"]) == 0, capsys.readouterr().err
    answer: Json = json.loads(capsys.readouterr().out)
    plugin = f"DaemonSet {name}/nvidia-device-plugin does not tolerate the taint of rented nodes"
    assert [line.partition(":")[0] for line in answer["missing"] if "DaemonSet" in line] == [plugin]
    assert [pool["name"] for pool in answer["rent"]["pools"] if pool["name"] == name] == [name]
    (site,) = parse_sites(sites.read_bytes(), str(sites)).sites
    offer = next(offer for offer in site.offers if offer.id.startswith("cloud/a100"))
    assert (offer.sold_by, offer.guarantee, offer.renewable) == ("node", "expire_after", False)
    asyncio.run(may_rent(answer["kubeconfig"], NODE_CLAIMS))


def test_a_machine_deployment_of_size_0_that_says_its_gpus_is_an_offer(
    managing: DevCluster, managed_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, sites = managed_namespace, tmp_path / "sites.yaml"
    managing.apply(*cluster_api.pool("silent", name, "own", gpus=8))
    gpus = {"gpu-count": "8", "labels": "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"}
    notes = [f"capacity.cluster-autoscaler.kubernetes.io/{key}={text}" for key, text in gpus.items()]
    managing.kubectl("annotate", "machinedeployment", "a100", "-n", name, *notes)
    words = [str(managing.kubeconfig), "--rent", "--price", "2.10", "-n", name, "--name", "own", "--sites", str(sites)]
    assert main(["connect", *words, "--json"]) == 0, capsys.readouterr().err
    answer: Json = json.loads(capsys.readouterr().out)
    missing = " ".join(answer["missing"])
    assert f"MachineDeployment {name}/silent does not say which GPUs" in missing
    assert f"No watchman's Lease is in namespace {name}" in missing
    (site,) = parse_sites(sites.read_bytes(), str(sites)).sites
    (offer,) = [offer for offer in site.offers if offer.gpu_model == "A100-SXM4-80GB"]
    assert (offer.sold_by, offer.guarantee, offer.renewable) == ("node", "watchman", True)
    asyncio.run(may_rent(answer["kubeconfig"], MACHINE_DEPLOYMENTS))


async def may_rent(kubeconfig: str, claims: Kind) -> None:
    cluster = connect(Access(kubeconfig))
    try:
        for verb, kind in (("create", claims), ("delete", claims), ("delete", NODES), ("list", EVENTS)):
            assert await cluster.may(verb, kind), (verb, kind)
    finally:
        await cluster.close()


def device_plugin(namespace: str) -> Json:
    labels = {"app": "plugin"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "plugin", "image": "plugin"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
