"""Why a job is queued, as lists and pages say it: true now, or with the age of what is said."""

import json
from dataclasses import asdict
from typing import Any

from penstock.core.model import reasons as r
from penstock.core.units import HOUR, MICRO, MINUTE
from penstock.journal.rows import JobRow
from penstock.web import deps

NOW = 1_794_832_200_000  #: 2026-11-16 12:30 UTC
WAITS = r.WaitWorth(
    cost=18 * MICRO, value_per_hour=6 * MICRO, patience_ms=3 * HOUR, expected_run_ms=2 * HOUR, soonest_ms=0, ahead=6,
    free_gpus=0, about_ms=MINUTE, worst_ms=12 * MINUTE,
)  # fmt: skip


def row(because: Any, decided_at: int, **more: Any) -> JobRow:
    filled: dict[str, Any] = {
        "id": "j1", "number": 1, "team": "vision", "name": "train", "user": "u", "project": "", "job_class": "training",
        "priority": 0, "gpus": 1, "work": "", "phase": "waiting", "attempt": "", "offer": "",
        "submitted_at": NOW - 89 * MINUTE, "started_at": None, "ended_at": None, "kept_ms": 0, "attempts": 0,
        "moves": 0, "losses": 0, "spent": 0, "held": 0, "until_at": NOW + 91 * MINUTE, "short_of": "",
        "because": json.dumps(asdict(because)), "decided_at": decided_at,
    }  # fmt: skip
    return JobRow(**(filled | more))


def says(job_row: JobRow) -> str:
    because = deps.job_shape(job_row, "USD", NOW).because
    assert because is not None
    return because.says


def test_a_reason_of_this_minute_is_told_as_it_was_decided() -> None:
    assert says(row(WAITS, NOW - 59_000)) == (
        "Queued for up to 3 h, until 2026-11-16 14:01 UTC: 0 GPUs free, 6 jobs ahead. Its start is expected in "
        "about 1 min, nine times in ten within 12 min. Bursting now costs about $18.00 for 2 h; an hour of its "
        "delay costs $6.00, so 3 h of delay cost as much."
    )


def test_a_job_queued_for_89_minutes_says_how_old_its_estimate_is() -> None:
    """It stood there as "expected in about 1 min" for an hour and a half."""
    assert says(row(WAITS, NOW - 88 * MINUTE)) == (
        "Queued for up to 3 h, until 2026-11-16 14:01 UTC: 0 GPUs free, 6 jobs ahead 1 h 28 min ago. "
        "Bursting costs about $18.00 for 2 h; an hour "
        "of its delay costs $6.00, so 3 h of delay cost as much."
    )
    assert says(row(r.OnlyOwned(0, "it may not"), NOW - 88 * MINUTE)) == (
        "Queued for owned GPUs: 0 GPUs free 1 h 28 min ago. It cannot burst: it may not."
    )


def test_why_a_job_started_does_not_age() -> None:
    running = row(r.OwnedFree(0, 8), NOW - 88 * MINUTE, phase="placed", attempt_phase="running")
    assert says(running) == "8 GPUs were free."
    assert deps.job_shape(running, "USD", NOW).state == "running"


def test_a_preempted_job_is_queued_and_says_so() -> None:
    shown = deps.job_shape(row(r.NoRoomThere("cloud/spot", NOW), NOW, last_outcome="lost"), "USD", NOW)
    assert (shown.state, shown.preempted) == ("queued", True)
