"""Warm nodes in the sites file: what a row makes, and what is refused in one sentence."""

import pytest

from penstock.config import read_sites
from penstock.config.sites import SitesFile, parse_sites
from penstock.core.errors import BadFile
from penstock.core.model.governance import Window
from penstock.core.model.types import WarmPool
from tests.conftest import ROOT

FILE = """
time_zone: Europe/Berlin
sites:
  - name: cloud
    driver: rehearsal
    offers:
      - {name: big, gpu: H100, gpus_per_node: 8, price: {list: 2}, warm: WARM}
      - name: sizes
        gpu: H100
        price: {list: 2}
        shapes: [{gpus_per_node: 1}, {gpus_per_node: 4}]
        warm: {nodes: 2, gpus: 1, budget: org, forecast: true}
      - {name: own, gpu: H100, term: owned, gpus_per_node: 8, nodes: 1}
"""


def sites(warm: str, more: str = "") -> SitesFile:
    return parse_sites((FILE.replace("WARM", warm) + more).encode(), "s.yaml")


def test_a_pool_has_its_hours_in_the_files_time_zone_and_a_budget() -> None:
    made = sites('{nodes: 1, hours: "8-18", days: [mon, fri], budget: "team:platform"}')
    big, sizes, own = made.sites[0].offers
    hours = Window("08:00-18:00 Europe/Berlin mon,fri", 480, 1080, "Europe/Berlin", (0, 4))
    assert big.warm == WarmPool(1, 8, ("org", "team:platform"), hours, False, "s.yaml:7")
    assert sizes.warm == WarmPool(2, 1, ("org",), None, True, "s.yaml:12")
    assert own.warm is None


@pytest.mark.parametrize(
    ("hours", "minutes"), [("22:30-06:00", (1350, 360)), ("0-24", (0, 1440)), ("8-8:30", (480, 510))]
)
def test_hours_may_have_minutes_and_end_on_the_next_day(hours: str, minutes: tuple[int, int]) -> None:
    warm = sites(f'{{nodes: 1, hours: "{hours}", budget: org}}').sites[0].offers[0].warm
    assert warm is not None
    assert warm.hours is not None
    assert (warm.hours.from_minute, warm.hours.to_minute) == minutes


@pytest.mark.parametrize(
    ("warm", "says"),
    [
        ('{nodes: 1, hours: "18", budget: org}', "'18' are no hours of a day; write them like 8-18, or 22:30-06:00"),
        ('{nodes: 1, hours: "8-25", budget: org}', "'8-25' are no hours of a day"),
        ('{nodes: 1, hours: "8-8", budget: org}', "'8-8' are no hours of a day"),
        ("{nodes: 1, gpus: 4, budget: org}", "no node here has 4 GPUs, only 8"),
        ("{nodes: 5000, budget: org}", "a pool has at most 1,000 nodes"),
        ("{nodes: 1}", "the key 'budget' is missing"),
        ("{nodes: 1, budget: platform}", "a scope: org, team:NAME or project:NAME"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(warm: str, says: str) -> None:
    with pytest.raises(BadFile) as refused:
        sites(warm)
    assert says in str(refused.value)


def test_only_nodes_that_are_rented_one_by_one_can_be_warm() -> None:
    owned = "      - {name: x, gpu: A, term: owned, gpus_per_node: 8, nodes: 1, warm: {nodes: 1, budget: org}}\n"
    pods = "      - {name: y, gpu: A, price: {list: 1}, sold_by: attempt, warm: {nodes: 1, budget: org}}\n"
    with pytest.raises(BadFile) as refused:
        sites("{nodes: 1, budget: org}", owned + pods)
    assert "'warm' is for rented offers; what is owned is paid for anyway" in str(refused.value)
    assert "warm nodes are rented one by one, and here attempts are sold" in str(refused.value)


def test_the_example_keeps_a_node_warm_on_this_machine() -> None:
    made = read_sites(str(ROOT / "examples" / "warm.yaml"))
    (offer,) = made.sites[1].offers
    assert offer.warm == WarmPool(1, 1, ("org", "team:platform"), None, False, offer.warm.source if offer.warm else "")
    assert made.notes == ()
