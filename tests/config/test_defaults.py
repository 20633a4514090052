"""Every key that may be left out has a default that the documents state, and that is the one the code takes."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from penstock.config import SitesFile, parse_sites, read_sites
from penstock.config.convert import Section
from penstock.config.jobs import JobSection, parse_job
from penstock.config.sections import FileSection
from penstock.core.errors import BadInput
from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import HOUR, MINUTE, money
from penstock.kube.access import Access
from penstock.kube.node_selection import ClusterSite, NodeSelection
from tests.config.tables import levels, stated
from tests.conftest import ROOT

RENTED = {"name": "rented", "gpu": "A100", "price": {"list": 2}}
SHAPED = {"name": "shaped", "gpu": "A100", "shapes": [{"gpus_per_node": 8, "price": {"list": 2}}]}
OWNED = {"name": "owned", "gpu": "A100", "term": "owned", "gpus_per_node": 8, "nodes": 4, "price": {}}
IN_CLUSTER = {**RENTED, "name": "pods", "kubernetes": {"tolerations": [{}]}}
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
BY_NODE = {
    **RENTED,
    "name": "nodes",
    "node_type": "p4d.24xlarge",
    "rent": {"way": "karpenter", "node_class": NODE_CLASS, "taints": [{"key": "gpu"}]},
}
BY_MACHINE = {
    **RENTED,
    "name": "machines",
    "rent": {"way": "cluster_api", "deployment": "a100", "namespace": "machines", "management": {}},
}
WARM = {**RENTED, "name": "warm", "warm": {"nodes": 1, "budget": "org"}}
#: Something at every level, with no more keys than must be there.
SITES: dict[str, Any] = {
    "sites": [
        {
            "name": "cluster",
            "front_door": True,
            "kubernetes": {},
            "maps": {},
            "offers": [IN_CLUSTER, BY_NODE, BY_MACHINE],
            "egress": [{"per_gb": 1}],
        },
        {
            "name": "transient",
            "driver": "kubernetes",
            "cluster": {"class": "gpu", "version": "v1.35.0", "fee": 1, "budget": "org", "management": {}},
            "offers": [RENTED],
        },
        {
            "name": "here",
            "local": {},
            "offers": [RENTED, SHAPED, OWNED, {**RENTED, "name": "more", "extras": {}}, WARM],
        },
        {"name": "worker", "kueue": {"manager": "queues", "cluster": "east"}, "offers": [RENTED]},
    ],
    "kueue": [{"name": "queues"}],
    "rates": [{"currency": "EUR", "rate": 1, "dated": "2026-08-22"}],
    "data": [{"name": "x", "size": "1GB", "site": "here"}],
    "data_rules": [{"class": "public"}],
    "caps": [{"scope": "org", "per_month": 1}],
    "teams": [{"name": "vision"}],
    "faults": [{"at": "1h", "what": "here", "lasts": "1h"}],
    "policy": {},
    "policy_config_map": {"site": "cluster", "name": "rules"},
}
JOB: dict[str, Any] = {"command": "x", "gpus": 1, "gpu": [{"model": "A"}], "scaling": [{"gpus": 2, "speed": 2}]}
LEVELS = {place: row for place, row in levels("", FileSection) if place != "sites.offers.shapes.price"}  # "as above"
JOB_LEVELS = dict(levels("", JobSection))


def sites(text: str) -> SitesFile:
    return parse_sites(text.encode(), "s.yaml")


def default(says: str) -> Any:
    """The value that a table states at its beginning: `5m`; None if it says it in words."""
    match = re.match("`([^`]+)`", says)
    return None if match is None else yaml.load(match[1], yaml.BaseLoader)


def with_key(base: dict[str, Any], place: str, key: str, value: Any) -> Iterator[dict[str, Any]]:
    """The file with one key more, at each of the levels of that place in turn."""
    for path in paths(base, place.split(".") if place else []):
        made = copy.deepcopy(base)
        level: Any = made
        for step in path:
            level = level[step]
        level[key] = value
        yield made


def paths(level: Any, steps: list[str]) -> Iterator[list[Any]]:
    if isinstance(level, list):
        for k, item in enumerate(level):
            yield from ([k, *rest] for rest in paths(item, steps))
    elif not steps:
        yield []
    elif steps[0] in level:
        yield from ([steps[0], *rest] for rest in paths(level[steps[0]], steps[1:]))


def check(parse: Any, base: dict[str, Any], place: str, key: str, value: Any) -> None:
    """Wherever the key may stand, its default changes nothing; and it may stand somewhere."""
    fitting = 0
    for made in with_key(base, place, key, value):
        try:
            read = parse(json.dumps(made))
        except BadInput:
            continue
        assert read == parse(json.dumps(base)), f"{place}.{key}"
        fitting += 1
    assert fitting, f"{place}.{key} may stand nowhere"


@pytest.mark.parametrize("place", LEVELS, ids=lambda place: place or "file")
def test_each_default_that_sites_md_states_is_the_codes(place: str) -> None:
    for key, says in stated("sites.md", place or "The file").items():
        if default(says) is not None:
            check(sites, SITES, place, key, default(says))


@pytest.mark.parametrize("place", JOB_LEVELS, ids=lambda place: place or "job")
def test_each_default_that_jobs_md_states_is_the_codes(place: str) -> None:
    for key, says in stated("jobs.md", place or "The job").items():
        if default(says) is not None:
            check(lambda text: parse_job(text.encode(), "j"), JOB, place, key, default(says))


@pytest.mark.parametrize(
    ("document", "title", "row"),
    [
        *(("sites.md", place or "The file", row) for place, row in LEVELS.items()),
        *(("jobs.md", place or "The job", row) for place, row in JOB_LEVELS.items()),
    ],
)
def test_each_key_states_its_default_or_that_it_is_needed(document: str, title: str, row: type[Section]) -> None:
    says = stated(document, title)
    for field in msgspec.structs.fields(row):
        assert (says[field.encode_name] == "needed") == field.required, field.encode_name
        usual = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if usual not in (msgspec.NODEFAULT, None, (), {}) and not isinstance(usual, Section):
            assert default(says[field.encode_name]) is not None, f"{field.encode_name} is {usual!r} if left out"


# --- the smallest file ------------------------------------------------------------------------------------------------

SMALLEST = ROOT / "examples" / "cluster.yaml"


def test_a_cluster_with_a_rented_offer_needs_name_gpu_price_and_a_way_to_reach_it() -> None:
    """Held by these defaults: whole nodes, begun hours, ten minutes to stop, and a cap that is soft and said to be."""
    offer = Offer(
        id="east/h100",
        site="east",
        term="on_demand",
        shapes=(NodeShape(gpus=8, list_per_hour=money("23.60")),),
        gpu_model="H100",
        sold_by="attempt",
        billing_step_ms=HOUR,
        kill_ms=10 * MINUTE,
        guarantee="none",
    )
    made = read_sites(str(SMALLEST))
    assert (made.currency, made.sites, made.kubernetes, made.notes) == (
        "USD",
        (Site("east", (offer,), has=("a Kubernetes cluster", "architecture amd64")),),
        (("east", ClusterSite(Access(kubeconfig="~/.kube/east"), places=(("east/h100", NodeSelection()),))),),
        ("east/h100 has no guarantee: a cap holds there only while Penstock runs.",),
    )


def test_no_key_of_the_smallest_file_can_be_left_out() -> None:
    smallest = yaml.load(SMALLEST.read_text("utf-8"), yaml.BaseLoader)
    for place, key in [("sites", "name"), ("sites.offers", "name"), ("sites.offers", "gpu"), ("sites.offers", "price")]:
        made = copy.deepcopy(smallest)
        level = made["sites"][0] if place == "sites" else made["sites"][0]["offers"][0]
        del level[key]
        with pytest.raises(BadInput, match=f"the key '{key}' is missing"):
            sites(json.dumps(made))
    del smallest["sites"][0]["kubernetes"]
    assert sites(json.dumps(smallest)).kubernetes == ()  # a site for simulations: `penstock up` refuses it


def test_a_spot_offer_without_a_bound_stays_ineligible() -> None:
    text = SMALLEST.read_text("utf-8").replace("gpu: H100", "term: spot, gpu: H100")
    assert sites(text).notes == (
        "east/h100 is not eligible: a spot price without 'most' has no bound, and no cap could hold.",
    )
