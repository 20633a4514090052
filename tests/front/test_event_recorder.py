"""What is worth an Event, and what comes together in one."""

from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.model.types import JobSpec
from penstock.front.event_recorder import LONGEST, EventRecorder, News, reason_of

SUBMITTED = e.JobSubmitted(1_000, 0, "j0", JobSpec(1, team="vision"))
WAITS = e.WaitPromised(1_000, "j0", 5_000, r.PlacementsPaused())


def recorder_of(*events: e.Event) -> EventRecorder:
    made = EventRecorder("j0", "lab", "uid", "USD")
    for event in events:
        made.hear(event)
    return made


def news_of(recorder: EventRecorder) -> News:
    news = recorder.news
    assert news is not None
    return news


def test_what_came_together_is_one_event_called_by_what_was_decided() -> None:
    recorder = recorder_of(SUBMITTED, WAITS)
    news = news_of(recorder)
    assert news.words == " ".join(line.text for _, _, line in recorder.lines)
    assert (news.reason, news.upto, news.bad) == ("PlacementsPaused", 2, False)
    recorder.posted = news.upto
    assert recorder.news is None


def test_that_it_runs_is_told_at_once_and_a_renewed_lease_only_with_what_comes_next() -> None:
    recorder = recorder_of(SUBMITTED, WAITS)
    recorder.posted = 2
    recorder.lines.append(("Running", False, recorder.lines[0][2]))
    assert (recorder.tells_of_a_start, news_of(recorder).reason, news_of(recorder).runs) == (True, "Running", True)
    recorder.posted = 3
    recorder.lines.append(("LeaseRenewed", False, recorder.lines[0][2]))
    assert (recorder.tells_of_a_start, recorder.news) == (False, None)
    recorder.lines.append(("Preempted", True, recorder.lines[1][2]))
    recorder.lines.append(("Settled", False, recorder.lines[1][2]))
    assert (news_of(recorder).upto, news_of(recorder).reason, news_of(recorder).bad) == (6, "Preempted", True)


def test_what_its_user_asked_for_has_an_event_of_its_own() -> None:
    """A Job that was suspended just after it was preempted told only of the latter."""
    recorder = recorder_of(SUBMITTED)
    line = recorder.lines[0][2]
    reasons = [("Preempted", True), ("Running", False), ("Suspended", False), ("Stopped", False), ("Resumed", False)]
    recorder.lines += [(reason, bad, line) for reason, bad in [*reasons, ("NotStarting", True)]]
    events = []
    while recorder.news is not None:
        events.append((news_of(recorder).reason, news_of(recorder).bad))
        recorder.posted = news_of(recorder).upto
    assert events == [("Preempted", True), ("Suspended", False), ("Resumed", False), ("NotStarting", True)]


def test_two_failures_have_an_event_each_under_their_own_names() -> None:
    """An Event called StartFailed began with "Preempted": its next start had failed within the same two seconds."""
    recorder = recorder_of(SUBMITTED)
    line = recorder.lines[0][2]
    recorder.lines += [(reason, True, line) for reason in ("Preempted", "Preempted", "StartFailed")]
    events = []
    while recorder.news is not None:
        events.append((news_of(recorder).reason, news_of(recorder).upto))
        recorder.posted = news_of(recorder).upto
    assert events == [("Preempted", 3), ("StartFailed", 4)]


def test_a_story_too_long_for_one_event_is_told_in_several_and_whole() -> None:
    recorder = recorder_of(*(e.WaitPromised(at, "j0", at + 60_000, r.PlacementsPaused()) for at in range(100)))
    texts = []
    while news := recorder.news:
        texts.append(news.words)
        recorder.posted = news.upto
    assert len(texts) > 1
    assert max(map(len, texts)) <= LONGEST
    assert " ".join(texts) == " ".join(line.text for _, _, line in recorder.lines)


def test_a_renewed_lease_is_no_reason_for_where_it_is() -> None:
    recorder = recorder_of(SUBMITTED, WAITS)
    recorder.lines.append(("LeaseRenewed", False, recorder.lines[0][2]))
    assert recorder.why is not None
    assert recorder.why.reason == "PlacementsPaused"


def test_events_have_the_words_of_kubectl() -> None:
    reasons = [
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
    assert reasons == ["Submitted", "PlacementsPaused", "Running", "Preempted", "NoCapacity", "Succeeded", "Failed"]
