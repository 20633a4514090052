"""Sites that are clusters, as the sites file says it."""

from dataclasses import replace

import pytest

from penstock.config.renting import WAYS
from penstock.config.sites import ConfigMapKey, parse_sites, read_sites
from penstock.core.errors import BadInput
from penstock.kube.access import Access
from penstock.kube.node_selection import (
    AksWay,
    ClusterApiWay,
    ClusterSite,
    EksWay,
    GkeWay,
    KarpenterWay,
    NodeSelection,
    OvhWay,
    RentedNodes,
    Taint,
    Toleration,
)
from tests.conftest import ROOT

RENT = "start: 4m, kill: 5m, rent: {way: karpenter, node_class: {group: g, kind: K, name: n}, instance_types: [t]}"
FILE = """
currency: USD
sites:
  - name: lab
    driver: kubernetes
    kubernetes: {kubernetes}
    maps: {{namespaces: {{home: there}}}}
    offers:
      - {{name: a100, term: owned, gpu: A100, gpus_per_node: 8{standing}}}
      - {{name: pods, term: on_demand, gpu: A100, gpus_per_node: 8, billing_step: 1s{rented}, price: {price}}}
"""


def read(kubernetes: str = "{}", standing: str = "", rented: str = ", sold_by: attempt") -> ClusterSite:
    text = FILE.format(kubernetes=kubernetes, standing=standing, rented=rented, price="{per: gpu_hour, list: 2}")
    return dict(parse_sites(text.encode(), "/etc/penstock/sites.yaml").kubernetes)["lab"]


def test_what_is_left_out_is_as_the_documentation_says() -> None:
    places = (("lab/a100", NodeSelection()), ("lab/pods", NodeSelection()))
    assert read() == ClusterSite(Access(), "penstock", ("there",), places=places)


def test_every_key_is_read() -> None:
    cluster_site = read(
        "{kubeconfig: k, context: c, allow_exec: [aws], namespace: ps, namespaces: [home, there], shared: true,"
        " secret: s3, grace: 1m, room: 2m, scale: 3m}",
        ", mig: 1g.10gb, kubernetes: {selector: {nvidia.com/gpu.product: A}, queue: q, headroom: [4],"
        " tolerations: [{key: spot, effect: NoSchedule}, {key: team, value: x}]}",
        ", sold_by: attempt, kubernetes: {resource: amd.com/gpu, provisioning_class: queued-provisioning.gke.io}",
    )
    tolerations = (Toleration("spot", effect="NoSchedule"), Toleration("team", "Equal", "x"))
    assert cluster_site == ClusterSite(
        Access("/etc/penstock/k", "c", allow_exec=("aws",)),
        "ps",
        ("home", "there"),
        shared=True,
        secret="s3",
        grace_ms=60_000,
        room_ms=120_000,
        scale_ms=180_000,
        places=(
            (
                "lab/a100",
                NodeSelection("nvidia.com/mig-1g.10gb", (("nvidia.com/gpu.product", "A"),), tolerations, "q", (4,)),
            ),
            ("lab/pods", NodeSelection("amd.com/gpu", provisioning_class="queued-provisioning.gke.io")),
        ),
    )


def test_a_pod_of_the_cluster_itself_needs_no_file() -> None:
    assert read("{in_cluster: true}").access == Access(in_cluster=True)
    with pytest.raises(BadInput, match=r"no 'kubeconfig' and no 'context'"):
        read("{in_cluster: true, context: c}")


def test_a_kubeconfig_may_be_in_a_secret_instead_of_a_file() -> None:
    assert read("{kubeconfig_secret: east, context: c}").access == Access(context="c", secret="east")
    assert read("{kubeconfig_secret: ours/east.kube}").access == Access(secret="ours/east.kube")
    with pytest.raises(BadInput, match=r"no 'kubeconfig' and no 'in_cluster'"):
        read("{kubeconfig_secret: east, kubeconfig: k}")


@pytest.mark.parametrize(
    ("kubernetes", "standing", "rented", "words"),
    [
        ("{kubeconfig_secret: a/b/c}", "", ", sold_by: attempt", "not NAME or NAMESPACE/NAME"),
        ("{namespace: Not_One}", "", ", sold_by: attempt", "not a namespace"),
        ("{namespaces: [a.b]}", "", ", sold_by: attempt", "not a namespace"),
        ("{contxt: c}", "", ", sold_by: attempt", "context"),
        ("{}", ", kubernetes: {headroom: [1, 2]}", ", sold_by: attempt", "24 hours"),
        ("{}", ", kubernetes: {headroom: [-1]}", ", sold_by: attempt", "whole number from 0"),
        ("{}", ", kubernetes: {selector: {'a b': c}}", ", sold_by: attempt", "not a label"),
        ("{}", ", kubernetes: {tolerations: [{effect: Sometimes}]}", ", sold_by: attempt", "NoExecute"),
        ("{}", "", ", sold_by: node", "write 'attempt'"),
        ("{}", "", ", kubernetes: {provisioning_class: Atomic}", "Atomic' is no class of ProvisioningRequests"),
        ("{}", "", ", kubernetes: {provisioning_class: a.b, queue: q}", "with 'queue' Kueue asks for the nodes"),
        ("{}", ", kubernetes: {provisioning_class: a.b}", "", "nodes that are owned are there already"),
        ("{}", "", f", {RENT}, kubernetes: {{provisioning_class: a.b}}", "with 'rent' Penstock adds the nodes"),
    ],
)
def test_what_makes_no_sense_is_a_sentence_with_line_and_key(
    kubernetes: str, standing: str, rented: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        read(kubernetes, standing, rented)


@pytest.mark.parametrize("what", ["kubernetes: {}", "maps: {}"])
def test_only_clusters_have_such_keys(what: str) -> None:
    offer = "{name: a, term: owned, gpu: A, gpus_per_node: 1, nodes: 1}"
    text = f"currency: USD\nsites:\n  - name: lab\n    driver: local\n    {what}\n    offers: [{offer}]\n"
    with pytest.raises(BadInput, match="driver: kubernetes"):
        parse_sites(text.encode(), "f")
    text = text.replace(f"    {what}\n", "").replace("nodes: 1", "nodes: 1, kubernetes: {}")
    with pytest.raises(BadInput, match="driver: kubernetes"):
        parse_sites(text.encode(), "f")


def test_only_a_cluster_says_itself_how_many_nodes_it_has() -> None:
    text = "currency: USD\nsites:\n  - {name: lab, offers: [{name: a, term: owned, gpu: A, gpus_per_node: 1}]}\n"
    with pytest.raises(BadInput, match="'nodes' is missing"):
        parse_sites(text.encode(), "f")


HOME = FILE.replace("driver: kubernetes", "driver: kubernetes\n    front_door: true") + "policy_config_map: {named}\n"


def test_the_config_map_with_the_policy_is_in_a_home_cluster() -> None:
    def named(text: str, file: str = HOME) -> ConfigMapKey | None:
        sites_text = file.format(kubernetes="{namespace: ps}", standing="", rented="", price="{list: 2}", named=text)
        return parse_sites(sites_text.encode(), "sites.yaml").policy_config_map

    assert named("{site: lab, name: rules}") == ConfigMapKey("lab", "ps", "rules", "policy.yaml")
    every = "{site: lab, namespace: gitops, name: rules, key: p.yaml}"
    assert named(every) == ConfigMapKey("lab", "gitops", "rules", "p.yaml")
    with pytest.raises(BadInput, match="there is no cluster with 'front_door: true' named 'lab'"):
        named(every, HOME.replace("front_door: true", "front_door: false"))
    with pytest.raises(BadInput, match="'Rules' is not a ConfigMap's name"):
        named("{site: lab, name: Rules}")


def test_the_example_names_its_config_map_and_closes_an_offer() -> None:
    file = read_sites(str(ROOT / "examples" / "gitops.yaml"))
    assert file.policy_config_map == ConfigMapKey("lab", "penstock", "penstock-policy", "policy.yaml")
    offers = [offer for site in file.sites for offer in site.offers]
    assert [(offer.id, offer.closed) for offer in offers] == [
        ("lab/a100", ""), ("east/h100", ""), ("east/old", "gitops.yaml:14"),
    ]  # fmt: skip


# --- nodes rented one by one ------------------------------------------------------------------------------------------

CLASS = "node_class: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}"
EKS = "way: eks, cluster: c, region: r, node_role: n"
AKS = "way: aks, cluster: c, subscription: s, resource_group: g"
GKE = "way: gke, cluster: c, project: p"


MACHINES = "deployment: d, namespace: m"


def rented(rent: str, more: str = "") -> str:
    """What the file with this offer is refused for."""
    with pytest.raises(BadInput) as refused:
        read(rented=f", rent: {{{rent}}}{more}")
    return str(refused.value)


def test_every_key_of_rent_is_read() -> None:
    more = "instance_types: [a, b], zones: [z], labels: {team: x}, taints: [{key: k, value: v, effect: NoExecute}]"
    place = dict(read(rented=f", rent: {{way: karpenter, {CLASS}, {more}}}").places)["lab/pods"]
    assert place.rent == RentedNodes(
        KarpenterWay("karpenter.k8s.aws", "EC2NodeClass", "gpu"),
        ("a", "b"),
        ("z",),
        (("team", "x"),),
        (Taint("k", "v", "NoExecute"),),
    )


def test_every_way_by_a_cloud_s_own_pools_is_read_and_its_caps_are_soft_unless_a_person_says_otherwise() -> None:
    files = {name: read_sites(str(ROOT / "examples" / f"{name}.yaml")) for name in ("eks", "aks", "gke", "ovh")}
    offers = [offer for file in files.values() for offer in file.sites[0].offers]
    assert {(offer.sold_by, offer.guarantee, offer.renewable) for offer in offers} == {("node", "none", False)}
    places = {name: place for file in files.values() for name, place in file.kubernetes[0][1].places}
    ways = {name: place.rent.way for name, place in places.items() if place.rent is not None}
    role = "arn:aws:iam::123456789012:role/gpu-nodes"
    eks = EksWay("eu-central-1", "gpu", role, ("subnet-0a1b2c3d4e5f60718",), "AL2023_x86_64_NVIDIA", 200)
    queue = "https://sqs.eu-central-1.amazonaws.com/123456789012/spot-notices"
    aks = AksWay("00000000-0000-0000-0000-000000000000", "lab", "gpu", disk_gb=200)
    gke = GkeWay("lab-1", "europe-west4", "gpu", "nvidia-tesla-a100")
    account = "gpu-nodes@lab-1.iam.gserviceaccount.com"
    assert ways == {
        "frankfurt/a100": eks,
        "frankfurt/a100-slices": eks,
        "frankfurt/a100-spot": replace(eks, notices=queue),
        "amsterdam/a100-spot": aks,
        "amsterdam/a100": aks,
        "eemshaven/a100": replace(gke, service_account=account, disk_gb=200),
        "eemshaven/a100-slices": replace(gke, accelerators=1),
        "eemshaven/v5e": replace(gke, accelerator="", topology="4x4"),
        "gravelines/h100": OvhWay(),
    }
    slices = {name: place.resource for name, place in places.items() if "slices" in name or "v5e" in name}
    assert slices == {
        "frankfurt/a100-slices": "nvidia.com/mig-1g.10gb",
        "eemshaven/a100-slices": "nvidia.com/gpu",  # so GKE calls its slices
        "eemshaven/v5e": "google.com/tpu",
    }
    spot = places["amsterdam/a100-spot"].rent
    assert spot is not None
    assert spot.taints == (Taint("kubernetes.azure.com/scalesetpriority", "spot"),)  # our Jobs tolerate it


def test_a_person_who_has_seen_it_may_call_a_pool_of_gke_s_end_hard() -> None:
    more = ", node_type: a, guarantee: max_run_time"
    assert read(rented=f", rent: {{{GKE}, location: europe-west4-a}}{more}").places


def test_an_offer_that_rents_nodes_is_sold_by_the_node_and_its_lease_is_for_life() -> None:
    file = read_sites(str(ROOT / "examples" / "karpenter.yaml"))
    spot, on_demand = file.sites[0].offers
    assert (spot.sold_by, spot.guarantee, spot.renewable) == ("node", "expire_after", False)
    assert (on_demand.sold_by, on_demand.shapes[0].name, on_demand.renewable) == ("node", "p4d.24xlarge", False)
    places = dict(dict(file.kubernetes)["frankfurt"].places)
    assert [place.rent is not None for place in places.values()] == [True, True]


@pytest.mark.parametrize(
    ("rent", "more", "says"),
    [
        ("way: ekz", "", "unknown word 'ekz'; did you mean 'eks'?"),
        ("way: karpenter", "", "the key 'node_class' is missing"),
        (f"way: karpenter, {CLASS}", "", "the key 'instance_types' is missing, or a 'node_type'"),
        (f"way: karpenter, {CLASS}", ", node_type: a, sold_by: attempt", "billed one by one; write 'node'"),
        (f"way: karpenter, {CLASS}", ", node_type: a, guarantee: timer", "write 'expire_after'"),
        (f"way: karpenter, {CLASS}, labels: {{a b: c}}", ", node_type: a", "is not a label"),
        (f"way: karpenter, {CLASS}, zone: z", ", node_type: a", "zone"),
        ("way: cluster_api, namespace: m", "", "the key 'deployment' is missing"),
        ("way: cluster_api, deployment: d", "", "the key 'namespace' is missing"),
        (f"way: cluster_api, {MACHINES}, {CLASS}", "", "this key is not for 'way: cluster_api'"),
        (f"way: karpenter, {CLASS}, {MACHINES}", ", node_type: a", "this key is not for 'way: karpenter'"),
        (f"way: cluster_api, {MACHINES}", ", guarantee: expire_after", "write 'watchman' or 'none'"),
        (f"way: cluster_api, {MACHINES}, watchman: A B", "", "is not a namespace"),
        (f"way: cluster_api, {MACHINES}, zones: [a, b]", "", "a Machine is in one failure domain"),
        (f"way: cluster_api, {MACHINES}", ", kill: 30s", "write at least 1 min"),
        (f"way: cluster_api, {MACHINES}", ", guarantee: job", "in a cluster without 'rent'"),
        (
            f"way: cluster_api, {MACHINES}, management: {{in_cluster: true, context: c}}",
            "",
            "there is no 'kubeconfig' and no 'context'",
        ),
        (f"way: karpenter, {CLASS}, region: r", ", node_type: a", "this key is not for 'way: karpenter'"),
        ("way: eks, cluster: c, region: r, subnets: [s]", ", node_type: a", "the key 'node_role' is missing"),
        (f"{EKS}, subnets: []", ", node_type: a", "name at least one subnet"),
        (f"{EKS}, subnets: [s], zones: [z]", ", node_type: a", "this key is not for 'way: eks'"),
        (f"{EKS}, subnets: [s]", ", node_type: a, guarantee: max_run_time", "write 'none'"),
        (f"{EKS}, subnets: [s], endpoint: 'http://eks.lab'", ", node_type: a", "is not an address"),
        (f"{EKS}, subnets: [s], notices: 'http://sqs.lab/123456789012/q'", ", node_type: a", "is not a queue's URL"),
        (f"{AKS}, notices: 'https://sqs.lab/123456789012/q'", ", node_type: a", "this key is not for 'way: aks'"),
        (f"{AKS}, instance_types: [a, b]", "", "a node of 'aks' has one type"),
        (f"{AKS}, subnets: [a, b]", ", node_type: a", "a pool of AKS has one subnet"),
        (f"{GKE}, location: europe-west4", ", node_type: a", "GKE makes a machine in each zone of a pool"),
        (f"{GKE}, location: europe-west4-a, topology: big", ", node_type: a", "not a TPU slice's topology"),
        (f"{GKE}, location: europe-west4-a, topology: 4x4, accelerator: x", ", node_type: a", "has no GPUs"),
        (f"{GKE}, location: europe-west4-a", ", node_type: a, mig: 1g.10gb", "how many GPUs a machine has"),
        ("way: ovh", ", node_type: a, guarantee: timer", "write 'none'"),
    ],
)
def test_a_mistake_in_rent_is_said(rent: str, more: str, says: str) -> None:
    assert says in rented(rent, more)


def test_a_queue_of_notices_is_read_by_one_site() -> None:
    example = (ROOT / "examples" / "eks.yaml").read_text()
    head, sites = example.split("sites:\n")
    second = sites.replace("name: frankfurt", "name: dublin", 1)
    assert second != sites
    with pytest.raises(BadInput, match="site 'frankfurt' reads this queue already") as refused:
        parse_sites(f"{head}sites:\n{sites}{second}".encode(), "sites.yaml")
    assert "sites[1].offers[1].rent.notices" in str(refused.value)


def test_no_pool_s_machine_is_said_to_end_by_a_timer_which_its_pool_would_replace() -> None:
    """A group makes another machine when one ends itself: whoever writes that a timer ends it would hold too little."""
    groups = [rules.guarantees for way, rules in WAYS.items() if way not in ("karpenter", "cluster_api")]
    assert sorted(groups) == [("none",), ("none",), ("none",), ("none", "max_run_time")]
    assert all("timer" not in rules.guarantees for rules in WAYS.values())
    assert "write 'none'" in rented(f"{EKS}, subnets: [s]", ", node_type: a, guarantee: timer")


def test_the_example_of_cluster_api_is_renewable_and_guarded_by_its_watchman() -> None:
    file = read_sites(str(ROOT / "examples" / "cluster-api.yaml"))
    (offer,) = file.sites[0].offers
    assert (offer.sold_by, offer.guarantee, offer.renewable) == ("node", "watchman", True)
    rent = dict(dict(file.kubernetes)["nuremberg"].places)["nuremberg/a100"].rent
    assert rent is not None
    assert rent.way == ClusterApiWay("gpu-a100", "nuremberg", Access("~/.kube/management"), "penstock")


def test_a_watchman_guards_only_what_is_rented_with_one() -> None:
    with pytest.raises(BadInput, match=r"a watchman ends what is rented by"):
        read(rented=", guarantee: watchman")


def test_what_is_owned_is_not_rented() -> None:
    with pytest.raises(BadInput, match=r"'rent' is for rented offers"):
        read(standing=f", node_type: a, rent: {{way: karpenter, {CLASS}}}")


def test_the_example_of_an_autoscaler_is_that_of_its_page() -> None:
    made = read_sites(str(ROOT / "examples" / "autoscaler.yaml"))
    ((name, cluster),) = made.kubernetes
    (offer,) = made.sites[0].offers
    assert (name, offer.sold_by, offer.guarantee, made.notes) == ("east", "attempt", "job", ())
    assert cluster.places[0][1].selector == (("karpenter.sh/nodepool", "a100"),)
    _, _, shown = (ROOT / "examples" / "autoscaler.yaml").read_text("utf-8").partition("\n")
    assert shown in (ROOT / "docs" / "clouds.md").read_text("utf-8")


def test_the_example_of_provisioning_requests_asks_for_all_nodes_at_once() -> None:
    made = read_sites(str(ROOT / "examples" / "provisioning.yaml"))
    ((_, cluster),) = made.kubernetes
    (((_, place),), (offer,)) = (cluster.places, made.sites[0].offers)
    assert (offer.sold_by, made.notes) == ("attempt", ())
    assert place.provisioning_class == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
