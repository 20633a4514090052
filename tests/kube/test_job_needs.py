"""What a Job needs, in one answer: GPUs, their models, and what a site must have."""

from typing import Any

import pytest

from penstock.config import parse_sites
from penstock.core.errors import BadInput
from penstock.core.model.types import Offer
from penstock.kube.job_needs import JobNeeds, job_needs, known_gpus, offer_has
from penstock.kube.maps import Maps
from penstock.kube.portability import Unmapped, rewrite

Json = dict[str, Any]
KNOWN = ["A100", "T4", "L4"]


def job(limits: Json | None = None, **pod: Any) -> Json:
    container = {"name": "c", "image": "busybox", "resources": {"limits": limits or {"nvidia.com/gpu": 1}}}
    spec = {"template": {"spec": {"containers": [container], **pod}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "n"}, "spec": spec}


def affinity(*terms: list[Json]) -> Json:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def demand(key: str, *values: str, operator: str = "In") -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def of(manifest: Json) -> tuple[str, ...]:
    """What it needs beside a cluster and its namespace."""
    return job_needs(manifest, KNOWN).needs[2:]


def test_the_whole_answer_for_one_job() -> None:
    asked = job({"nvidia.com/gpu": 2, "rdma/hca": 1, "cpu": 4}, nodeSelector={"accelerator": "nvidia-tesla-t4"})
    assert job_needs(asked, KNOWN) == JobNeeds(
        gpus=(("", 2),),
        models=("T4",),
        needs=(
            "a Kubernetes cluster",
            "namespace n",
            "resource rdma/hca",
            "GPU label accelerator=nvidia-tesla-t4",
            "a node with 4 cpu",
            "a node with 1 rdma/hca",
        ),
    )


T4 = [
    {"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}},
    {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}},
    {"nodeSelector": {"node.kubernetes.io/instance-type": "g4dn.xlarge"}},
    {"nodeSelector": {"beta.kubernetes.io/instance-type": "Standard_NC4as_T4_v3"}},
    {"nodeSelector": {"karpenter.k8s.aws/instance-gpu-name": "t4"}},
    {"nodeSelector": {"eks.amazonaws.com/instance-gpu-name": "t4"}},
    affinity([demand("nvidia.com/gpu.product", "Tesla-T4")]),
    affinity([demand("nvidia.com/gpu.product", "A100", "L4", operator="NotIn")]),
    affinity([demand("karpenter.k8s.aws/instance-family", "g4dn"), demand("kubernetes.io/os", "linux")]),
]


@pytest.mark.parametrize("pod", T4)
def test_a_t4_by_every_label_is_a_t4(pod: Json) -> None:
    assert job_needs(job(**pod), KNOWN).models == ("T4",)
    assert all(name.startswith("GPU label ") for name in of(job(**pod)))


def test_several_models_are_alternatives_and_several_demands_hold_together() -> None:
    either = affinity([demand("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", "nvidia-l4")])
    terms = affinity([demand("nvidia.com/gpu.product", "Tesla-T4")], [demand("nvidia.com/gpu.product", "NVIDIA-L4")])
    assert job_needs(job(**either), KNOWN).models == job_needs(job(**terms), KNOWN).models == ("T4", "L4")
    both = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}, **either}
    assert job_needs(job(**both), KNOWN).models == ("L4",)
    assert job_needs(job(**both), ["A100"]).models == ("NVIDIA-L4",)  # nobody has one: it fits nowhere


def test_a_label_that_only_says_that_there_are_gpus_needs_nothing() -> None:
    present = {"nvidia.com/gpu.present": "true", "kubernetes.azure.com/accelerator": "nvidia"}
    assert job_needs(job(nodeSelector=present), KNOWN) == job_needs(job(), KNOWN)


@pytest.mark.parametrize(
    ("pod", "need"),
    [
        ({"nodeSelector": {"pool": "fast"}}, "node selector pool=fast"),
        ({"nodeSelector": {"nvidia.com/gpu.memory": "81559"}}, "node selector nvidia.com/gpu.memory=81559"),
        ({"nodeSelector": {"node.kubernetes.io/instance-type": "m5.large"}}, "m5.large"),
        ({"nodeName": "gpu-7"}, "node selector nodeName=gpu-7"),
        (affinity([demand("zone", "a", "b")]), "node selector zone=a or node selector zone=b"),
        (affinity([demand("zone", operator="Exists")]), "node selector zone"),
        (affinity([demand("nvidia.com/gpu.memory", "40000", operator="Gt")]), "nvidia.com/gpu.memory>40000"),
        (affinity([demand("zone", "a")], [demand("pool", "b")]), "node selector zone=a or node selector pool=b"),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, "node selector kubernetes.io/os=windows"),
    ],
)
def test_a_label_that_we_do_not_know_is_a_need(pod: Json, need: str) -> None:
    (sentence,) = of(job(**pod))
    assert need in sentence


@pytest.mark.parametrize(
    "terms",
    [
        [[demand("zone", *(f"z{k}" for k in range(5_000)))]],
        [[demand("zone", f"z{k}")] for k in range(5_000)],
        [[demand(f"a{k}", "x"), demand(f"b{k}", "x")] for k in range(1_000)],
        [[demand(f"a{k}", "x") for k in range(1_000)]],
        [[demand("zone", "a")], [demand("nvidia.com/gpu.product", "Tesla-T4")]],
    ],
    ids=["values", "terms", "products", "expressions", "mixed"],
)
def test_affinity_that_is_too_much_to_compare_is_met_only_by_leaving_it_out(terms: list[list[Json]]) -> None:
    assert of(job(**affinity(*terms))) == ("node selector affinity",)


def test_devices_beside_gpus_and_huge_pages_are_needs_of_a_site_and_how_many_of_a_node() -> None:
    limits = {"nvidia.com/gpu": 1, "vendor.com/fpga": 1, "hugepages-2Mi": "1Gi", "memory": "1Gi", "rdma/off": 0}
    assert of(job(limits)) == (
        "resource vendor.com/fpga",
        "resource hugepages-2Mi",
        "a node with 1Gi hugepages-2Mi",
        "a node with 1 vendor.com/fpga",
    )
    there = Maps("east", namespaces=(("n", "n"),), resources=(("vendor.com/fpga", "x/fpga"), ("hugepages-2Mi", "")))
    made = rewrite(job(limits), there).manifest["spec"]["template"]["spec"]["containers"][0]
    assert made["resources"]["limits"] == {"nvidia.com/gpu": 1, "x/fpga": 1, "memory": "1Gi", "rdma/off": 0}


def test_gpus_of_another_maker_are_not_nvidias() -> None:
    assert of(job({"amd.com/gpu": 1})) == ("GPU resource amd.com/gpu",)
    assert offer_has("MI300X", "amd.com/gpu", [], []) == ("GPU resource amd.com/gpu",)
    assert len(job_needs(job({"amd.com/gpu": 1, "nvidia.com/gpu": 1})).gpus) == 2  # nothing has both


def test_a_slice_with_an_engine_of_its_own_is_spelt_as_in_the_sites_file() -> None:
    assert job_needs(job({"nvidia.com/mig-1g.10gb.me": 2})).gpus == (("1g.10gb+me", 2),)


# --- what an offer has, and what becomes of the terms there -----------------------------------------------------------

FILE = """
currency: EUR
sites:
  - name: east
    driver: kubernetes
    maps: {{gpus: {gpus}}}
    offers:
      - {{name: a, term: owned, gpu: A100, gpus_per_node: 8, kubernetes: {{selector: {{pool: gpu, {product}: A100}}}}}}
"""


def offer(gpus: str = "{T4: A100}") -> Offer:
    file = parse_sites(FILE.format(gpus=gpus, product="nvidia.com/gpu.product").encode(), "sites.yaml")
    return file.sites[0].offers[0]


def test_an_offer_has_its_labels_and_the_models_that_a_map_lets_it_stand_in_for() -> None:
    assert offer().has == (
        "node selector pool=gpu",
        "node selector nvidia.com/gpu.product=A100",
        "GPU label nvidia.com/gpu.product=A100",
        "GPU T4",
    )
    assert known_gpus([offer()]) == ["A100", "GPU label nvidia.com/gpu.product=A100", "T4"]
    with pytest.raises(BadInput, match="'H100' is not a GPU of this site; it has A100"):
        offer("{T4: H100}")


def rewritten(manifest: Json, labels: Json | None = None, **maps: Any) -> Json:
    there = Maps("east", namespaces=(("n", "n"),), **maps)
    pod_spec: Json = rewrite(manifest, there, labels or {}).manifest["spec"]["template"]["spec"]
    return pod_spec


def test_terms_are_written_by_the_sites_labels() -> None:
    zones = job(**affinity([demand("zone", "a", "b", "c"), demand("nvidia.com/gpu.product", "Tesla-T4")]))
    pod = rewritten(zones, node_selectors=(("zone=a", "region=x"), ("zone=b", "region=y")))
    assert pod["affinity"] == affinity([demand("region", "x", "y")])["affinity"]
    assert rewritten(zones, node_selectors=(("zone", ""),))["affinity"] == {"nodeAffinity": {}}
    assert rewritten(zones, {"zone": "b"})["affinity"] == {"nodeAffinity": {}}  # as all nodes of the offer
    with pytest.raises(Unmapped, match="node selector zone=a or zone=b or zone=c is not known at east"):
        rewritten(zones)


def test_a_nodes_name_is_left_out_or_becomes_a_label() -> None:
    named = job(nodeName="gpu-7")
    assert "nodeName" not in rewritten(named, node_selectors=(("nodeName", ""),))
    assert rewritten(named, node_selectors=(("nodeName=gpu-7", "pool=x"),))["nodeSelector"] == {"pool": "x"}
