"""A job's story as Kubernetes Events: the same sentences as `penstock why`, each with the word of its reason.

A `EventRecorder` hears a job's events as the journal is followed; the door posts its lines: those that came together in
one Event. It is named by the Job and by its last line's place in the story, so that telling it twice is telling it
once.
"""

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.model import events as e
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.explain.story import StoryLine, StoryTeller
from penstock.front.status import Why, when
from penstock.kube.references import Json, part

BAD: Final = ("JobRefused", "AttemptLost", "AttemptRefused", "RenewalDenied")
COMPONENT: Final = "penstock"
LONGEST: Final = 1000  #: letters of an Event's message, by the API's rule
#: Shown by the Job's status, or by none: no Event of their own. They are told with the next line that is worth one.
QUIET: Final = ("Running", "LeaseRenewed")
#: An Event of several lines is called by another of them.
LESSER: Final = (*QUIET, "Submitted", "Settled")
Lines = Sequence[tuple[str, bool, StoryLine]]


@value
class News:
    """One Event: so many lines of the story are told with it."""

    upto: int
    reason: str
    words: str
    bad: bool
    at: Instant


class EventRecorder:
    def __init__(self, job: str, home: str, uid: str, currency: str, number: int = 0) -> None:
        """`number`: of the last row that it will have heard of once it has heard its story so far."""
        self.job, self.home, self.uid, self.number = job, home, uid, number
        self.story = StoryTeller(job)
        self.story.currency = currency
        self.lines: list[tuple[str, bool, StoryLine]] = []  #: reason, is it bad, and the line itself
        self.told = 0  #: so many are posted, or too old to be

    def hear(self, event: Any) -> bool:
        """Was it news?"""
        before = len(self.story.lines)
        self.story.hear(event)
        for line in self.story.lines[before:]:
            self.lines.append((reason_of(event), _is_bad(event), line))
        return len(self.story.lines) > before

    @property
    def why(self) -> Why | None:
        """That its lease goes on is no reason, and comes too often to be written on a Job."""
        for reason, _, line in reversed(self.lines):
            if reason != "LeaseRenewed":
                return Why(reason, line.text, line.at)
        return None

    @property
    def has_news(self) -> bool:
        return any(reason not in QUIET for reason, _, _ in self.lines[self.told :])

    @property
    def news(self) -> News | None:
        """As much of what was not told yet as goes into one Event."""
        if not self.has_news:
            return None
        upto, letters = self.told + 1, len(self.lines[self.told][2].text)
        while upto < len(self.lines) and letters + len(self.lines[upto][2].text) < LONGEST:
            letters += 1 + len(self.lines[upto][2].text)
            upto += 1
        lines = self.lines[self.told : upto]
        words = " ".join(line.text for _, _, line in lines)
        return News(upto, _word(lines), words, any(bad for _, bad, _ in lines), lines[-1][2].at)

    def forget_before(self, at: Instant) -> None:
        """What is older was told in another life."""
        self.told = sum(line.at < at for _, _, line in self.lines)


def _word(lines: Lines) -> str:
    """The newest that says most: what went wrong, then what was decided."""
    bad = [reason for reason, is_bad, _ in lines if is_bad]
    decided = [reason for reason, _, _ in lines if reason not in LESSER]
    return (bad or decided or [lines[-1][0]])[-1]


#: An Event's `reason` where the journal's own name is not the word that users know.
REASONS: Final = {
    "JobSubmitted": "Submitted",
    "AttemptStarted": "Running",
    "AttemptStopped": "Stopped",
    "AttemptLost": "Preempted",
    "AttemptRefused": "NoCapacity",
    "AttemptQueued": "QueuedAtSite",
}


def reason_of(event: Any) -> str:
    because = getattr(event, "because", None)
    if isinstance(event, e.AttemptEnded):
        return "Succeeded" if event.outcome == "done" else "Failed"
    name = type(event).__name__
    return str(because.kind) if because is not None else REASONS.get(name, name)


def _is_bad(event: Any) -> bool:
    failed = isinstance(event, e.AttemptEnded) and event.outcome != "done"
    return failed or type(event).__name__ in BAD


def event_of(job: Json, part_name: str, reason: str, message: str, bad: bool, at: Instant) -> Json:
    """`part_name` makes it one of its kind."""
    metadata = part(job, "metadata")
    name = f"{str(metadata.get('name', ''))[:200]}.{str(metadata.get('uid', ''))[:8]}.{part_name}"
    return {
        "metadata": {"name": name, "namespace": metadata.get("namespace", "default")},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata.get("name"),
            "namespace": metadata.get("namespace"),
            "uid": metadata.get("uid"),
        },
        "reason": reason,
        "message": message[:LONGEST],
        "type": "Warning" if bad else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": "penstock.dev/front-door",
        "firstTimestamp": when(at),
        "lastTimestamp": when(at),
        "count": 1,
    }
