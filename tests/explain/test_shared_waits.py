"""What several jobs wait for is said once, with their number and GPUs."""

from typing import Any

from penstock.explain import shared_waits
from penstock.explain.shared_waits import shared
from penstock.web.views import queue
from penstock.web.views.formats import plain
from tests.web.views.kit import NOW, because, job

NIGHT = {"ends_at": NOW + 3_600_000, "source": "policy.yaml:25"}


def clock(at: int) -> str:
    return f"+{(at - NOW) // 60_000} min"


def cap(scope: str, needed: int) -> tuple[str, dict[str, Any], int]:
    return "CapBinds", {"scope": scope, "period": "2026-11", "needed": needed}, 2


def test_equal_reasons_are_one_line_with_jobs_and_gpus() -> None:
    """In quiet hours 25 of 32 rows of the queue said the same, and nothing said how many they were."""
    waits = [("InQuietHours", NIGHT, 8)] * 4 + [("WaitWorth", {}, 1)] * 9
    waits += [cap("team:risk", 1), cap("team:risk", 2), cap("team:risk", 3), cap("org", 4)]
    assert [wait.says for wait in shared(waits, clock)] == [
        "Quiet hours until +60 min (policy.yaml:25): 4 jobs with 32 GPUs wait.",
        "The budget of team:risk for 2026-11 is reached: 3 jobs with 6 GPUs wait.",
    ]


def test_the_queue_does_not_repeat_what_its_notice_says() -> None:
    says = "Queued: nothing new is rented until 2026-11-16 13:30 UTC, in quiet hours (policy.yaml:25)."
    night = [job(id=f"j{number}", gpus=8, because=because("InQuietHours", says, **NIGHT)) for number in range(3)]
    (notice,) = queue.shared_waits(night, NOW)
    assert notice.says == "Quiet hours until 13:30 (policy.yaml:25): 3 jobs with 24 GPUs wait."
    assert {row.why for row in queue.queued(night, NOW)} == {"Queued in quiet hours."}
    assert [row.why for row in queue.queued(night[:1], NOW)] == [plain(says, NOW)]
    assert queue.shared_waits(night[:2], NOW) == []


def test_the_page_has_short_words_for_whatever_it_groups() -> None:
    assert queue.SHORT.keys() == shared_waits.WHAT.keys() - queue.TOLD
