"""When a queued job is expected to start: never without a bound, and never an estimate that is over."""

from typing import Any

import pytest

from penstock.web.views import queue
from tests.web.views.kit import NOW, because, job

MINUTE = 60_000


def start(kind: str, until: int | None = None, decided: int = NOW, **numbers: Any) -> tuple[str, str]:
    estimate = queue.start(job(because=because(kind, **numbers), until_at=until, decided_at=decided), NOW)
    return estimate.says.replace("\u00a0", " "), estimate.bound.replace("\u00a0", " ")


def test_a_wait_that_is_worth_it_says_when_it_is_expected_to_start() -> None:
    shown = start("WaitWorth", NOW + 90 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert shown == ("about 12:35", "by 12:50 (p90)")


def test_a_forecast_counts_from_the_decision_not_from_now() -> None:
    shown = start("WaitWorth", NOW + 90 * MINUTE, NOW - 4 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert shown == ("about 12:31", "by 12:46 (p90)")


def test_where_patience_ends_sooner_it_starts_by_then() -> None:
    shown = start("WaitWorth", NOW + 10 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert shown == ("about 12:35", "by 12:40")


def test_an_overdue_forecast_is_shown_with_its_age() -> None:
    shown = start("WaitWorth", NOW + 90 * MINUTE, NOW - 8 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert shown == ("by 12:42 (p90)", "estimated 8 min ago")


def test_a_job_queued_for_89_minutes_is_not_expected_in_one_minute_as_was_said_then() -> None:
    """It once stood on the page as "about 1 min", the words of a decision 88 minutes ago."""
    shown = start("WaitWorth", NOW + 90 * MINUTE, NOW - 88 * MINUTE, about_ms=MINUTE, worst_ms=20 * MINUTE)
    assert shown == ("on owned GPUs, or bursts 14:00", "if money and room are there")


@pytest.mark.parametrize(
    ("kind", "until", "numbers", "shown"),
    [
        ("CapBinds", None, {}, ("when the budget allows", "or on owned GPUs")),
        ("Paced", NOW + 86_400_000, {}, ("not before 17 Nov, 12:30", "or on owned GPUs")),
        ("NoRoomThere", None, {"retry_at": NOW + MINUTE}, ("next try 12:31", "or on owned GPUs")),
        ("OnlyOwned", None, {}, ("on owned GPUs only", "no estimate")),
        ("PlacementsPaused", None, {}, ("after the pause", "penstock resume")),
        ("WaitsForOwned", NOW + MINUTE, {}, ("on owned GPUs, or bursts 12:31", "if money and room are there")),
        ("InQuietHours", NOW + MINUTE, {}, ("not before 12:31", "or on owned GPUs")),
        ("AwaitsApproval", NOW + MINUTE, {}, ("when it is approved", "or on owned GPUs")),
        ("TeamAtLimit", None, {}, ("when its team has fewer GPUs", "")),
        ("NoTriggerHolds", NOW + MINUTE, {}, ("looked at again 12:31", "or on owned GPUs")),
    ],
)
def test_every_other_wait_says_what_ends_it(kind: str, until: int | None, numbers: Any, shown: tuple[str, str]) -> None:
    """In quiet hours 25 jobs were promised a start "by 05:00 at the latest", and one began at noon."""
    assert start(kind, until, **numbers) == shown


def test_the_queue_is_in_the_order_of_expected_starts() -> None:
    late = job(id="late", because=because("OnlyOwned"))
    soon = job(
        id="soon",
        because=because("WaitWorth", about_ms=MINUTE, worst_ms=9 * MINUTE),
        until_at=NOW + 9 * MINUTE,
        decided_at=NOW,
    )
    fresh = job(id="fresh")
    rows = queue.queued([late, soon, fresh], NOW)
    assert [row.href for row in rows] == ["/jobs/fresh", "/jobs/soon", "/jobs/late"]


def test_instants_in_a_reason_are_written_as_on_the_page() -> None:
    (row,) = queue.queued([job(because=because("OnlyOwned", says="Until 2026-11-16 13:00 UTC, 2 h."))], NOW)
    assert row.why == "Until 13:00, 2\u00a0h."
