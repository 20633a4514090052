"""What `connect --rent` reads from Karpenter's objects, and the offers that follow from it."""

from typing import Any

import yaml

from penstock.config.sites import parse_sites
from penstock.kube.connect.gpu_survey import NODE_POOL, GpuNodes, Survey
from penstock.kube.connect.machine_survey import MachineSurvey, missing_for_machines, rentable_machines
from penstock.kube.connect.rent_survey import (
    RentablePool,
    RentSurvey,
    cloud_of,
    missing_for_rent,
    rentable,
    rentable_nodes,
    tolerates_rented,
)
from penstock.kube.connect.sites_block import SiteBlock, as_text, site

Json = dict[str, Any]
EC2 = ("karpenter.k8s.aws", "EC2NodeClass", "gpu")
KEYS = {
    "kind": "node.kubernetes.io/instance-type", "term": "karpenter.sh/capacity-type",
    "count": "karpenter.k8s.aws/instance-gpu-count", "zone": "topology.kubernetes.io/zone",
    "gpu": "karpenter.k8s.aws/instance-gpu-name",
}  # fmt: skip
A100 = RentablePool("a100", EC2, ("p4d.24xlarge",), "A100-40GB", 8, counted=True, zones=("eu-1a",))


def pool(name: str, labels: dict[str, str] | None = None, **wants: list[str]) -> Json:
    rows = [{"key": KEYS[key], "operator": "In", "values": values} for key, values in wants.items()]
    by = dict(zip(("group", "kind", "name"), EC2, strict=True))
    template = {"metadata": {"labels": labels or {}}, "spec": {"requirements": rows, "nodeClassRef": by}}
    return {"metadata": {"name": name}, "spec": {"template": template}}


def plugin(*tolerations: Json) -> Json:
    return {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"tolerations": list(tolerations)}}}}


def test_a_pool_that_names_machine_types_with_gpus_can_be_rented_like() -> None:
    pools = [
        pool("a100", kind=["p4d.24xlarge", "m5.large"], count=["8"], zone=["eu-1a"], term=["spot", "on-demand"]),
        pool("spot", {"team": "x"}, kind=["p5.48xlarge", "p4de.24xlarge"], term=["spot"]),
        pool("by-gpu", gpu=["a100"]),
        pool("cpu", kind=["m5.large"]),
    ]
    assert rentable(pools) == [
        A100,
        RentablePool("spot", EC2, ("p5.48xlarge", "p4de.24xlarge"), "", spot=True, labels=(("team", "x"),)),
    ]


def test_the_offers_rent_for_the_price_and_stand_beside_what_is_owned() -> None:
    gpus = (
        GpuNodes("H100", 8, 2),
        GpuNodes("A100-40GB", 8, 0, selector=((NODE_POOL, "a100"),)),  # the same pool, by the Job alone
    )
    block = SiteBlock("lab", "home", "k", "penstock", ("vision",), price="2.10", owned=True)
    text = as_text(site(block, Survey("v1.35.0", gpus), rentable_nodes(RentSurvey(karpenter=True, pools=(A100,)))))
    made = parse_sites(f"sites:\n{text}".encode(), "sites.yaml")
    assert [(offer.id, offer.term, offer.guarantee) for offer in made.sites[0].offers] == [
        ("lab/h100", "owned", made.sites[0].offers[0].guarantee),
        ("lab/a100", "on_demand", "expire_after"),
    ]
    offer = yaml.safe_load(text)[0]["offers"][1]
    assert offer["price"] == {"per": "gpu_hour", "list": 2.10}
    assert offer["rent"] == {
        "way": "karpenter",
        "node_class": dict(zip(("group", "kind", "name"), EC2, strict=True)),
        "instance_types": ["p4d.24xlarge"],
        "zones": ["eu-1a"],
    }


def test_a_device_plugin_must_tolerate_the_taint_of_rented_nodes() -> None:
    ours = {"key": "penstock.dev/rented", "operator": "Exists"}
    assert tolerates_rented(plugin(ours))
    assert tolerates_rented(plugin({"operator": "Exists"}))
    assert tolerates_rented(plugin({**ours, "effect": "NoSchedule"}))
    assert not tolerates_rented(plugin({**ours, "effect": "NoExecute"}))
    assert not tolerates_rented(plugin({"key": "penstock.dev/rented", "value": "x"}))
    assert not tolerates_rented(plugin({"key": "nvidia.com/gpu", "operator": "Exists"}))
    assert not tolerates_rented(plugin())


def test_what_is_missing_for_renting_is_said_in_a_sentence_each() -> None:
    nobody = "Neither Karpenter v1 nor Cluster API is there: install one before Penstock can rent its nodes."
    assert missing_for_rent(RentSurvey()) == [nobody]
    pools = f"{nobody} Or rent node pools of GKE, whose caps are soft: see examples/gke.yaml."
    assert missing_for_rent(RentSurvey(cloud="gke")) == [pools]
    plugins = ("kube-system/nvidia-device-plugin",)
    assert missing_for_rent(RentSurvey(karpenter=True, pools=(A100,), plugins=plugins)) == []
    lacking = RentSurvey(
        karpenter=True,
        classes=("EC2NodeClass gpu",),
        unready=("EC2NodeClass gpu is not ready: no subnets.",),
        plugins=plugins,
        fenced=plugins,
        unseen=("nodepools.karpenter.sh",),
    )
    words = ["may not look at nodepools", "no subnets. Mend it", "its node classes are EC2NodeClass gpu", "tolerat"]
    assert [word in line for word, line in zip(words, missing_for_rent(lacking), strict=True)] == [True] * 4
    unsure = RentablePool("x", EC2, ("p5.48xlarge", "p4d.24xlarge"), "")
    words = ["does not say how many GPUs", "have different GPUs", "No DaemonSet of a device plugin"]
    lines = missing_for_rent(RentSurvey(karpenter=True, pools=(unsure,)))
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True] * 3


# --- Cluster API -----------------------------------------------------------------------------------------------------


def deployment(name: str, **notes: str) -> Json:
    annotations = {
        f"capacity.cluster-autoscaler.kubernetes.io/{key.replace('_', '-')}": text for key, text in notes.items()
    }
    return {"metadata": {"name": name, "namespace": "machines", "annotations": annotations}, "spec": {"replicas": 0}}


def machines(*deployments: Json, watchman: bool = True, namespace: str = "penstock") -> RentSurvey:
    rented = tuple(group for workload in deployments if (group := rentable_machines(workload)) is not None)
    plugins = ("kube-system/nvidia-device-plugin",)
    return RentSurvey(
        cluster_api=MachineSurvey(served=True, machines=rented, watchman=watchman, namespace=namespace), plugins=plugins
    )


def test_machines_that_say_their_gpus_can_be_rented_like() -> None:
    labels = "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB,karpenter.sh/capacity-type=spot"
    there = machines(
        deployment("a100", gpu_count="8", gpu_type="nvidia.com/gpu", labels=labels, taints="team=x:NoSchedule"),
        deployment("mi300", gpu_count="4", gpu_type="amd.com/gpu"),
        deployment("cpu"),
        deployment("odd", gpu_count="many"),
        namespace="own",
    )
    assert missing_for_rent(there) == []
    block = SiteBlock("lab", "act", "k", "own", price="2.10")
    text = as_text(site(block, Survey("v1.35.0"), rentable_nodes(there)))
    (parsed,) = parse_sites(f"sites:\n{text}".encode(), "sites.yaml").sites
    assert [(offer.id, offer.term, offer.guarantee) for offer in parsed.offers] == [
        ("lab/a100-spot", "spot", "watchman"),
        ("lab/gpu", "on_demand", "watchman"),
    ]
    spot, other = yaml.safe_load(text)[0]["offers"]
    assert (spot["gpu"], spot["gpus_per_node"], spot["kubernetes"]) == (
        "A100-SXM4-80GB",
        8,
        {"tolerations": [{"key": "team"}]},
    )
    rent = {"way": "cluster_api", "deployment": "a100", "namespace": "machines", "watchman": "own"}
    assert spot["rent"] == rent
    assert other["kubernetes"] == {"resource": "amd.com/gpu"}


def test_without_a_watchman_and_for_machines_that_say_nothing_there_is_a_sentence() -> None:
    there = machines(deployment("a100", gpu_count="8"), watchman=False)
    (soft,) = missing_for_rent(there)
    assert "caps are soft" in soft
    assert "penstock manifests watchman" in soft
    (silent,) = missing_for_machines(MachineSurvey(served=True, silent=("machines/cpu",)))
    assert "MachineDeployment machines/cpu does not say which GPUs" in silent


def test_a_managed_cluster_is_known_by_its_nodes() -> None:
    ids = {"eks": "aws:///eu-1a/i-0", "aks": "azure:///subscriptions/0/x", "gke": "gce://project/zone/name"}
    for cloud, provider_id in ids.items():
        assert cloud_of([{"spec": {}}, {"spec": {"providerID": provider_id}}]) == cloud
    assert cloud_of([{"spec": {"providerID": "kind://docker/kind/node"}}]) == ""
