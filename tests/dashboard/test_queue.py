"""When a waiting job may expect to start: a pair, never a bare prediction, and never one that is over."""

from typing import Any

import pytest

from penstock.dashboard import queue
from tests.dashboard.kit import NOW, because, job

MINUTE = 60_000


def start(kind: str, until: int | None = None, decided: int = NOW, **numbers: Any) -> tuple[str, str]:
    found = queue.start(job(because=because(kind, **numbers), until_at=until), decided, NOW)
    return found.says.replace("\u00a0", " "), found.at_worst.replace("\u00a0", " ")


def test_a_wait_that_is_worth_it_says_about_when_and_at_worst() -> None:
    told = start("WaitWorth", NOW + 90 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert told == ("about 12:35", "at worst 12:50")


def test_what_was_foretold_counts_from_the_decision_not_from_now() -> None:
    told = start("WaitWorth", NOW + 90 * MINUTE, NOW - 4 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert told == ("about 12:31", "at worst 12:46")


def test_patience_is_the_worst_where_it_ends_sooner() -> None:
    told = start("WaitWorth", NOW + 10 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert told == ("about 12:35", "at worst 12:40")


def test_what_did_not_come_true_is_not_said_again() -> None:
    told = start("WaitWorth", NOW + 90 * MINUTE, NOW - 60 * MINUTE, about_ms=5 * MINUTE, worst_ms=20 * MINUTE)
    assert told == ("by 14:00", "at the latest")


@pytest.mark.parametrize(
    ("kind", "until", "numbers", "told"),
    [
        ("CapBinds", None, {}, ("when there is money", "or a raised cap")),
        ("Paced", NOW + 86_400_000, {}, ("not before 17 Nov, 12:30", "or on owned GPUs")),
        ("NoRoomThere", None, {"retry_at": NOW + MINUTE}, ("tried again 12:31", "or on owned GPUs")),
        ("OnlyOwned", None, {}, ("on owned GPUs only", "no time is known")),
        ("PlacementsPaused", None, {}, ("when resumed", "penstock resume")),
        ("WaitsForOwned", NOW + MINUTE, {}, ("by 12:31", "at the latest")),
    ],
)
def test_every_other_wait_says_what_ends_it(kind: str, until: int | None, numbers: Any, told: tuple[str, str]) -> None:
    assert start(kind, until, **numbers) == told


def test_the_queue_is_in_the_order_of_expected_starts() -> None:
    late = job(id="late", because=because("OnlyOwned"))
    soon = job(id="soon", because=because("WaitWorth", about_ms=MINUTE, worst_ms=9 * MINUTE), until_at=NOW + 9 * MINUTE)
    fresh = job(id="fresh")
    rows = queue.waiting([late, soon, fresh], {"soon": NOW}, NOW)
    assert [row.href for row in rows] == ["/jobs/fresh", "/jobs/soon", "/jobs/late"]


def test_instants_in_a_reason_are_written_as_on_the_page() -> None:
    (row,) = queue.waiting([job(because=because("OnlyOwned", says="Until 2026-11-16 13:00 UTC, 2 h."))], {}, NOW)
    assert row.why == "Until 13:00, 2\u00a0h."
