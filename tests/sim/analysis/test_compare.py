"""Points are counted as the yardstick counts, come out in the order asked, and every sentence is made of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_type_hints

import pytest

from penstock.core.errors import BadInput
from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR
from penstock.policy.presets import BASELINES, OURS
from penstock.sim.analysis import bound
from penstock.sim.analysis.compare import (
    BUDGETS,
    CONTENDERS,
    VALUES,
    Bound,
    Case,
    Compared,
    PolicyPoint,
    as_record,
    cash,
    least_at,
    least_price,
    lede,
    lines_for,
    measure,
    owned_gpus,
    pictured,
    row,
)
from penstock.sim.engine.report import Report
from penstock.sim.scenario import Costs, yardstick
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import TraceJob

UNLIKE = {"seconds", "jobs_per_cpu_s", "peak_rss_mb"}  #: what the machine says, not the trace


def case(jobs: int = 150, costs: Costs = "l1", name: str = "week", seed: int = 1) -> Case:
    trace = generate(jobs, seed=seed, days=7)
    nodes = nodes_for(trace, 1.1)
    return Case(name, yardstick(trace.jobs, nodes, costs=costs, knowledge="e2", seed=seed), nodes, costs, "e2")


# ---- what is run ----------------------------------------------------------------------------------------------------


def test_every_policy_can_be_compared_each_over_its_knob() -> None:
    lines = lines_for(CONTENDERS)
    assert list(dict.fromkeys(name for name, _ in lines)) == [
        *BASELINES,
        "penstock-no-moves",
        "penstock",
        "penstock-known",
    ]
    assert {name: [k for n, k in lines if n == name] for name in CONTENDERS} == {
        "nowait": ["0"],
        **{name: list(BUDGETS) for name in BASELINES[1:]},
        **{name: list(VALUES) for name in OURS},
    }


def test_bursting_at_once_takes_part_unasked_and_only_once() -> None:
    assert (
        lines_for(["power"], ["0.1"]) == lines_for(["power", "nowait"], ["0.1"]) == [("nowait", "0"), ("power", "0.1")]
    )


def test_budgets_are_tried_from_small_to_large_each_once() -> None:
    assert lines_for(["constant"], ["1", " .5", "0.05", "1"])[1:] == [
        ("constant", "0.05"),
        ("constant", ".5"),
        ("constant", "1"),
    ]


def test_costs_of_delay_are_for_our_policies_and_budgets_for_the_others() -> None:
    """The dearest delay first: it waits least."""
    assert lines_for(["penstock", "constant"], ["0.1"], ["5", " 50", "5"]) == [
        ("nowait", "0"),
        ("constant", "0.1"),
        ("penstock", "50"),
        ("penstock", "5"),
    ]
    with pytest.raises(BadInput, match="'often' is not an amount of money"):
        lines_for(["penstock"], (), ["often"])


@pytest.mark.parametrize(
    "knob", ["x", "", ".", "-1", "nan", "inf", "1e3", "1e-999999999", "1/0", "1_0", "٣", "1234567"]
)
def test_a_knob_that_is_no_plain_number_is_refused(knob: str) -> None:
    with pytest.raises(BadInput, match="--knobs are waiting budgets like"):
        lines_for(["constant"], ["0.1", knob])


def test_an_unknown_policy_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(BadInput, match="There is no policy 'fast'; choose among nowait, constant, "):
        lines_for(["constant", "fast"])


# ---- what comes out -------------------------------------------------------------------------------------------------


def test_processes_answer_as_one_does_and_in_the_order_asked() -> None:
    cases, lines = [case(60), case(40, name="other", seed=2)], lines_for(["compute", "constant"], ["0.1", "1"])
    advances: list[int] = []
    alone = measure(cases, lines, workers=1)
    together = measure(cases, lines, workers=2, advance=advances.append)
    assert [plain(c) for c in together] == [plain(c) for c in alone]
    assert [(p.report.policy, p.report.knob) for p in together[1].points] == lines
    assert sum(advances) == 2 * (len(lines) + 1)


@pytest.mark.parametrize("costs", ["l0", "l1", "l2"])
def test_no_policy_beats_the_bound(costs: Costs) -> None:
    (result,) = measure([case(costs=costs)], lines_for(CONTENDERS, ["0.1", "1"]))
    assert result.bound is not None
    for point in result.points:
        assert point.cost + 0.01 >= result.bound.at(point.report.mean_delay_h)


def test_a_deferred_gpu_hour_costs_as_much_as_a_rented_one() -> None:
    (result,) = measure([case()], lines_for(["constant"], ["5"]), with_bound=False)
    point = result.of("constant")[0]
    assert point.report.deferred_gpu_hours > 0
    assert point.cost == pytest.approx(point.report.cloud_cost + 2.5 * point.report.deferred_gpu_hours, abs=0.01)


def test_the_bound_counts_the_cheapest_price_that_anybody_could_get() -> None:
    assert least_price(case(10, "l0").scenario) == least_price(case(10, "l1").scenario) == 2_500_000
    assert least_price(case(10, "l2").scenario) == 875_000


def test_the_bound_counts_every_job_of_an_array() -> None:
    array = TraceJob("a", 0, 2 * HOUR, JobSpec(8, count=3))
    last = TraceJob("z", 9 * HOUR, HOUR, JobSpec(1))
    scenario = yardstick([array, last], 1)
    (result,) = measure([Case("t", scenario, 1, "l0", "e0")], lines_for(["nowait"]))
    assert result.bound is not None
    hours = bound.frontier([0, 0, 0, 9 * HOUR], [2 * HOUR] * 3 + [HOUR], [8, 8, 8, 1], 8)
    assert result.bound.corners == tuple((h.mean_delay_h, round(h.cloud_gpu_hours * 2.5, 2)) for h in hours)
    assert owned_gpus(scenario) == 8


def test_a_record_holds_every_field_of_every_report() -> None:
    (result,) = measure([case(40)], lines_for(["constant"], ["0.1"]))
    record = as_record(result)
    assert all(set(get_type_hints(Report)) <= set(point) for point in record["points"])
    assert {"cost", "bound_cost", "saving_closed", "seconds"} <= set(record["points"][0])
    assert record["bound"]["corners"][0][0] == 0.0
    assert as_record(replace_bound(result, None))["bound"] is None


# ---- numbers in words -----------------------------------------------------------------------------------------------


def test_the_lede_says_who_pays_how_much_less_at_the_same_delay() -> None:
    result = made(nowait=[(0, 1000)], constant=[(0.1, 900), (0.4, 600)], compute=[(0.2, 500)])
    assert lede(result) == (
        "Bursting at once costs $1,000. At the same mean delay of 12 min, compute pays $500, 33 % less than constant; "
        "no schedule could pay less than $200."
    )
    assert pictured(result).title == "month: a mean delay of 12 min saves 50 % of the cost"


def test_the_lede_says_more_where_it_is_more_and_no_difference_where_there_is_none() -> None:
    dearer = made(nowait=[(0, 1000)], constant=[(0.2, 500)], compute=[(0.2, 550)])
    assert "compute pays $550, 10 % more than constant" in lede(dearer)
    alike = made(nowait=[(0, 1000)], constant=[(0.2, 500)], compute=[(0.2, 510)])
    assert "compute pays $510, about as much as constant" in lede(alike)


def test_the_lede_compares_only_at_a_delay_that_both_reach() -> None:
    apart = made(nowait=[(0, 1000)], constant=[(3, 500)], compute=[(0.1, 900), (0.2, 800)])
    assert "At a mean delay of 12 min, compute pays $800; no schedule" in lede(apart)
    later = made(nowait=[(0, 1000)], constant=[(3, 500)], compute=[(0.1, 900), (0.2, 800), (4, 400)])
    assert "At the same mean delay of 4 h, compute pays $400, 20 % less than constant" in lede(later)


def test_the_lede_says_nothing_of_a_bound_that_was_not_asked_for() -> None:
    result = replace_bound(made(nowait=[(0, 1000)], compute=[(0.2, 500)]), None)
    assert lede(result) == "Bursting at once costs $1,000. At a mean delay of 12 min, compute pays $500."
    assert pictured(result).note == ""
    assert row(result, result.points[1])["closed"] == "-"


def test_the_title_promises_no_saving_where_there_is_none() -> None:
    assert pictured(made(nowait=[(0, 1000)], compute=[(1, 1200)])).title == "month: what waiting for owned GPUs saves"
    assert pictured(made(nowait=[(0, 1000)])).title == "month: what waiting for owned GPUs saves"
    assert pictured(made(nowait=[(0, 0)], compute=[(1, 0)])).title == "month: nothing has to be rented"


def test_ours_is_what_the_lede_speaks_of_and_is_held_against_the_best_of_the_others() -> None:
    result = made(nowait=[(0, 1000)], compute=[(0.2, 500)], constant=[(0.1, 800)], penstock=[(0.2, 300)])
    assert "penstock pays $300, 40 % less than compute" in lede(result)


def test_the_saving_is_counted_against_the_bound_at_the_same_delay() -> None:
    result = made(nowait=[(0, 1000)], compute=[(0.5, 600), (2, 600)])
    assert [result.saving_closed(point) for point in result.points] == [0.0, 400 / 850, 0.4]
    assert [row(result, point)["closed"] for point in result.points] == ["-", "47 %", "40 %"]


def test_what_an_hour_of_delay_saved_is_counted_from_the_same_policys_point_with_less_delay() -> None:
    result = made(nowait=[(0, 1000)], compute=[(2, 400), (0.5, 600)], penstock=[(1, 500)])
    assert [row(result, point)["hour"] for point in result.points] == ["-", "$26.67", "-", "-"]  # $200 in 5 x 1.5 hours


def test_nothing_can_be_saved_where_nothing_is_spent() -> None:
    result = made(nowait=[(0, 0)], compute=[(1, 0)])
    assert result.saving_closed(result.points[1]) is None


def test_the_least_cost_at_a_delay_is_never_bought_with_more_delay() -> None:
    points = made(nowait=[(0, 1)], compute=[(0.1, 900), (0.4, 600), (1, 700)]).of("compute")
    assert least_at(points, 0.05) is None
    assert least_at(points, 0.1) == 900
    assert least_at(points, 0.2) == pytest.approx(750)  # half of the way on a log axis
    assert least_at(points, 5) == 600


def test_the_longest_never_looks_shorter_than_what_99_percent_are_within() -> None:
    """A report keeps the longest to two digits and the 99 % to three: 33 min stood beside a longest of 32 min."""
    result = made(nowait=[(0, 1)])
    point = replace(result.points[0], report=replace(result.points[0].report, p99_delay_h=0.546, max_delay_h=0.54))
    assert row(result, point)["longest"] == row(result, point)["within"] == "33 min"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0"), (0.875, "$0.88"), (2.5, "$2.50"), (99.99, "$99.99"), (1284.1, "$1,284"), (212_744.59, "$212,700")],
)
def test_money_in_four_figures(amount: float, text: str) -> None:
    assert cash(amount, "USD") == text


# ---- made-up results ------------------------------------------------------------------------------------------------

BOUND = Bound(2.5, ((0.0, 250.0), (0.2, 200.0), (0.5, 150.0), (2.0, 0.0)), 0.0)


def made(**curves: Sequence[tuple[float, float]]) -> Compared:
    points = tuple(point(name, *mark) for name, marks in curves.items() for mark in marks)
    return Compared(case(5, name="month"), points, BOUND)


def point(name: str, delay_h: float, cost: float) -> PolicyPoint:
    zero: dict[str, Any] = dict.fromkeys(get_type_hints(Report), 0)
    known = {"policy": name, "knob": "0.1", "jobs": 5, "mean_delay_h": delay_h, "cloud_cost": cost, "currency": "USD"}
    return PolicyPoint(Report(**(zero | known)), cost, 0.0)


def replace_bound(compared: Compared, bound: Bound | None) -> Compared:
    return Compared(compared.case, compared.points, bound)


def plain(compared: Compared) -> dict[str, Any]:
    record = as_record(compared)
    del record["bound"]["seconds"]
    record["points"] = [{k: v for k, v in p.items() if k not in UNLIKE} for p in record["points"]]
    return record
