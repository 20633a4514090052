"""Sites as bars: one mark a GPU, whatever it does."""

import re

import pytest

from penstock.web.views import shapes
from penstock.web.views import sites as places
from tests.web.views.kit import NOW, offer, sites


def test_free_gpus_stand_where_they_are_and_what_starts_comes_after_what_runs() -> None:
    assert places.nodes(offer(width=4, free=[0, 3], busy=4, starting=1, idle=3)) == ["bbbb", "siii"]


def test_a_lost_node_is_lost_as_a_whole() -> None:
    assert places.nodes(offer(width=4, count=3, free=[4, 0, 0], busy=4, idle=4, lost=4)) == ["iiii", "bbbb", "llll"]


def test_rented_gpus_are_drawn_by_node_and_none_is_drawn_while_none_is_rented() -> None:
    cloud = offer("cloud/spot", "spot", width=4, count=None, busy=4, starting=2)
    assert places.nodes(cloud) == ["bbbb", "ss"]
    assert places.nodes(offer("cloud/spot", "spot")) == []


@pytest.mark.parametrize(("gpus", "size"), [(1, "l"), (64, "l"), (65, "m"), (512, "m"), (513, "s"), (2_000, "s")])
def test_the_page_has_one_size_of_mark_by_how_many_there_are(gpus: int, size: str) -> None:
    assert shapes.size_for(gpus) == size


@pytest.mark.parametrize("size", ["l", "m", "s"])
def test_every_gpu_has_a_mark_and_the_bar_says_how_many(size: str) -> None:
    drawn = shapes.gpus("spot", ["bbbbbbss", "iiiiiiii"], size)
    assert 'aria-label="16 GPUs: 6 busy, 2 starting, 8 idle"' in drawn
    marks = len(re.findall("<rect", drawn)) if size != "s" else len(re.findall("M", drawn))
    assert marks == 16


def test_a_hall_of_a_hundred_thousand_gpus_is_a_short_answer() -> None:
    assert len(shapes.gpus("owned", ["bbbbbbbb"] * 12_500, "s")) < 1_000


def test_owned_sites_come_first_and_prices_are_of_one_gpu() -> None:
    rows = places.rows(sites(offer("cloud/spot", "spot", busy=8), offer(free=[8, 8], idle=16)))
    assert [row.id for row in rows] == ["lab", "cloud"]
    assert rows[1].offers[0].price == "$2.00"
    assert rows[0].offers[0].tally == ((16, "idle"),)


def test_a_closed_offer_says_when_it_is_tried_again() -> None:
    closed = offer("cloud/spot", "spot", closed_until_at=NOW + 600_000)
    assert places.rows(sites(closed))[0].offers[0].note == "no capacity; next try 12:40"
    refused = offer("cloud/spot", "spot", closed_until_at=NOW + 600_000, says="there is no such node class")
    assert places.rows(sites(refused))[0].offers[0].note == "there is no such node class; next try 12:40"
    assert places.rows(sites(offer("cloud/spot", "spot", count=2)))[0].offers[0].note == "none rented, up to 16"


def test_a_name_that_is_markup_stays_text() -> None:
    (row,) = places.rows(sites(offer(gpu_model="<b>A100</b>", free=[8], count=1, idle=8)))
    assert row.offers[0].model == "<b>A100</b>"
    assert "<b>" not in shapes.meter(1, 1, 2, "<b>team</b>")
