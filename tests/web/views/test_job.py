"""A job's page: its time line, its sentence, its money."""

import pytest

from penstock.web import schemas
from penstock.web.views import job as page
from penstock.web.views import spending, timeline
from tests.web.views.kit import NOW, attempt, because, job

MINUTE = 60_000
TERMS = {"cloud/spot": "spot", "lab/owned": "owned"}
START = NOW - 60 * MINUTE


def travelled() -> schemas.JobDetail:
    """Waited, ran on spot, was lost, waited again, runs at home."""
    lost = attempt("cloud/spot", START + 10 * MINUTE, ended_at=START + 30 * MINUTE, state="preempted")
    home = attempt("lab/owned", START + 40 * MINUTE, ended_at=None, state="running")
    return job(state="running", offer="lab/owned", tries=[lost, home], losses=1, because=because("LostNode"))


def test_waiting_is_all_time_without_a_place() -> None:
    assert timeline.waits(travelled(), NOW) == [
        (START, START + 10 * MINUTE),
        (START + 30 * MINUTE, START + 40 * MINUTE),
    ]
    waiting = job()
    assert timeline.waits(waiting, NOW) == [(START, NOW)]


def test_lanes_are_in_the_order_of_first_use_and_a_loss_is_a_cross() -> None:
    drawn = timeline.draw(travelled(), TERMS, NOW)
    assert drawn.index("queue") < drawn.index("cloud/spot") < drawn.index("lab/owned")
    assert drawn.count('class="cross"') == 1
    assert 'aria-label="2\u00a0attempts: cloud/spot, 20 min, preempted; lab/owned, 20 min."' in drawn


def test_a_job_that_never_started_has_a_time_line_too() -> None:
    """Its page was an error."""
    drawn = timeline.draw(job(), TERMS, NOW)
    assert 'aria-label="0\u00a0attempts."' in drawn


@pytest.mark.parametrize("minutes", [0, 1, 7, 60, 1_440, 60 * 24 * 90, 60 * 24 * 3_650])
def test_the_axis_has_a_handful_of_marks_however_long_the_job(minutes: int) -> None:
    axis = timeline.Axis(NOW - max(1, minutes) * MINUTE, NOW)
    assert len(axis.marks()) <= 32


def test_a_name_that_is_markup_stays_text() -> None:
    strange = attempt("<b>/x", START, id="<i>")
    assert "<b>" not in timeline.draw(job(tries=[strange]), {}, NOW)
    assert "<i>" not in timeline.draw(job(tries=[strange]), {}, NOW)


def test_the_first_sentence_says_what_it_does_and_why() -> None:
    assert page.lede(travelled(), NOW) == "Running on lab/owned since 12:10. Because."
    assert page.lede(job(because=because("OnlyOwned", "Queued for owned GPUs.")), NOW) == "Queued for owned GPUs."
    assert page.lede(job(state="succeeded", offer="lab/owned", ended_at=NOW), NOW) == "Succeeded on lab/owned at 12:30."
    facts = page.facts(travelled(), NOW, "USD")
    assert (facts.state, facts.waited, facts.attempts) == ("running", "20 min", "2\u00a0attempts, 1\u00a0preemption")


# --- money -----------------------------------------------------------------------------------------------------------


def scope(name: str, cap: int | None, spent: int, held: int) -> schemas.Scope:
    free = None if cap is None else cap - spent - held
    return schemas.Scope(
        scope=name, period="2026-11", cap=cap, spent=spent, held=held, free=free, cap_per_hour=None,
        running_per_hour=0,
    )  # fmt: skip


def budget(*scopes: schemas.Scope) -> schemas.Budget:
    return schemas.Budget(at=NOW, currency="USD", period="2026-11", scopes=list(scopes))


def test_the_organisation_comes_first_and_what_is_free_is_said() -> None:
    rows = spending.caps(budget(scope("team:a", 10_000_000, 9_000_000, 0), scope("org", 100_000_000, 1_000_000, 0)))
    assert [(row.name, row.amount, row.of, row.tight) for row in rows] == [
        ("Organisation", "$99.00", "free of $100.00", False),
        ("a", "$1.00", "free of $10.00", True),
    ]


def test_a_meter_never_runs_over_its_end() -> None:
    """A cap may be lowered below what is committed."""
    (row,) = spending.caps(budget(scope("org", 1_000_000, 5_000_000, 5_000_000)))
    assert 'width="100.00%"' in row.meter
    assert 'x="100.00%" width="0.00%"' in row.meter
    assert row.amount == "$0.00"


def test_without_a_cap_what_is_spent_is_said_and_nothing_is_drawn() -> None:
    (row,) = spending.caps(budget(scope("org", None, 5_000_000, 0)))
    assert (row.amount, row.of, str(row.meter)) == ("$5.00", "spent, no cap", "")
