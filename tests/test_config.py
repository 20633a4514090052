"""The sites file: human units in, exact values out; whatever is wrong is one sentence that says where."""

import dataclasses
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import LocalSite, PolicyOptions, SitesFile, parse_sites, read_sites
from penstock.config.convert import keys_of
from penstock.config.scalars import SCALARS
from penstock.config.sections import FileSection
from penstock.config.teams import Team
from penstock.core.errors import BadInput
from penstock.core.model.governance import Governance
from penstock.core.model.types import DataRule, DataSet, EgressTier, Extras, NodeShape, Offer, Quoted, Site
from penstock.core.units import DAY, HOUR, MINUTE, money
from penstock.policy.file import governed, read_policy
from tests.config.tables import levels, stated
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*sites*.yaml"))
EXAMPLE = (ROOT / "examples" / "sites.yaml").read_text("utf-8")
DOC = (ROOT / "docs" / "sites.md").read_text("utf-8")


LEVELS = dict(levels("", FileSection))


OWNED = "{name: a, term: owned, gpu: A100, gpus_per_node: 8, nodes: 4}"
RENTED = "{name: b, term: on_demand, gpu: A100, gpus_per_node: 8, billing_step: 1s, price: {per: gpu_hour, list: 2.50}}"


def site(*offers: str, more: str = "") -> str:
    """A file of one site, its offers from line 5 on."""
    return f"currency: EUR\nsites:\n- name: lab{more}\n  offers:\n" + "".join(f"  - {offer}\n" for offer in offers)


def parsed(text: str) -> SitesFile:
    return parse_sites(text.encode(), "s.yaml")


def offer(text: str) -> Offer:
    return parsed(site(text)).sites[0].offers[0]


def shape(price: str, *, gpus: int = 8) -> NodeShape:
    spec = f"{{name: b, term: on_demand, gpu: A100, gpus_per_node: {gpus}, billing_step: 1s, price: {price}}}"
    return offer(spec).shapes[0]


def refused(text: str | bytes) -> str:
    with pytest.raises(BadInput) as caught:
        parse_sites(text if isinstance(text, bytes) else text.encode(), "s.yaml")
    return str(caught.value)


# --- what the file says ----------------------------------------------------------------------------------------------


WHOLE_FILE = """
currency: USD
sites:
  - name: cloud
    location: "NO"
    operator: Cloud Inc.
    law: US
    cloud: ours
    region: north-1
    carbon_g_per_kwh: 30
    front_door: true
    egress:
      - {up_to: 10TB, per_gb: 0.09}
      - {per_gb: 0.05}
    ingress_per_gb: 0.01
    driver: local
    local: {notice: 1s, grace: 3s, lost_after: [40s, 0s], folder: /srv/jobs, pass_env: [HF_HOME], log_limit: 1MiB,
            memory: 64GiB, processes: 500}
    offers:
      - name: small-and-large
        term: spot
        gpu: H100
        mig: 1g.10gb
        family: mixed
        shapes:
          - {gpus_per_node: 8, nodes: 3, node_type: big, price: {per: node_hour, list: 20, contract: 19, most: 40}}
          - {gpus_per_node: 1, price: {per: gpu_hour, list: 3, most: 6}}
        sold_by: attempt
        start: 1h30m
        lost_every: 20h
        limit_gpus: 64
        billing_step: 1m
        billing_minimum: 10m
        kill: 90s
        guarantee: expire_after
        extras: {disk_per_hour: 0.1, address_per_hour: 0.005, cluster_per_hour: 0.2, nat_per_gb: 0.05, launch_fee: 1}
data:
  - {name: scans, size: 200GB, site: cloud, class: personal, folder: /data/scans, teams: [vision]}
  - {name: odds, size: 1.5KiB, site: cloud}
data_rules:
  - {class: personal, sites: [cloud], locations: ["NO"], laws: [US]}
  - {class: public, sites: ["*"]}
caps:
  - {scope: org, per_month: 1500.25}
  - {scope: "team:vision", per_hour: 12}
teams:
  - name: speech
    namespaces: [speech, cloud/speech-dev]
    projects: [text]
    classes: [training]
    highest_priority: 7
    queued_jobs: 50
    journal_per_day: 1GB
  - {name: vision}
faults:
  - {at: 2d, what: cloud, lasts: 30m}
policy:
  cost_of_delay: 7.50
  longest_wait: 2h
  come_home: false
  share_nodes: false
  stay: 1m
  least_left: 2m
  least_lease: 3m
  preempt: true
  displace: true
  when_exhausted: move_home
  hard_caps: true
time_zone: Europe/Oslo
"""


def test_every_part_of_a_site_can_be_said() -> None:
    shapes = (
        NodeShape(gpus=1, list_per_hour=money("3"), most_per_hour=money("6")),
        NodeShape(8, 3, money("20"), money("19"), money("40"), 0, "big"),
    )
    made = Offer(
        id="cloud/small-and-large",
        site="cloud",
        term="spot",
        shapes=shapes,
        gpu_model="H100",
        mig_profile="1g.10gb",
        sold_by="attempt",
        start_ms=90 * MINUTE,
        loss_ppm_per_hour=50_000,
        limit_gpus=64,
        extras=Extras(money("0.1"), money("0.005"), money("0.2"), money("0.05"), money("1")),
        billing_step_ms=MINUTE,
        billing_minimum_ms=10 * MINUTE,
        kill_ms=90_000,
        guarantee="expire_after",
        family="mixed",
    )
    assert parsed(WHOLE_FILE) == SitesFile(
        currency="USD",
        sites=(
            Site(
                id="cloud",
                offers=(made,),
                location="NO",
                operator="Cloud Inc.",
                law="US",
                grid_g_per_kwh=30,
                egress=(EgressTier(10_000, money("0.09")), EgressTier(None, money("0.05"))),
                ingress_per_gb=money("0.01"),
                front_door=True,
                cloud="ours",
                region="north-1",
            ),
        ),
        data=(DataSet("scans", 200_000_000_000, "cloud", "personal"), DataSet("odds", 1536, "cloud")),
        data_rules=(DataRule("personal", ("cloud",), ("NO",), ("US",)), DataRule("public", ("*",))),
        caps=(("org", money("1500.25"), None), ("team:vision", None, money("12"))),
        cap_sources=(("org", "s.yaml:44"), ("team:vision", "s.yaml:45")),
        faults=((2 * DAY, "cloud", 30 * MINUTE),),
        local=(
            (
                "cloud",
                LocalSite(1_000, 3_000, (40_000, 0), "/srv/jobs", ("HF_HOME",), 1 << 20, 64 << 30, processes=500),
            ),
        ),
        data_folders=(("scans", "/data/scans"),),
        policy=PolicyOptions(
            money("7.50"),
            120 * MINUTE,
            False,
            False,
            MINUTE,
            2 * MINUTE,
            3 * MINUTE,
            True,
            True,
            "move_home",
            True,
            hard_caps_source="s.yaml:68",
        ),
        time_zone="Europe/Oslo",
        teams=(
            Team("speech", ("speech", "cloud/speech-dev"), ("text",), ("training",), 7, 50, 1_000_000_000),
            Team("vision"),
        ),
        data_teams=(("scans", ("vision",)),),
        moved=(("policy", 57, 68), ("caps", 43, 45), ("teams", 46, 54), ("data_rules", 40, 42)),
    )


def test_a_site_may_be_rehearsed() -> None:
    assert parsed(site(OWNED, more="\n  driver: rehearsal")).rehearsed == ("lab",)


def test_no_part_of_the_model_is_out_of_the_files_reach() -> None:
    """A field that the core gains has its default in all of these until the file can say it."""
    seen: dict[str, set[object]] = {}
    for file in (parsed(WHOLE_FILE), parsed(EXAMPLE)):
        for noun in nouns(file):
            for field in dataclasses.fields(noun):
                seen.setdefault(f"{type(noun).__name__}.{field.name}", set()).add(getattr(noun, field.name))
    assert {name for name, values in seen.items() if len(values) < 2} == {
        "SitesFile.maps",  # of Kubernetes sites: tests/kube/test_portability.py
        "SitesFile.kubernetes",  # of sites that are clusters: tests/config/test_clusters.py
        "SitesFile.kueue",  # of Kueues: tests/config/test_kueue.py
        "SitesFile.queues",
        "Site.only",
        "Site.has",
        "Offer.has",  # of clusters: tests/kube/test_job_needs.py
        "Offer.closed",  # tests/live/test_site_changes.py
        "Offer.warm",  # tests/config/test_pools.py
        "Site.cluster",  # tests/config/test_transient.py
        "Offer.renewable",  # of nodes that are rented one by one: tests/config/test_clusters.py
        "SitesFile.policy_config_map",  # of a home cluster: tests/config/test_clusters.py
        "SitesFile.rehearsed",
        "SitesFile.governance",  # of a policy file: tests/policy/test_file.py
        "DataRule.source",  # likewise
        *(f"Governance.{field.name}" for field in dataclasses.fields(Governance)),
        *ONLY_ONE_SAID,
    }


#: The example has one rate and no local site.
ONLY_ONE_SAID = (
    *("Quoted.currency", "Quoted.rate_ppm", "Quoted.margin_ppm", "Quoted.dated"),
    *("LocalSite.notice_ms", "LocalSite.grace_ms", "LocalSite.losses_ms"),
    *("LocalSite.folder", "LocalSite.pass_env", "LocalSite.log_bytes", "LocalSite.memory", "LocalSite.processes"),
)


def nouns(value: object) -> Iterator[Any]:
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from nouns(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from nouns(item)


def test_an_owned_offer_needs_no_price_and_is_never_billed() -> None:
    assert offer(OWNED) == Offer("lab/a", "lab", "owned", (NodeShape(8, 4),), gpu_model="A100")


def test_the_full_and_the_marginal_price_of_owned_nodes_are_two() -> None:
    made = offer(OWNED[:-1] + ", price: {per: gpu_hour, list: 1.30, marginal: 0.15}}")
    assert made.shapes == (NodeShape(8, 4, list_per_hour=money("10.40"), marginal_per_hour=money("1.20")),)


def test_shapes_come_smallest_first_and_share_a_price_per_gpu() -> None:
    row = "{name: b, term: on_demand, gpu: H100, billing_step: 1s, price: {per: gpu_hour, list: 3}, shapes: SHAPES}"
    made = offer(row.replace("SHAPES", "[{gpus_per_node: 8}, {gpus_per_node: 1}]"))
    assert made.shapes == (NodeShape(1, list_per_hour=money("3")), NodeShape(8, list_per_hour=money("24")))


def test_words_of_yaml_are_words_here() -> None:
    assert parsed(site(OWNED, more="\n  location: NO\n  operator: 1.10")).sites[0].location == "NO"
    assert parsed(site(OWNED, more="\n  location: NO\n  operator: 1.10")).sites[0].operator == "1.10"


def test_prices_are_rounded_up_once_and_not_per_gpu() -> None:
    assert shape("{per: gpu_hour, list: 3.4291225}").list_per_hour == 27_432_980
    assert shape("{per: gpu_hour, list: 0.0000001}").list_per_hour == 1


def test_foreign_prices_are_converted_up_and_keep_their_rate() -> None:
    rates = "rates: [{currency: USD, rate: 0.8765432, margin: 1.5%, dated: 2026-08-22}]\n"
    made = parsed(rates + site(RENTED, more="\n  currency: USD\n  ingress_per_gb: 1")).sites[0]
    quoted = Quoted("USD", 876_544, 15_000, "2026-08-22")
    exact = Fraction(876_544, 10**6) * Fraction(1_015, 1_000)
    assert made.offers[0].quoted == quoted
    assert made.offers[0].shapes[0].list_per_hour == -(-20 * 10**6 * exact // 1) == 17_793_844
    assert made.ingress_per_gb == -(-(10**6) * exact // 1) == 889_693


def test_the_most_of_spot_is_the_dearest_on_demand_price_of_such_a_node_here() -> None:
    spot = RENTED.replace("name: b, term: on_demand", "name: s, term: spot")
    spot = spot.replace("list: 2.50", "list: 1, contract: 0.90, most: on_demand")
    other = RENTED.replace("name: b", "name: c").replace("2.50", "2.75, contract: 2.60")
    small = RENTED.replace("name: b", "name: d").replace("gpus_per_node: 8", "gpus_per_node: 4").replace("2.50", "9")
    model = RENTED.replace("name: b", "name: e").replace("A100", "H100").replace("2.50", "9")
    made = parsed(site(spot, RENTED, other, small, model)).sites[0].offers[0]
    assert made.shapes[0] == NodeShape(8, None, money("8"), money("7.20"), money("22"))


def test_without_a_measured_end_a_rented_offer_is_soft_and_slow_to_stop() -> None:
    assert (offer(RENTED).kill_ms, offer(RENTED).guarantee) == (10 * MINUTE, "none")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("5m", 5 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1h 30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("2d", 2 * DAY),
        ("250ms", 250),
        ("0s", 0),
        ("1d1h1m1s1ms", DAY + HOUR + MINUTE + 1_001),
    ],
)
def test_durations_are_written_as_people_do(text: str, ms: int) -> None:
    assert offer(OWNED[:-1] + f", start: {text}}}").start_ms == ms


def test_what_is_probably_not_meant_is_noted() -> None:
    spot = RENTED.replace("name: b, term: on_demand", "name: s, term: spot")
    rest = "data: [{name: x, size: 1GB, site: lab, class: secret}]\ndata_rules: [{class: public, locations: [DE]}]\n"
    assert parsed(site(RENTED, spot) + rest).notes == (
        "lab/b has no guarantee: a cap holds there only while Penstock runs.",
        "lab/s is not eligible: a spot price without 'most' has no bound, and no cap could hold.",
        "Data class 'secret' has no rule: its data stays where it lives.",
        "The rule for data class 'public' names location 'DE', and no site has it.",
    )


# --- what is wrong with it -------------------------------------------------------------------------------------------

AT_OFFER = "s.yaml, line 5, sites[0].offers[0]"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "s.yaml: the file is empty; it needs at least 'currency' and 'sites' (examples/sites.yaml shows how)."),
        (
            "# none",
            "s.yaml: the file is empty; it needs at least 'currency' and 'sites' (examples/sites.yaml shows how).",
        ),
        ("- 1", "s.yaml: this must be a group of keys; it is a list."),
        ("currency: EUR", "s.yaml: the key 'sites' is missing."),
        ("currency: EUR\nsites:", "s.yaml, line 2, sites: this must be a list; it is empty."),
        ("currency: EUR\nsites: []", "s.yaml, line 2, sites: this list is empty; at least one site is needed."),
        ("currency: EUR\nsites: [lab]", "s.yaml, line 2, sites[0]: this must be a group of keys; it is a word."),
        ("a: [1\nb: 2", "s.yaml, line 2: not YAML (did not find expected ',' or ']')."),
        ("a: b\n\tc: d", "s.yaml, line 2: not YAML (found a tab character that violates indentation)."),
        ("a: 1\n---\nb: 2", "s.yaml, line 2: not YAML (but found another document)."),
        ("a: 1\nb: \x07", "s.yaml, line 2: not YAML (a control character)."),
        (b"a: 1\nb: \xe4", "s.yaml, line 2: not UTF-8 text; save the file as UTF-8."),
        (b'a: "\\UFFFFFFFF"', "s.yaml, line 1: not YAML (found invalid Unicode character escape code)."),
        ("[" * 2_000, "s.yaml: nested too deeply for a sites file."),
        (b" " * 1_000_001, "s.yaml: more than 1,000,000 bytes; this cannot be a sites file."),
        (
            "sites: &x []\ndata: *x",
            (
                "s.yaml: 2 errors.\n"
                "s.yaml, line 1, sites: this list is empty; at least one site is needed.\n"
                "s.yaml, line 2, data: YAML aliases (*name) are not understood; write it out."
            ),
        ),
        ("sites: !py 1", "s.yaml, line 1, sites: the YAML tag '!py' means nothing here; leave it out."),
        (
            "{sites: [], [1]: 2}",
            (
                "s.yaml: 2 errors.\n"
                "s.yaml: a key must be a word.\n"
                "s.yaml, line 1, sites: this list is empty; at least one site is needed."
            ),
        ),
        (
            "sites: !x 1\ncurrency: EUR\nsites: 3",
            (
                "s.yaml: 2 errors.\n"
                "s.yaml, line 1, sites: the YAML tag '!x' means nothing here; leave it out.\n"
                "s.yaml, line 1, sites: this key is here twice; the second is in line 3."
            ),
        ),
        (
            "currency: eur\nsites: []",
            (
                "s.yaml: 2 errors.\n"
                "s.yaml, line 1, currency: 'eur' is not a currency code: three capital letters like EUR.\n"
                "s.yaml, line 2, sites: this list is empty; at least one site is needed."
            ),
        ),
        ("sits: 1", "s.yaml, line 1: unknown key 'sits'; did you mean 'sites'?"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str | bytes, sentence: str) -> None:
    assert refused(text) == sentence


NAME = "a name: up to 63 letters, digits, '-', '_' and '.', without spaces or slashes"
NO_FAULT = "is neither a site nor a standing node; write SITE, or SITE/OFFER/NUMBER with numbers from 0"
DURATION = "a duration like 90s, 5m, 1h30m or 2d, at most ten years"
INTERVAL = "a duration above zero like 90s, 5m, 1h30m or 2d, at most ten years"
WHOLE = "a whole number from 1 to 1,000,000"
AMOUNT = "an amount of money like 1500 or 12.50, from 0 to 1,000,000,000,000"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "gpus_per_node",
            "gpu_per_node",
            " (lab/b): unknown key 'gpu_per_node'; did you mean 'gpus_per_node'?",
        ),
        (
            "per: gpu_hour",
            "colour: red, per: gpu_hour",
            ".price (lab/b): unknown key 'colour'; known here: per, list, contract, most, marginal.",
        ),
        ("name: b, ", "", " (lab): the key 'name' is missing."),
        (
            "name: b",
            "name: a/b",
            f".name (lab/a/b): 'a/b' is not {NAME}.",
        ),
        ("term: on_demand", "term: on-demand", ".term (lab/b): unknown word 'on-demand'; did you mean 'on_demand'?"),
        (
            "term: on_demand",
            "term: rent",
            ".term (lab/b): unknown word 'rent'; known here: owned, reserved, on_demand, spot.",
        ),
        ("term: on_demand", "term: [spot]", ".term (lab/b): this must be a word; it is a list."),
        (
            "billing",
            "guarantee: sure, billing",
            (
                ".guarantee (lab/b): unknown word 'sure'; known here: max_run_time, expire_after, timer, none, job, "
                "watchman."
            ),
        ),
        ("gpu_hour", "hour", ".price.per (lab/b): unknown word 'hour'; did you mean 'gpu_hour'?"),
        ("gpu: A100", "gpu: ''", ".gpu (lab/b): '' is not a text: one line of up to 200 characters."),
        ("gpu: A100", "gpu: ", ".gpu (lab/b): this must be a text: one line of up to 200 characters; it is empty."),
        (
            "gpu: A100",
            "gpu: [A100]",
            ".gpu (lab/b): this must be a text: one line of up to 200 characters; it is a list or has keys.",
        ),
        ("gpu: A100", "gpu: A100, mig: half", ".mig (lab/b): 'half' is not a MIG profile like 1g.10gb."),
        ("node: 8", "node: 0", f".gpus_per_node (lab/b): '0' is not {WHOLE}."),
        ("node: 8", "node: -8", f".gpus_per_node (lab/b): '-8' is not {WHOLE}."),
        ("node: 8", "node: 7.5", f".gpus_per_node (lab/b): '7.5' is not {WHOLE}."),
        ("node: 8", "node: 1e99", f".gpus_per_node (lab/b): '1e99' is not {WHOLE}."),
        ("node: 8", "node: " + "9" * 99, f".gpus_per_node (lab/b): '{'9' * 59}…' is not {WHOLE}."),
        ("2.50", "-2.50", f".price.list (lab/b): '-2.50' is not {AMOUNT}."),
        ("2.50", ".nan", f".price.list (lab/b): '.nan' is not {AMOUNT}."),
        ("2.50", "$2.50", f".price.list (lab/b): '$2.50' is not {AMOUNT}."),
        ("2.50", "'2,50'", f".price.list (lab/b): '2,50' is not {AMOUNT}."),
        ("2.50", "1000000000001", f".price.list (lab/b): '1000000000001' is not {AMOUNT}."),
        (
            "2.50",
            "125000001",  # for each of 8 GPUs
            ".price (lab/b): this is 1,000,000,008 of our currency per node and hour; at most 1,000,000,000.",
        ),
        ("2.50", "0", ".price (lab/b): a rented node costs something; its price is zero."),
        (
            "list: 2.50",
            "contract: 2",
            ".price (lab/b): the key 'list' is missing; it is what the provider asks of everyone.",
        ),
        (
            ", price: {per: gpu_hour, list: 2.50}",
            "",
            " (lab/b): the key 'price' is missing; an offer that is on_demand has one.",
        ),
        ("2.50", "2.50, most: 2.40", ".price.most (lab/b): the most that can be charged is less than the price."),
        (
            "2.50",
            "2.50, most: much",
            (
                ".price.most (lab/b): 'much' is not an amount of money like 12.50, from 0 to 1,000,000,000,000, "
                "or the word on_demand."
            ),
        ),
        ("term: on_demand", "term: spot", None),
        (
            "2.50",
            "2.50, marginal: 1",
            ".price.marginal (lab/b): 'marginal' is for owned and reserved offers, and this one is on_demand.",
        ),
        ("1s", "0s", f".billing_step (lab/b): '0s' is not {INTERVAL}."),
        ("billing", "start: 5, billing", f".start (lab/b): '5' is not {DURATION}."),
        ("billing", "start: soon, billing", f".start (lab/b): 'soon' is not {DURATION}."),
        ("billing", "start: 30m1h, billing", f".start (lab/b): '30m1h' is not {DURATION}."),
        ("billing", "start: 0.5ms, billing", f".start (lab/b): '0.5ms' is not {DURATION}."),
        ("billing", "start: 3651d, billing", f".start (lab/b): '3651d' is not {DURATION}."),
        (
            "billing",
            "lost_every: 59s, billing",
            ".lost_every (lab/b): a node that is lost within a minute runs nothing; write 1m or more.",
        ),
        (
            "billing",
            "limit_gpus: 7, billing",
            ".limit_gpus (lab/b): the smallest node has 8 GPUs, so a limit of 7 leaves none.",
        ),
        (
            "billing",
            "shapes: [{gpus_per_node: 8}], billing",
            ".gpus_per_node (lab/b): with 'shapes', 'gpus_per_node' belongs to each of them.",
        ),
        (
            "gpus_per_node: 8",
            "shapes: []",
            " (lab/b): the key 'gpus_per_node' is missing, or 'shapes' with one for each size of node.",
        ),
        (
            "gpus_per_node: 8",
            "shapes: [{gpus_per_node: 8}, {gpus_per_node: 8}]",
            ".shapes[1] (lab/b): a shape of 8 GPUs is here already; make an offer of this one.",
        ),
        (
            "gpus_per_node: 8",
            "shapes: [{gpus_per_node: 8, colour: red}]",
            ".shapes[0] (lab/b): unknown key 'colour'; known here: gpus_per_node, nodes, node_type, price.",
        ),
    ],
)
def test_a_rented_offer_that_makes_no_sense_is_refused(old: str, new: str, sentence: str | None) -> None:
    assert old in RENTED
    text = site(RENTED.replace(old, new))
    if sentence is None:  # spot without `most` is allowed, and noted
        assert "not eligible" in parsed(text).notes[0]
    else:
        assert refused(text) == AT_OFFER + sentence


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (", nodes: 4", "", " (lab/a): the key 'nodes' is missing; what is owned has a number of nodes."),
        (
            " gpus_per_node: 8,",
            "",
            " (lab/a): the key 'gpus_per_node' is missing, or 'shapes' with one for each size of node.",
        ),
        (
            "nodes: 4",
            "nodes: 4, kill: 1m",
            ".kill (lab/a): 'kill' is for rented offers; what is owned is paid for anyway.",
        ),
        (
            "nodes: 4",
            "nodes: 4, price: {per: gpu_hour, most: 2}",
            ".price.most (lab/a): 'most' is for rented offers, and this one is owned.",
        ),
        (
            "gpus_per_node: 8, nodes: 4",
            "shapes: [{gpus_per_node: 8, nodes: 4}, {gpus_per_node: 4, nodes: 4}]",
            ".shapes (lab/a): an offer that is owned has one size of node; make a further offer of each other.",
        ),
    ],
)
def test_a_standing_offer_that_makes_no_sense_is_refused(old: str, new: str, sentence: str) -> None:
    assert refused(site(OWNED.replace(old, new))) == AT_OFFER + sentence


def test_nodes_of_several_sizes_cannot_share_a_price_per_node() -> None:
    row = RENTED.replace("gpus_per_node: 8", "shapes: [{gpus_per_node: 8}, {gpus_per_node: 1}]")
    assert refused(site(row.replace("gpu_hour", "node_hour"))) == (
        f"{AT_OFFER}.price (lab/b): nodes of several sizes cannot share a price per node_hour; give each its own."
    )


def test_a_most_of_on_demand_needs_such_an_offer() -> None:
    row = RENTED.replace("on_demand", "spot").replace("2.50", "2.50, most: on_demand")
    assert refused(site(row)) == (
        f"{AT_OFFER}.price.most (lab/b): 'lab' has no on_demand offer of 8 x A100 to take it from; write an amount."
    )


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("\n  front_door: yes", "line 4, sites[0].front_door (lab): 'yes' is not true or false."),
        (
            "\n  carbon_g_per_kwh: 5001",
            "line 4, sites[0].carbon_g_per_kwh (lab): '5001' is not a whole number from 0 to 5,000.",
        ),
        (
            "\n  currency: USD",
            "line 4, sites[0].currency (lab): there is no rate for USD; add one to 'rates', with its date.",
        ),
        (
            "\n  egress: [{per_gb: 1, up_to: 1GB}]",
            "line 4, sites[0].egress[0] (lab): the last tier must have no 'up_to', or all beyond it would be free.",
        ),
        (
            "\n  egress: [{per_gb: 1}, {per_gb: 1}]",
            "line 4, sites[0].egress[0] (lab): only the last tier may be without 'up_to'.",
        ),
        (
            "\n  egress:\n  - {per_gb: 1, up_to: 2GB}\n  - {per_gb: 1, up_to: 1GB}\n  - {per_gb: 1}",
            "line 6, sites[0].egress[1].up_to (lab): tiers rise, each by whole GB; the smallest comes first.",
        ),
        (
            "\n  egress:\n  - {per_gb: 1, up_to: 1.5GB}\n  - {per_gb: 1}",
            "line 5, sites[0].egress[0].up_to (lab): tiers rise, each by whole GB; the smallest comes first.",
        ),
    ],
)
def test_a_site_that_makes_no_sense_is_refused(more: str, sentence: str) -> None:
    assert refused(site(OWNED, more=more)) == f"s.yaml, {sentence}"


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        (f"- {{name: lab, offers: [{OWNED}]}}", "sites[1].name (lab): 'lab' is taken by sites[0] already."),
        ("- {name: b, offers: []}", "sites[1].offers (b): this list is empty; a site needs at least one offer."),
        ("- {name: b}", "sites[1] (b): the key 'offers' is missing."),
        (
            f"  - {OWNED}",
            "sites[0].offers[1].name (lab/a): 'a' is taken by sites[0].offers[0] already.",
        ),
        ("data: [{name: x, size: 1GB, site: labb}]", "data[0].site (x): there is no site 'labb'; did you mean 'lab'?"),
        (
            "data: [{name: x, size: 0GB, site: lab}]",
            "data[0].size (x): '0GB' is not a size above zero like 500MB, 200GB or 1.5TB, at most 1,000PB.",
        ),
        (
            "data: [{name: x, size: 12, site: lab}]",
            "data[0].size (x): '12' is not a size above zero like 500MB, 200GB or 1.5TB, at most 1,000PB.",
        ),
        (
            "data_rules: [{class: a, sites: [moon]}]",
            "data_rules[0].sites[0]: there is no site 'moon'; known here: *, lab.",
        ),
        ("data_rules: [{class: a}, {class: a}]", "data_rules[1].class: 'a' is taken by data_rules[0] already."),
        ("data_rules: [{class: a, laws: EU}]", "data_rules[0].laws: this must be a list; it is a word."),
        (
            "caps: [{scope: everyone, per_month: 1}]",
            "caps[0].scope: 'everyone' is not a scope: org, team:NAME or project:NAME.",
        ),
        ("caps: [{scope: org}]", "caps[0]: the key 'per_month' is missing, or 'per_hour'; a cap needs an amount."),
        (
            "caps: [{scope: org, per_hour: 1}, {scope: org, per_hour: 1}]",
            "caps[1].scope: 'org' is taken by caps[0] already.",
        ),
        (
            "rates: [{currency: EUR, rate: 1, dated: 2026-08-22}]",
            "rates[0].currency: there is a rate for EUR already, or it is the file's own.",
        ),
        (
            "rates: [{currency: USD, rate: 0, dated: 2026-08-22}]",
            "rates[0].rate: '0' is not an exchange rate above zero like 0.92, at most 1,000,000.",
        ),
        (
            "rates: [{currency: USD, rate: 1, dated: 2026-02-30}]",
            "rates[0].dated: '2026-02-30' is not a date like 2026-08-22.",
        ),
        (
            "rates: [{currency: USD, rate: 1, dated: 2026-02-20, margin: 2}]",
            "rates[0].margin: '2' is not a percentage like 2% or 1.5%, from 0% to 100%.",
        ),
        (
            "faults: [{at: 1h, what: lab/a/4, lasts: 1h}]",
            f"faults[0].what: 'lab/a/4' {NO_FAULT}.",
        ),
        (
            "policy: {least_lease: 999ms}",
            "policy.least_lease: leases this short leave no time for anything but renewing; write 1s or more.",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(rest: str, sentence: str) -> None:
    assert refused(site(OWNED) + rest) == f"s.yaml, line 6, {sentence}"


def test_odd_words_are_escaped_and_cut_in_the_sentence() -> None:
    """A key of the file once stood raw in the place: a control character or a page of text reached the terminal."""
    assert refused(site(OWNED) + '"\\e[2J": 1') == (
        "s.yaml, line 6: unknown key '\\x1b[2J'; known here: sites, currency, rates, data, data_rules, caps, teams, "
        "faults, policy, policy_config_map, kueue, time_zone."
    )
    assert refused(site(OWNED) + f'"\\a{"x" * 500}": !t 1').splitlines()[1:] == [
        f"s.yaml, line 6, \\x07{'x' * 128}…: the YAML tag '!t' means nothing here; leave it out.",
        (
            f"s.yaml, line 6: unknown key '\\x07{'x' * 58}…'; known here: sites, currency, rates, data, data_rules, "
            "caps, teams, faults, policy, policy_config_map, kueue, time_zone."
        ),
    ]


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(BadInput, match=f"^{re.escape(f'{path}: cannot be read ({why}).')}$"):
            read_sites(str(path))
    with pytest.raises(BadInput, match="embedded null byte"):
        read_sites("a\0b")


# --- whatever comes --------------------------------------------------------------------------------------------------

KEYS = sorted({key for row in LEVELS.values() for key in keys_of(row)})
SCALAR = st.sampled_from(["1", "8", "0", "-1", "lab", "owned", "spot", "1h", "5GB", "2%", "", "~", ".inf", "*", "EUR"])
JUNK = st.recursive(
    SCALAR | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=30,
)
WORDS = [match.span() for match in re.finditer(r"[^\s{}\[\],]+", EXAMPLE)]


def tried(raw: bytes) -> None:
    try:
        made = parse_sites(raw, "s.yaml")
    except BadInput as error:
        message = str(error)
    else:
        assert_plain(made)
        return
    for line in message.splitlines():
        assert re.fullmatch(r"(s\.yaml(, line \d+)?(, [^\n]+)?: [^\n]+[.?]|And [\d,]+ more\.)", line)
        assert line.isprintable()


@given(st.binary(max_size=60) | st.text("[]{}:,-?&*!|>'\"%@`#~ \n\tab1<", max_size=60).map(str.encode))
def test_any_bytes_are_a_file_or_bad_input(raw: bytes) -> None:
    tried(raw)


@given(JUNK)
def test_any_keys_and_values_are_a_file_or_bad_input(junk: object) -> None:
    tried(repr(junk).encode("utf-8", "surrogatepass"))  # a literal of Python's lists and dicts is YAML as well


@given(st.sampled_from(WORDS), SCALAR | st.sampled_from(KEYS) | st.text(max_size=5))
def test_the_example_with_any_word_exchanged_is_a_file_or_bad_input(word: tuple[int, int], other: str) -> None:
    tried((EXAMPLE[: word[0]] + other + EXAMPLE[word[1] :]).encode("utf-8", "replace"))


def assert_plain(value: object) -> None:
    """Values must hold plain numbers and words: the journal knows no others, and equal is not enough."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            assert_plain(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            assert_plain(item)
    else:
        assert type(value) in (int, str, bool, type(None)), repr(value)


# --- the documentation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_loads_without_a_note(path: Path) -> None:
    made = read_sites(str(path))
    assert_plain(made)
    governing = governed(made, read_policy(str(path.with_name("policy.yaml")), made))  # the data's rules are there
    assert governing.notes == ()


@pytest.mark.parametrize(("noted", "block"), re.findall(r"(<!-- notes -->\n)?```yaml\n(.*?)```", DOC, re.DOTALL))
def test_each_example_in_the_documentation_loads(noted: str, block: str) -> None:
    assert bool(parsed(block).notes) == bool(noted)


def test_the_documentation_has_each_key_once_and_no_other() -> None:
    for place, row in LEVELS.items():
        if place != "sites.offers.shapes.price":  # "as above"
            assert list(stated("sites.md", place or "The file")) == list(keys_of(row)), (
                f"docs/sites.md, {place or 'The file'}"
            )


def test_every_scalar_in_the_rows_can_be_read() -> None:
    fields = {hint for row in LEVELS.values() for hint in typing.get_type_hints(row).values()}
    parts = fields | {part for hint in fields for part in typing.get_args(hint)}
    assert {part for part in parts if getattr(part, "__module__", "") == "penstock.config.scalars"} <= set(SCALARS)


def test_the_command_line_does_not_pay_for_yaml() -> None:
    code = "import sys, penstock.cli.main; print({'yaml', 'msgspec', 'penstock.config'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
