"""`portability` and `plan` give one answer, and what they allow can really run there: a property over generated Jobs,
sites and maps.

The truth is told apart from the code: which offers a label means, and whether a pod fits a node, are written down here.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from penstock.config.sites import read_sites
from penstock.core.decide.rules import BuiltInRules
from penstock.core.engine import Engine
from penstock.core.model import events as e
from penstock.core.model.types import NodeShape, Offer, Policy, Site
from penstock.core.plan import plan
from penstock.core.units import MICRO
from penstock.front.burst_report import BurstReport, labels_of
from penstock.front.home_job_file import home_job_file
from penstock.kube import annotations
from penstock.kube.job_needs import job_needs, known_gpus, offer_has
from penstock.kube.maps import Maps, has
from penstock.kube.portability import packed, rewrite
from tests.conftest import ROOT
from tests.front.kit import home_job

Json = dict[str, Any]

#: Labels, and the GPUs of the offers below that they mean.
MODELS: dict[tuple[str, str], set[str]] = {
    ("nvidia.com/gpu.product", "Tesla-T4"): {"T4"},
    ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"): {"A100", "A100-80GB"},
    ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4"): {"T4"},
    ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100"): {"A100"},
    ("node.kubernetes.io/instance-type", "g4dn.xlarge"): {"T4"},
    ("node.kubernetes.io/instance-type", "Standard_NC24ads_A100_v4"): {"A100", "A100-80GB"},
    ("karpenter.k8s.aws/instance-gpu-name", "a100"): {"A100", "A100-80GB"},
    ("eks.amazonaws.com/instance-gpu-name", "h100"): set(),
}
OTHERS = (("pool", "gpu"), ("pool", "big"), ("zone", "a"), ("nvidia.com/gpu.memory", "81559"))
LABELS = (*MODELS, *OTHERS)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


# --- what is generated ------------------------------------------------------------------------------------------------


@st.composite
def containers(draw: st.DrawFn, name: str) -> Json:
    resource = draw(st.sampled_from(("nvidia.com/gpu",) * 4 + ("nvidia.com/mig-1g.10gb", "amd.com/gpu", "")))
    limits: Json = {resource: draw(st.integers(0, 4))} if resource else {}
    if draw(st.integers(0, 9)) == 0:
        limits[draw(st.sampled_from(("rdma/hca", "hugepages-2Mi")))] = 1
    return {"name": name, "image": "busybox", "resources": {"limits": limits}}


@st.composite
def terms(draw: st.DrawFn) -> Json:
    rules = []
    for key in draw(st.lists(st.sampled_from(sorted({key for key, _ in LABELS})), max_size=2, unique=True)):
        values = draw(st.lists(st.sampled_from([text for k, text in LABELS if k == key]), min_size=1, unique=True))
        rules.append({"key": key, "operator": draw(st.sampled_from(("In", "In", "In", "NotIn"))), "values": values})
    return {"matchExpressions": [*rules, {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}


@st.composite
def jobs(draw: st.DrawFn) -> Json:
    pod: Json = {"containers": [draw(containers("main"))], "restartPolicy": "Never"}
    if draw(st.booleans()):
        pod["initContainers"] = [draw(containers("init"))]
        if draw(st.booleans()):
            pod["initContainers"][0]["restartPolicy"] = "Always"
    if draw(st.booleans()):
        pod["nodeSelector"] = dict(draw(st.lists(st.sampled_from(LABELS), max_size=2)))
    if draw(st.booleans()):
        required = {"nodeSelectorTerms": draw(st.lists(terms(), min_size=1, max_size=3))}
        pod["affinity"] = {"nodeAffinity": {REQUIRED: required}}
    if draw(st.integers(0, 9)) == 0:
        pod["nodeName"] = "gpu-7"
    if draw(st.integers(0, 4)) == 0:
        pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": draw(st.sampled_from("ab"))}}]
    if draw(st.integers(0, 3)) == 0:
        pod["subdomain"] = "rendezvous"
        name = draw(st.sampled_from(("train-0.rendezvous", "train-0.rendezvous.vision.svc")))
        pod["containers"][0]["args"] = [f"--endpoint={name}:29500"]
    made = home_job("train", pod=pod, spec={"parallelism": draw(st.integers(1, 3))})
    made["metadata"]["namespace"] = "vision"
    return made


@st.composite
def tables(draw: st.DrawFn, site: str, models: list[str]) -> Maps:
    """Whatever label a map names here, the site's nodes have; `pool` may be left out."""
    rarely = st.sampled_from((True, False, False))
    selectors = [(f"{key}={text}", f"here/{key.rpartition('/')[2]}=yes") for key, text in OTHERS if draw(rarely)]
    whole = [(key, "") for key in ("pool", "affinity", "nodeName") if draw(rarely)]
    return Maps(
        site,
        namespaces=(("vision", draw(st.sampled_from(("there", "vision")))),) if draw(st.integers(0, 5)) else (),
        services=draw(st.sampled_from(((), (("rendezvous", "meet"),), (("rendezvous", ""),)))),
        copy_services=draw(rarely),
        volumes=tuple((name, f"{name}-there") for name in "ab" if draw(rarely)),
        node_selectors=(*selectors, *whole),
        resources=tuple((name, "") for name in ("rdma/hca", "hugepages-2Mi") if draw(rarely)),
        gpus=(("T4", models[0]),) if draw(rarely) else (),
    )


@st.composite
def sites(draw: st.DrawFn, name: str) -> tuple[Site, Maps]:
    models = draw(st.lists(st.sampled_from(("A100", "A100-80GB", "T4")), min_size=1, max_size=2))
    maps, offers = draw(tables(name, models)), []
    for k, model in enumerate(models):
        mig = draw(st.sampled_from(("", "", "", "1g.10gb")))
        resource = draw(st.sampled_from(("nvidia.com/gpu",) * 5 + ("amd.com/gpu",)))
        true = [label for label, means in MODELS.items() if model in means]
        selector = draw(st.lists(st.sampled_from((*true, ("pool", "gpu"), ("zone", "a"))), max_size=2))
        labels = offer_has(model, resource, dict(selector).items(), maps.gpus)
        shapes = (NodeShape(8, 2, 8 * MICRO),)
        offers.append(Offer(f"{name}/{k}", name, "on_demand", shapes, model, mig, has=labels))
    return Site(name, tuple(offers), has=has(maps)), maps


# --- the property -----------------------------------------------------------------------------------------------------

LAB = Site("lab", (Offer("lab/a100", "lab", "owned", (NodeShape(8, 1),), gpu_model="A100"),), front_door=True)


def allowed_by_plan(job: Json, world: tuple[Site, ...]) -> list[Offer]:
    """The offers that `plan` lists, of the Job as the API reads it."""
    known = known_gpus(offer for site in world for offer in site.offers)
    file = home_job_file(json.dumps(job).encode(), "lab", 0, known)
    assert file is not None
    engine = Engine()
    engine.handle(*(e.SiteJoined(0, site) for site in world), e.PolicySet(0, 0, Policy("test")))
    planned = plan(engine.state, BuiltInRules(), e.JobSubmitted(1, 1, "j", file.spec))
    excluded = {row.offer for row in planned.excluded}
    return [offer for site in world for offer in site.offers if offer.id not in excluded]


@settings(max_examples=250, deadline=None)
@given(jobs(), sites("east"), sites("west"))
def test_a_job_could_burst_to_a_site_exactly_if_plan_allows_an_offer_there_and_then_it_can_run(
    job: Json, east: tuple[Site, Maps], west: tuple[Site, Maps]
) -> None:
    world = (LAB, east[0], west[0])
    judged = BurstReport(world, [east[1], west[1]], "lab").judge(job)
    could = {there.site for there in judged.sites if there.goes}
    assert all(there.goes or there.says for there in judged.sites)
    if not judged.gpus:
        assert not could  # none, of two kinds, or too many: the front door refuses it
        return
    offers = [offer for offer in allowed_by_plan(job, world) if offer.site != "lab"]
    note(f"{judged} {[offer.id for offer in offers]}")
    assert could == {offer.site for offer in offers}
    for offer in offers:
        runs_there(job, offer, {"east": east[1], "west": west[1]}[offer.site])


def runs_there(job: Json, offer: Offer, maps: Maps) -> None:
    away = json.loads(json.dumps(job))
    away["metadata"]["annotations"] = {annotations.HOME: "lab"}
    labels = labels_of(offer)
    service = {"kind": "Service", "metadata": {"name": "rendezvous"}, "spec": {"clusterIP": "None"}}
    made = rewrite(packed(away, [service]), maps, labels)
    pod = made.manifest["spec"]["template"]["spec"]
    mapped_to = dict(maps.services).get(job["spec"]["template"]["spec"].get("subdomain", ""))
    copied = {copy["metadata"]["name"] for copy in made.copies}
    assert (pod.get("subdomain") or "", copied) in (("", set()), (mapped_to, set()), ("rendezvous", {"rendezvous"}))
    assert "vision.svc" not in str(pod) or made.manifest["metadata"]["namespace"] == "vision"
    mapped = dict(to.split("=", 1) for _, to in maps.node_selectors if to)
    node = {"kubernetes.io/os": "linux", **mapped, **labels}
    assert "nodeName" not in pod
    assert all(node.get(key) == text for key, text in (pod.get("nodeSelector") or {}).items())
    assert selects(pod, node)
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod.get("volumes") or ()]
    assert all(name.endswith("-there") for name in claims)
    resource = "nvidia.com/mig-1g.10gb" if offer.mig_profile else "nvidia.com/gpu"
    if "GPU resource amd.com/gpu" in offer.has:
        resource = "amd.com/gpu"
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        assert {name for name, count in container["resources"]["limits"].items() if count} <= {resource}
    models = {offer.gpu_model} | ({"T4"} if dict(maps.gpus).get("T4") == offer.gpu_model else set())
    assert_means(job["spec"]["template"]["spec"], models)


def assert_means(pod: Json, models: set[str]) -> None:
    """All labels of the Job that name models, and those of one term at least, name one of these."""
    for label in (pod.get("nodeSelector") or {}).items():
        assert MODELS.get(label, models) & models
    if (terms := terms_of(pod)) is not None:
        rules = [[rule for rule in term if rule["key"] in {key for key, _ in MODELS}] for term in terms]
        assert any(all(_means(rule, models) for rule in term) for term in rules)


def _means(rule: Json, models: set[str]) -> bool:
    named = {model for text in rule["values"] for model in MODELS[rule["key"], text]}
    return bool(named & models) if rule["operator"] == "In" else not models <= named


def selects(pod: Json, node: Mapping[str, str]) -> bool:
    """As the scheduler reads required node affinity; only `In` is left away from home."""
    terms = terms_of(pod)
    return terms is None or any(
        term and all(node.get(rule["key"]) in rule["values"] for rule in term) for term in terms
    )


def terms_of(pod: Json) -> list[list[Json]] | None:
    """Of required node affinity; None if there is none."""
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return None if required is None else [term["matchExpressions"] for term in required["nodeSelectorTerms"]]


# --- in words ---------------------------------------------------------------------------------------------------------


def east(*models: str, **tables: Any) -> tuple[Site, Maps]:
    maps = Maps("east", namespaces=(("vision", "there"),), **tables)
    price = (NodeShape(8, None, 8 * MICRO),)
    offers = [
        Offer(f"east/{m}", "east", "on_demand", price, m, has=offer_has(m, "nvidia.com/gpu", [], maps.gpus))
        for m in models
    ]
    return Site("east", tuple(offers), has=has(maps)), maps


def verdict(job: Json, site: tuple[Site, Maps]) -> tuple[str, list[str], list[str]]:
    judged = BurstReport((LAB, site[0]), [site[1]], "lab").judge(job)
    return judged.verdict, judged.sites[0].says, judged.sites[0].lines


def t4(**pod: Any) -> Json:
    made = home_job("train", 1, pod={"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, **pod})
    made["metadata"]["namespace"] = "vision"
    return made


def test_a_t4_job_never_rents_an_a100_unless_a_map_says_so() -> None:
    assert verdict(t4(), east("A100")) == (
        "needs a map",
        ["GPU nvidia-tesla-t4 is not one that east has; write maps: {gpus: {nvidia-tesla-t4: A100}}."],
        ["maps: {gpus: {nvidia-tesla-t4: A100}}"],
    )
    assert verdict(t4(), east("A100", "T4"))[0] == "could burst to east"
    assert verdict(t4(), east("A100", gpus=(("T4", "A100"),)))[0] == "could burst to east"
    assert verdict(t4(), east("A100", gpus=(("nvidia-tesla-t4", "A100"),)))[0] == "could burst to east"


def test_a_label_that_the_offers_nodes_have_needs_no_map_and_one_that_they_have_otherwise_is_refused() -> None:
    pooled = home_job("train", 1, pod={"nodeSelector": {"pool": "gpu"}})
    pooled["metadata"]["namespace"] = "vision"
    there, maps = east("A100")
    (offer,) = there.offers
    for pool, verdict_there in (("gpu", "could burst to east"), ("cpu", "needs a map")):
        site = replace(there, offers=(replace(offer, has=(f"node selector pool={pool}",)),))
        assert verdict(pooled, (site, maps))[0] == verdict_there
        home = replace(LAB, offers=tuple(replace(owned, has=site.offers[0].has) for owned in LAB.offers))
        assert bool(allowed_by_plan(pooled, (home,))) == (pool == "gpu")


def test_what_the_front_door_would_refuse_never_bursts_and_a_wide_job_says_how_wide() -> None:
    none = home_job("cpu", 0)
    assert verdict(none, east("A100"))[:2] == (
        "never",
        ["It asks for no GPUs; write them under resources.limits, or take the label away."],
    )
    small = east("A100")
    narrow = Site("east", (Offer("east/a", "east", "on_demand", (NodeShape(8, 1, MICRO),), "A100"),), has=small[0].has)
    wide = home_job("wide", 16)
    wide["metadata"]["namespace"] = "vision"
    assert verdict(wide, (narrow, small[1]))[1] == ["Too wide: at most 8 GPUs there."]


def test_a_job_for_a_tpu_slice_bursts_to_an_offer_with_that_slice_and_no_other() -> None:
    """As GKE's documents write it: a pod for each of four hosts."""
    (gke,) = read_sites(str(ROOT / "examples" / "gke.yaml")).sites
    gke = replace(gke, has=has(Maps("eemshaven", namespaces=(("vision", "there"),))))
    selector = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    pod = {"nodeSelector": selector, "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}]}
    job = home_job("wide", 4, pod=pod, spec={"parallelism": 4, "completions": 4, "completionMode": "Indexed"})
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"google.com/tpu": "4"}
    job["metadata"]["namespace"] = "vision"
    asked = job_needs(job, known_gpus(gke.offers))
    assert (asked.gpus, asked.models) == ((("", 16),), ("TPU-v5e",))
    assert [offer.id for offer in allowed_by_plan(job, (LAB, gke))] == ["eemshaven/v5e"]
    selector["cloud.google.com/gke-tpu-topology"] = "2x2"
    assert allowed_by_plan(job, (LAB, gke)) == []
