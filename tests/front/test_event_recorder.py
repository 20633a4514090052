"""What is worth an Event, and what comes together in one."""

from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.model.types import JobSpec
from penstock.front.event_recorder import LONGEST, EventRecorder, News, reason_of

SUBMITTED = e.JobSubmitted(1_000, 0, "j0", JobSpec(1, team="vision"))
WAITS = e.WaitPromised(1_000, "j0", 5_000, r.PlacementsPaused())


def recorder(*events: e.Event) -> EventRecorder:
    made = EventRecorder("j0", "lab", "uid", "USD")
    for event in events:
        made.hear(event)
    return made


def news_of(one: EventRecorder) -> News:
    news = one.news
    assert news is not None
    return news


def test_what_came_together_is_one_event_called_by_what_was_decided() -> None:
    one = recorder(SUBMITTED, WAITS)
    news = news_of(one)
    assert news.words == " ".join(line.text for _, _, line in one.lines)
    assert (news.reason, news.upto, news.bad) == ("PlacementsPaused", 2, False)
    one.posted = news.upto
    assert one.news is None


def test_that_it_runs_is_told_at_once_and_a_renewed_lease_only_with_what_comes_next() -> None:
    one = recorder(SUBMITTED, WAITS)
    one.posted = 2
    one.lines.append(("Running", False, one.lines[0][2]))
    assert (one.tells_of_a_start, news_of(one).reason, news_of(one).runs) == (True, "Running", True)
    one.posted = 3
    one.lines.append(("LeaseRenewed", False, one.lines[0][2]))
    assert (one.tells_of_a_start, one.news) == (False, None)
    one.lines.append(("Preempted", True, one.lines[1][2]))
    one.lines.append(("Settled", False, one.lines[1][2]))
    assert (news_of(one).upto, news_of(one).reason, news_of(one).bad) == (6, "Preempted", True)


def test_what_its_user_asked_for_has_an_event_of_its_own() -> None:
    """A Job that was suspended just after it was preempted told only of the latter."""
    one = recorder(SUBMITTED)
    line = one.lines[0][2]
    reasons = [("Preempted", True), ("Running", False), ("Suspended", False), ("Stopped", False), ("Resumed", False)]
    one.lines += [(reason, bad, line) for reason, bad in [*reasons, ("NotStarting", True)]]
    told = []
    while one.news is not None:
        told.append((news_of(one).reason, news_of(one).bad))
        one.posted = news_of(one).upto
    assert told == [("Preempted", True), ("Suspended", False), ("Resumed", False), ("NotStarting", True)]


def test_a_story_too_long_for_one_event_is_told_in_several_and_whole() -> None:
    one = recorder(*(e.WaitPromised(at, "j0", at + 60_000, r.PlacementsPaused()) for at in range(100)))
    told = []
    while news := one.news:
        told.append(news.words)
        one.posted = news.upto
    assert len(told) > 1
    assert max(map(len, told)) <= LONGEST
    assert " ".join(told) == " ".join(line.text for _, _, line in one.lines)


def test_a_renewed_lease_is_no_reason_for_where_it_is() -> None:
    one = recorder(SUBMITTED, WAITS)
    one.lines.append(("LeaseRenewed", False, one.lines[0][2]))
    assert one.why is not None
    assert one.why.reason == "PlacementsPaused"


def test_events_have_the_words_of_kubectl() -> None:
    told = [
        reason_of(event)
        for event in (
            SUBMITTED,
            WAITS,
            e.AttemptStarted(0, "j0.1"),
            e.AttemptLost(0, "j0.1", 0),
            e.AttemptRefused(0, "j0.1", 0),
            e.AttemptEnded(0, "j0.1", "done"),
            e.AttemptEnded(0, "j0.1", "failed", "exit code 1"),
        )
    ]
    assert told == ["Submitted", "PlacementsPaused", "Running", "Preempted", "NoCapacity", "Succeeded", "Failed"]
