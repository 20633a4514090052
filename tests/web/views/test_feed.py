"""What just happened, as one reads it: who, what, why."""

from typing import Any

from penstock.web.views import feed
from tests.web.views.kit import NOW, event


def feed_entry(kind: str, says: str, **fields: Any) -> tuple[str, str, str, str]:
    (item,) = feed.items([event(kind, says, **fields)], {"j1": "train"}, NOW)
    return item.icon, item.name, item.what, item.why


def test_a_burst_says_where_to_and_why_and_leaves_the_hold_to_the_story() -> None:
    held = "$9.00 is held, enough to run until 2026-11-16 14:00 UTC and to stop."
    says = f"Bursts to cloud/spot. Owned GPUs were full. It costs about $5.00. {held}"
    entry = feed_entry("StartPromised", says, offer="cloud/spot", hold={"id": "h"}, because={"kind": "PatienceOver"})
    assert entry == ("burst", "train", "bursts to cloud/spot", "Owned GPUs were full. It costs about $5.00.")


def test_coming_home_and_resuming_are_called_so() -> None:
    home = feed_entry(
        "StartPromised", "Starts on lab/owned again. X.", offer="lab/owned", because={"kind": "ComesHome"}
    )
    assert home[:3] == ("home", "train", "moves home to lab/owned")
    again = feed_entry("StartPromised", "Bursts to c/s again. X.", offer="c/s", nodes=[1], because={"kind": "LostNode"})
    assert again[:3] == ("burst", "train", "resumes on c/s")


def test_a_job_succeeded_or_failed() -> None:
    assert feed_entry("AttemptEnded", "Succeeded.", outcome="done") == ("done", "train", "succeeded", "")
    failed = feed_entry("AttemptEnded", "Failed: exit code 1.", outcome="failed")
    assert failed == ("no", "train", "failed", "Failed: exit code 1.")


def test_what_concerns_no_job_stands_alone() -> None:
    assert feed_entry("SiteLost", "Site cloud cannot be reached.", job="") == (
        "alarm",
        "",
        "Site cloud cannot be reached",
        "",
    )


def test_a_stop_that_the_next_start_explains_is_not_told_twice() -> None:
    moved = event("StopPromised", "Stopping. Moves to owned GPUs.", because={"kind": "ComesHome"})
    capped = event("StopPromised", "Stopping. Budget reached.", because={"kind": "CapBinds"})
    assert [item.why for item in feed.items([moved, capped], {}, NOW)] == ["Budget reached."]
