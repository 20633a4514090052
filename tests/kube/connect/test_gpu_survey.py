"""What nodes and NodePools say about GPUs, and the site that follows from it."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from penstock.config.sites import parse_sites
from penstock.core.errors import BadInput
from penstock.kube.connect.account import Wanted
from penstock.kube.connect.gpu_survey import GpuNodes, Survey, gpus_of, pools_with_gpus
from penstock.kube.connect.sites_block import SiteBlock, added, as_text, site
from penstock.kube.connect.steps import missing, version_of
from penstock.kube.gpu_models import NAMED, TPU_ACCELERATOR, TPU_TOPOLOGY
from penstock.kube.job_needs import job_needs

Json = dict[str, Any]
PRODUCT = "nvidia.com/gpu.product"
A100 = "NVIDIA-A100-SXM4-80GB"


def node(labels: dict[str, str], taints: tuple[str, ...] = (), **capacity: int) -> Json:
    rows = [{"key": text.partition(":")[0], "effect": text.partition(":")[2]} for text in taints]
    counts = {key.replace("_", "."): str(count) for key, count in capacity.items()}
    has = {f"nvidia.com/{key.replace('mig.', 'mig-')}": count for key, count in counts.items()}
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": rows}, "status": {"capacity": has}}


def test_nodes_alike_are_one_offer_and_differences_that_matter_make_others() -> None:
    nodes = [
        node({PRODUCT: A100}, gpu=8),
        node({PRODUCT: A100}, gpu=8),
        node({PRODUCT: A100, "karpenter.sh/capacity-type": "spot"}, ("nvidia.com/gpu:NoSchedule",), gpu=8),
        node({PRODUCT: "Tesla-T4"}, ("team:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"), gpu=4),
        node({}, gpu=0),
    ]
    product = ((PRODUCT, A100),)
    assert gpus_of(nodes) == [
        GpuNodes("A100-SXM4-80GB", 8, 2, selector=product),
        GpuNodes(
            "A100-SXM4-80GB", 8, 1, spot=True, tolerations=("nvidia.com/gpu",),
            selector=(*product, ("karpenter.sh/capacity-type", "spot")),
        ),
        GpuNodes("T4", 4, 1, selector=((PRODUCT, "Tesla-T4"),), fenced_by=("team:NoSchedule",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "model"),
    [
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, "H100-80GB-HBM3"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "A100-40GB"),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "L4"),
        ({"node.kubernetes.io/instance-type": "p4de.24xlarge"}, "A100-80GB"),
        ({"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"}, "H100-80GB"),
        ({"node.kubernetes.io/instance-type": "m5.large"}, ""),
        ({"gpu.nvidia.com/class": "A100_NVLINK_80GB"}, "A100_NVLINK_80GB"),
        ({"gpu.nvidia.com/model": "RTX_A5000"}, "RTX_A5000"),
        ({"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"}, "V100"),
        ({"karpenter.k8s.aws/instance-gpu-name": "t4"}, "T4"),
        ({"eks.amazonaws.com/instance-gpu-name": "h100"}, "H100"),
        ({"karpenter.k8s.aws/instance-family": "g5"}, "A10G"),
        ({}, ""),
    ],
)
def test_the_model_is_read_from_every_label_that_clouds_write(labels: dict[str, str], model: str) -> None:
    (kind,) = gpus_of([node(labels, gpu=1)])
    assert kind.model == model


@pytest.mark.parametrize("key", [key for key in NAMED if key != TPU_ACCELERATOR])
def test_whatever_label_a_job_names_its_gpus_by_makes_an_offer_of_that_model(key: str) -> None:
    """Connect read three of the nine labels that Jobs are understood by: the offer was called GPU, and Jobs that named
    their GPUs by another label failed for good, in the cluster that had exactly these nodes idle.
    """
    nodes = [node({key: "A100-80GB"}, gpu=8), node({key: "L4"}, gpu=8)]
    kinds = gpus_of(nodes)
    assert [(kind.model, kind.selector) for kind in kinds] == [
        ("A100-80GB", ((key, "A100-80GB"),)),
        ("L4", ((key, "L4"),)),
    ]
    named = {"spec": {"template": {"spec": {"containers": [], "nodeSelector": {key: "L4"}}}}}
    assert job_needs(named, [kind.model for kind in kinds]).models == ("L4",)


def test_tpus_of_each_kind_are_an_offer_of_their_own() -> None:
    """Five kinds of TPU were one offer `gpu: GPU`, which no Job that names its kind may use."""

    def tpu(kind: str, topology: str) -> Json:
        labels = {TPU_ACCELERATOR: kind, TPU_TOPOLOGY: topology, "node.kubernetes.io/instance-type": "ct5lp"}
        return {"metadata": {"labels": labels}, "status": {"capacity": {"google.com/tpu": "4"}}}

    nodes = [tpu("tpu-v5-lite-podslice", "2x4"), tpu("tpu-v5-lite-podslice", "4x4"), tpu("tpu-v6e-slice", "2x4")]
    made = site(HOME, Survey("v1.35.8", tuple(gpus_of(nodes))))["offers"]
    assert [(offer["name"], offer["gpu"]) for offer in made] == [
        ("tpu-v5e", "TPU-v5e"), ("tpu-v5e-2", "TPU-v5e"), ("tpu-v6e", "TPU-v6e")
    ]  # fmt: skip
    assert made[0]["kubernetes"] == {
        "selector": {TPU_ACCELERATOR: "tpu-v5-lite-podslice", TPU_TOPOLOGY: "2x4"},
        "resource": "google.com/tpu",
    }


def test_mig_slices_count_by_their_profile_whichever_way_the_operator_shows_them() -> None:
    mixed, single = (
        gpus_of([node({PRODUCT: A100}, mig_1g_10gb=7)]),
        gpus_of([node({PRODUCT: f"{A100}-MIG-1g.10gb"}, gpu=7)]),
    )
    assert [(kind[0].mig, kind[0].resource, kind[0].model) for kind in (mixed, single)] == [
        ("1g.10gb", "nvidia.com/mig-1g.10gb", "A100-SXM4-80GB"),
        ("1g.10gb", "nvidia.com/gpu", "A100-SXM4-80GB"),
    ]


def test_a_node_pool_with_gpus_is_an_offer_before_it_has_nodes() -> None:
    def pool(name: str, taints: list[Json], **wants: list[str]) -> Json:
        keys = {"gpu": "karpenter.k8s.aws/instance-gpu-name", "kind": "node.kubernetes.io/instance-type",
                "term": "karpenter.sh/capacity-type", "count": "karpenter.k8s.aws/instance-gpu-count"}  # fmt: skip
        rows = [{"key": keys[key], "operator": "In", "values": values} for key, values in wants.items()]
        template = {"spec": {"requirements": rows, "taints": taints}}
        return {"metadata": {"name": name}, "spec": {"template": template}}

    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    pools = [pool("cpu", [], kind=["m5.large"]), pool("big", [taint], gpu=["h100"], term=["spot"], count=["8"])]
    assert pools_with_gpus(pools) == [
        GpuNodes("H100", 8, 0, spot=True, selector=(("karpenter.sh/nodepool", "big"),), tolerations=("nvidia.com/gpu",))
    ]


# --- the site ---------------------------------------------------------------------------------------------------------

FOUND = Survey(
    "v1.35.8",
    (
        GpuNodes("A100-SXM4-80GB", 8, 2, selector=((PRODUCT, A100),), tolerations=("nvidia.com/gpu",)),
        GpuNodes("A100-SXM4-80GB", 8, 1, spot=True, selector=((PRODUCT, A100),)),
        GpuNodes("A100-SXM4-80GB", 7, 1, mig="1g.10gb", selector=((PRODUCT, f"{A100}-MIG-1g.10gb"),)),
        GpuNodes("", 4, 1),
        GpuNodes("T4", 40, 1, shared=True),
    ),
    architectures=("amd64", "arm64"),
)
RENTED = SiteBlock("east", "act", "penstock-east.kubeconfig", "penstock", ("vision",), price="2.10")
HOME = SiteBlock("lab", "home", "penstock-lab.kubeconfig", "penstock", ("vision",))


def test_the_block_is_a_site_that_the_sites_file_takes() -> None:
    for block in (RENTED, HOME):
        text = as_text(site(block, FOUND))
        (made,) = parse_sites(f"sites:\n{text}".encode(), "sites.yaml").sites
        assert [offer.id for offer in made.offers] == [
            f"{block.name}/{name}" for name in ("a100", "a100-spot", "a100-1g.10gb", "gpu")
        ]
    assert yaml.safe_load(as_text(site(RENTED, FOUND)))[0]["maps"] == {
        "namespaces": {"vision": "vision"}, "architectures": ["amd64", "arm64"]
    }  # fmt: skip
    terms = [offer["term"] for offer in site(RENTED, FOUND)["offers"]]
    assert terms == ["on_demand", "spot", "on_demand", "on_demand"]
    assert {offer["term"] for offer in site(HOME, FOUND)["offers"]} == {"owned"}
    assert "list: 2.10" in as_text(site(RENTED, FOUND))
    assert "{per: gpu_hour, list: 2}" in as_text(site(replace(RENTED, price="2"), FOUND))


def test_a_rented_cluster_without_an_autoscaler_is_offered_in_the_size_that_was_seen() -> None:
    """No size was written, so a gang of 36 GPUs was sent to two nodes of four, held money and sat on all of them for 15
    minutes, and then the offer was closed for everybody.
    """
    seen = Survey("v1.35.8", (GpuNodes("A100", 4, 2), GpuNodes("T4", 4, 0)))
    assert [offer.get("nodes") for offer in site(RENTED, seen)["offers"]] == [2, None]
    assert [offer.get("nodes") for offer in site(RENTED, replace(seen, autoscaler=True))["offers"]] == [None, None]
    assert [offer.get("nodes") for offer in site(HOME, seen)["offers"]] == [None, None]  # the driver counts these


def test_owned_nodes_of_one_kind_are_one_offer_whatever_their_sizes_and_taints() -> None:
    """A team's tainted nodes were left out, and nobody could use them. Nodes of two sizes were counted twice, because
    both offers selected all of them.
    """
    nodes = [
        node({PRODUCT: A100}, gpu=8),
        node({PRODUCT: A100}, gpu=4),
        node({PRODUCT: A100}, ("dedicated:NoSchedule", "nvidia.com/gpu:NoSchedule"), gpu=8),
        node({PRODUCT: "Tesla-T4"}, ("team:NoSchedule",), gpu=4),
    ]
    seen = Survey("v1.35.8", tuple(gpus_of(nodes)))
    made = site(HOME, seen)["offers"]
    assert [(offer["name"], offer["gpus_per_node"]) for offer in made] == [("a100", 8), ("t4", 4)]
    assert made[0]["kubernetes"] == {"selector": {PRODUCT: A100}, "tolerations": [{"key": "nvidia.com/gpu"}]}
    assert len(site(RENTED, seen)["offers"]) == 2  # rented nodes of two sizes have two prices, and taints are not ours
    words = "1 node with 8 GPUs has the taint dedicated:NoSchedule: only Jobs that tolerate it use them."
    assert words in missing(seen, Wanted("home", "penstock", "penstock"), HOME)


def test_up_does_not_complain_of_the_offers_that_connect_wrote() -> None:
    """It said that they have no guarantee, and charged an hour, $16.80, for a Job of five seconds."""
    text = as_text(site(RENTED, Survey("v1.35.8", (GpuNodes("A100", 4, 2),))))
    read = parse_sites(f"sites:\n{text}".encode(), "sites.yaml")
    (offer,) = read.sites[0].offers
    assert (offer.guarantee, offer.billing_step_ms) == ("job", 1_000)
    assert not [note for note in read.notes if "guarantee" in note]


FILE = """\
# our sites
currency: EUR   # of everything
sites:
  # the lab
  - name: lab
    offers:
      - {name: a100, term: owned, gpu: A100, gpus_per_node: 8, nodes: 1}   # ours
    # not yet: west

# money
caps: []
"""


def test_a_site_is_added_to_a_file_and_every_other_line_stays() -> None:
    block = as_text(site(RENTED, FOUND))
    new = added(FILE, block, "east")
    assert new is not None
    for line in FILE.splitlines():
        assert line in new.splitlines()
    assert [entry["name"] for entry in yaml.safe_load(new)["sites"]] == ["lab", "east"]
    assert new.index("# not yet: west") < new.index("- name: east") < new.index("# money")
    assert added(new, block, "east") is None


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "currency: EUR", "sites:\n- name: lab", "sites:\n  - {name: lab}"]
)
def test_any_file_that_lists_its_sites_in_lines_takes_another(text: str) -> None:
    new = added(text, as_text(site(HOME, FOUND)).replace("name: lab", "name: east"), "east")
    assert new is not None
    assert yaml.safe_load(new)["sites"][-1]["name"] == "east"
    assert new.startswith(text)


@pytest.mark.parametrize("text", ["sites: []", "sites: [{name: lab}]", "[1]", "a: [", "sites: 3"])
def test_a_file_that_is_written_otherwise_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        added(text, "- name: east\n", "east")
    assert "\n" not in str(raised.value)


def test_what_is_missing_is_said_in_a_sentence_each() -> None:
    act = Wanted("act", "penstock", "penstock")
    nothing = SiteBlock("east", "act", "", "penstock")
    gaps = missing(Survey("v1.31.2-eks-1", unseen=("nodes",), has_kueue=True), act, nothing)
    words = [
        "may not look at nodes",
        "needs Kubernetes 1.32",
        "No node shows GPUs: install",
        "Kueue keeps quota",
        "--also",
    ]
    assert [word in line for word, line in zip(words, gaps, strict=True)] == [True] * 5
    assert "Karpenter may add some" in missing(Survey("v1.35.0", node_pools=("x",)), act, RENTED)[0]
    kinds = (
        GpuNodes("", 4, 1),
        GpuNodes("T4", 4, 1, fenced_by=("team=a:NoSchedule",)),
        GpuNodes("T4", 4, 2, shared=True),
    )
    words = [
        "No label names the GPU model of 1 node with 4 GPUs",
        "1 node with 4 GPUs has the taint team=a:NoSchedule",
        "2 nodes with 4 GPUs share them by time slices",
        "No autoscaler was seen",
    ]
    gaps = missing(Survey("v1.35.0", kinds), act, RENTED)
    assert [word in line for word, line in zip(words, gaps, strict=True)] == [True] * 4
    assert [offer["gpu"] for offer in site(RENTED, Survey("v1.35.0", kinds))["offers"]] == ["GPU"]
    words = ["price of a MIG slice (1g.10gb)", "No label names", "shares them", "No autoscaler was seen"]
    assert [word in line for word, line in zip(words, missing(FOUND, act, RENTED), strict=True)] == [True] * 4
    home = Wanted("home", "penstock", "penstock")
    (said_of_policies,) = missing(Survey("v1.35.0", FOUND.gpus[:1], policies=False), home, HOME)
    assert "The admission policies are not there" in said_of_policies
    assert [version_of(text) for text in ("v1.35.8", "v1.31.2-eks-1", "x", "")] == [(1, 35), (1, 31), (0, 0), (0, 0)]
