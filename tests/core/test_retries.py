"""Any history of failed starts: never a third same failure without a pause longer than the one before."""

from typing import Final, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode, StartAttempt
from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR, MINUTE, SECOND
from tests.stories import kit

Outcome = Literal["full", "unfit", "missing", "denied", "lost", "stopped", "kept", "late"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("full", "unfit", "missing", "denied", "lost", "stopped", "kept", "late")
GROWN: Final = 16 * 30 * SECOND  #: the longest pause of a site that asks for half a minute


def _facts(attempt: str, outcome: Outcome, at: int) -> list[e.Fact]:
    match outcome:
        case "full":
            return [e.AttemptRefused(at, attempt, 30 * SECOND)]
        case "unfit" | "missing" | "denied":
            return [e.AttemptRefused(at, attempt, 30 * SECOND, outcome, "words")]
        case "stopped":
            return [e.AttemptStopped(at, attempt, 0)]
        case _:
            return [e.AttemptLost(at, attempt, HOUR if outcome == "kept" else 0)]


class Rehearsed:
    """Two owned offers and two rented ones, where every start ends as the history says."""

    def __init__(self, jobs: int, home: str) -> None:
        cloud = kit.offer("cloud", sold_by="attempt")
        self.penstock = kit.given(kit.site("lab"), kit.site("annex"), cloud, kit.offer("nodes"))
        self.open: dict[str, str] = {}  #: attempts whose start is unanswered, with their offer
        spec = JobSpec(8, expected_run_ms=HOUR, home=home)
        self._take(*(e.JobSubmitted(0, number, f"j{number}", spec) for number in range(jobs)))

    def _take(self, *facts: e.Fact) -> None:
        ready: list[e.Fact] = []
        for action in self.penstock.takes(*facts):
            if isinstance(action, StartAttempt):
                self.open[action.attempt] = action.offer
            elif isinstance(action, LaunchNode):
                ready.append(e.NodeReady(facts[0].at, action.node))
        for fact in ready:
            self._take(fact)

    def goes_on(self, which: int, outcome: Outcome) -> None:
        """One open start ends so; if none is open, time passes until something is due."""
        at = self.penstock.engine.state.at + SECOND
        if not self.open:
            due = self.penstock.wakes()
            if due is not None:
                self._take(e.Woke(max(at, due)))
            return
        attempt = list(self.open)[which % len(self.open)]
        del self.open[attempt]
        if outcome in ("lost", "stopped", "kept", "late"):
            self._take(e.AttemptStarted(at, attempt))
            at += 20 * MINUTE if outcome == "late" else SECOND
        self._take(*_facts(attempt, outcome, at))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from(["", "lab"]),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(OUTCOMES)), min_size=5, max_size=40),
)
def test_no_start_fails_a_third_time_in_the_same_way_without_a_longer_pause(
    jobs: int, home: str, history: list[tuple[int, Outcome]]
) -> None:
    """The kit checks after every step that folding the record gives the same state."""
    rehearsed = Rehearsed(jobs, home)
    for which, outcome in history:
        rehearsed.goes_on(which, outcome)
    before: dict[tuple[str, str], e.RetryPromised] = {}
    for step in rehearsed.penstock.steps:
        for event in step.outputs:
            match event:
                case e.StartPromised(job=job, offer=offer) if (job, offer) in before:
                    assert event.at >= before[job, offer].retry_at
                case e.RetryPromised(job=job, offer=offer, because=because):
                    last = before.get((job, offer))
                    if because.failures > 1:
                        assert last is not None
                        assert (last.because.cause, last.because.failures) == (because.cause, because.failures - 1)
                        was, now = last.retry_at - last.at, event.retry_at - event.at
                        assert now > was or now == was == GROWN
                    before[job, offer] = event


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([outcome for outcome in OUTCOMES if outcome not in ("kept", "late")]))
def test_one_failure_again_and_again_is_counted_up_to_the_longest_pause(outcome: Outcome) -> None:
    rehearsed = Rehearsed(1, "lab")
    for _ in range(60):
        rehearsed.goes_on(0, outcome)
    promised = [event for step in rehearsed.penstock.steps for event in step.outputs]
    there = [event for event in promised if isinstance(event, e.RetryPromised) and event.offer == "annex"]
    assert [event.because.failures for event in there] == list(range(1, len(there) + 1))
    assert there[-1].retry_at - there[-1].at == GROWN
