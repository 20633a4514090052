"""The comparison page says what it was given, asks nobody for anything, and keeps its labels apart."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.charts import chart, comparison
from penstock.sim.charts.chart import ChartSize, Labels, Scales
from penstock.sim.charts.comparison import Column, Comparison, Curve, Mark

SOME = Comparison(
    title="October <replayed>",
    lede="Waiting 38 min saves a third.",
    note="20 jobs",
    caption="Each mark is one setting.",
    curves=[
        Curve("starburst", "Starburst & co", [Mark(0.1, 50e3), Mark(0.5, 40e3), Mark(2, 30e3)]),
        Curve("fixed", "Fixed wait", [Mark(0.2, 55e3), Mark(1, 41e3), Mark(2.1, 30.5e3)]),
        Curve("penstock", "Penstock", [Mark(0, 45e3, "$16/h"), Mark(0.3, 33e3, "$4/h"), Mark(2, 29.5e3, "$1/h")]),
    ],
    bound=[(0, 30e3), (1, 20e3), (4, 10e3)],
    no_wait=Mark(0, 60e3),
    you_are_here=Mark(0.3, 33e3),
    columns=[
        Column("policy", "Policy", numeric=False),
        Column("cost", "Cost"),
        Column("p99", "99 % within", minor=True),
    ],
    rows=[{"policy": "Penstock", "cost": "$33.0k", "p99": "5 h"}, {"policy": "Fixed <wait>", "cost": "$41.0k"}],
    chosen=frozenset({0}),
    formula="Delay = completion − submission − pure run time.",
    foot="Seed 7",
)


def test_the_page_stands_alone() -> None:
    """Nothing is fetched, nothing runs: a page can be mailed or opened from a disk."""
    html = comparison.page(SOME)
    assert not re.search(r"<script|<link|<img|\bsrc=|href=|@import|url\((?!data:|#)|\bstyle=", html)
    assert len(html) < 400_000


def test_the_page_escapes_what_it_is_given() -> None:
    html = comparison.page(SOME)
    assert "October &lt;replayed&gt;" in html
    assert "Fixed &lt;wait&gt;" in html
    assert "Starburst &amp; co" in html


def test_the_table_marks_what_is_in_force_and_lets_minor_columns_go() -> None:
    html = comparison.page(SOME)
    assert html.count('<tr class="chosen">') == 1
    assert '<th class="num minor">99 % within</th>' in html
    assert '<td class="num">$41.0k</td><td class="num minor"></td>' in html


def test_a_page_without_rows_has_no_table() -> None:
    assert "<table" not in comparison.page(Comparison("t", "l", SOME.curves))


def test_ours_takes_the_accent_and_the_others_differ_in_dash_and_marker() -> None:
    drawn = comparison.svg(SOME)
    for style in ("c-ours", "c-o1", "c-o2", "m-o1", "m-o2"):
        assert f'class="curve {style}"' in drawn or f'class="{style}"' in drawn


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_standalone_picture_is_xml_with_its_own_colours(theme: comparison.Theme) -> None:
    drawn = comparison.svg(SOME, theme)
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert "var(" not in drawn
    assert ("#0b5c75" in drawn) == (theme == "light")


def test_pixels_come_from_resvg_where_it_is_installed() -> None:
    pixels = comparison.png(comparison.svg(SOME))
    assert pixels is not None
    assert pixels.startswith(b"\x89PNG")


def test_without_resvg_there_are_no_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(comparison, "import_module", missing)
    assert comparison.png("<svg/>") is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(60, 250), st.floats(20, 300)), min_size=1, max_size=12))
def test_labels_never_cover_each_other(ends: list[tuple[float, float]]) -> None:
    labels = Labels(right=350, bottom=400)
    boxes = [labels.place(at, 90, 15) for at in ends]
    assert not any(a.meets(b) for a, b in combinations([b for b in boxes if b], 2))


def test_curves_that_end_together_are_all_named() -> None:
    curves = [Curve(f"p{i}", f"Policy {i}", [Mark(0.1, 9e3 + i), Mark(2, 5e3 + i)]) for i in range(6)]
    for size in comparison.SIZES.values():
        drawn = chart.draw(curves, [], None, "", None, "$", size, "x")
        assert all(drawn.count(f">Policy {i}</text>") == 2 for i in range(6))  # the words and their halo


def test_no_delay_has_a_place_of_its_own_left_of_the_log_axis() -> None:
    scales = Scales.of([Mark(0, 10), Mark(0.1, 8), Mark(2, 5)], [], ChartSize(700, 400))
    assert scales.zero is not None
    assert scales.edge < scales.x(0) < scales.left < scales.x(0.1) < scales.x(2) < scales.right


def test_without_a_point_at_zero_the_axis_is_whole() -> None:
    assert Scales.of([Mark(0.1, 8), Mark(2, 5)], [], ChartSize(700, 400)).zero is None


@pytest.mark.parametrize(
    "marks", [[Mark(0, 0)], [Mark(1, 5)], [Mark(0, 5), Mark(0, 5)], [Mark(1, 5), Mark(0.9, 6), Mark(1, 4)]]
)
def test_odd_curves_are_drawn_too(marks: list[Mark]) -> None:
    """One point, nothing but zeros, or a knob that turns back: a policy may do that."""
    assert "nan" not in comparison.page(Comparison("t", "l", [Curve("a", "A", marks)])).split("<body>")[1]
    assert comparison.page(Comparison("t", "l", []))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0"),
        (0.5, "$0.50"),
        (950, "$950"),
        (20_900, "$20.9k"),
        (315_400, "$315k"),
        (999_800, "$1M"),
        (1.041e6, "$1.04M"),
    ],
)
def test_money_has_three_figures(amount: float, text: str) -> None:
    assert chart.money(amount) == text


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0, "no delay"),
        (0.01, "36 s"),
        (0.05, "3 min"),
        (38 / 60, "38 min"),
        (1.5, "1.5 h"),
        (31, "31 h"),
        (143, "6 days"),
    ],
)
def test_durations_read_as_people_say_them(hours: float, text: str) -> None:
    assert chart.duration(hours) == text
