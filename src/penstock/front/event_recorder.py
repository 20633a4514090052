"""Event recorder: turns a job's story into Kubernetes Events, with the sentences of `penstock why`.

The follower feeds an `EventRecorder` with the job's events; the status writer posts the lines that are not posted yet,
several in one Event. An Event's name has the Job and the number of lines told so far, so posting it again is refused as
`AlreadyExists`.
"""

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.model import events as e
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.drivers.earlier import AttemptTally
from penstock.explain.story import StoryLine, StoryTeller
from penstock.front.status import Why, when
from penstock.kube.references import Json, part

BAD: Final = (
    "JobRefused",
    "JobFailed",
    "AttemptLost",
    "AttemptRefused",
    "AttemptStuck",
    "RenewalDenied",
    "RetryPromised",
)
COMPONENT: Final = "penstock"
LONGEST: Final = 1000  #: characters of an Event's message
RUNNING: Final = "Running"
STUCK: Final = "NotStarting"
#: These get no Event of their own: the status shows them. The next Event includes them.
QUIET: Final = ("LeaseRenewed",)
#: Reasons that name an Event of several lines only if no other line has a better one.
LESSER: Final = (*QUIET, RUNNING, "Submitted", "Settled")
#: What the Job controller calls these, too.
ASKED: Final = ("Suspended", "Resumed")
Lines = Sequence[tuple[str, bool, StoryLine]]


@value
class News:
    """One Event to post. `upto`: how many lines of the story are told once it is posted."""

    upto: int
    reason: str
    words: str
    bad: bool
    at: Instant
    runs: bool = False  # it tells that an attempt runs


class EventRecorder:
    def __init__(self, job: str, home: str, uid: str, currency: str, number: int = 0) -> None:
        """`number`: the last journal row that the caller feeds while it replays the story; newer rows come from the
        follower.
        """
        self.job, self.home, self.uid, self.number = job, home, uid, number
        self.story = StoryTeller(job)
        self.tally = AttemptTally()  #: of its attempts that ended
        self.suspended = False  #: by a person
        self.story.currency = currency
        self.lines: list[tuple[str, bool, StoryLine]] = []  #: reason, whether it is a Warning, and the line
        self.posted = 0  #: lines that are posted, or too old to post

    def hear(self, event: Any) -> bool:
        """Feed one event; true if it added a line to the story."""
        self.tally.hear(event)
        if isinstance(event, e.SuspendRequested | e.ResumeRequested):
            self.suspended = isinstance(event, e.SuspendRequested)
        before = len(self.story.lines)
        self.story.hear(event)
        for line in self.story.lines[before:]:
            self.lines.append((reason_of(event), _is_bad(event), line))
        if self.lines and self.story.lines[-1] is not self.lines[-1][2]:  # leases renewed together share a line
            self.lines[-1] = (*self.lines[-1][:2], self.story.lines[-1])
        return len(self.story.lines) > before

    @property
    def why(self) -> Why | None:
        """The last reason for the Job's status. Renewed leases are left out: they are frequent and explain nothing."""
        for reason, _, line in reversed(self.lines):
            if reason != "LeaseRenewed":
                return Why(reason, line.text, line.at)
        return None

    @property
    def has_news(self) -> bool:
        return any(reason not in QUIET for reason, _, _ in self.lines[self.posted :])

    @property
    def news(self) -> News | None:
        """The next Event: as many untold lines as fit into one message, and no two of which each needs its own name."""
        if not self.has_news:
            return None
        upto, letters = self.posted + 1, len(self.lines[self.posted][2].text)
        while (
            upto < len(self.lines)
            and letters + len(self.lines[upto][2].text) < LONGEST
            and not self._needs_its_own(upto)
        ):
            letters += 1 + len(self.lines[upto][2].text)
            upto += 1
        lines = self.lines[self.posted : upto]
        words = " ".join(line.text for _, _, line in lines)
        runs = any(reason == RUNNING for reason, _, _ in lines)
        return News(upto, _word(lines), words, any(bad for _, bad, _ in lines), lines[-1][2].at, runs)

    def _needs_its_own(self, number: int) -> bool:
        """What its user asked for is told by its own name, whatever happened just before; and so is a failure after
        it, or after another failure.
        """
        reason, bad, _ = self.lines[number]
        before = self.lines[self.posted : number]
        failed = {other for other, was_bad, _ in before if was_bad}
        return reason in ASKED or (bad and (before[0][0] in ASKED or bool(failed - {reason})))

    @property
    def tells_of_a_start(self) -> bool:
        return any(reason == RUNNING for reason, _, _ in self.lines[self.posted :])

    def forget_before(self, at: Instant) -> None:
        """Mark older lines as posted, by an earlier process."""
        self.posted = sum(line.at < at for _, _, line in self.lines)


def _word(lines: Lines) -> str:
    """The Event's reason: the newest failure, else what its user asked for, else the newest decision, else the last
    line's own.
    """
    asked = [reason for reason, _, _ in lines if reason in ASKED]
    bad = [reason for reason, is_bad, _ in lines if is_bad]
    decided = [reason for reason, _, _ in lines if reason not in LESSER]
    return (bad or asked or decided or [lines[-1][0]])[-1]


#: The Event's `reason` where users know another word than the journal's.
REASONS: Final = {
    "JobSubmitted": "Submitted",
    "AttemptStarted": RUNNING,
    "AttemptStopped": "Stopped",
    "AttemptLost": "Preempted",
    "AttemptRefused": "NoCapacity",
    "AttemptQueued": "QueuedAtSite",
    "AttemptStuck": STUCK,
    "SuspendRequested": "Suspended",
    "ResumeRequested": "Resumed",
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
    """The Event as an API object. `part_name` ends its name and makes it unique for the Job."""
    return event_about({**job, "apiVersion": "batch/v1", "kind": "Job"}, part_name, reason, message, bad, at)


def event_about(obj: Json, part_name: str, reason: str, message: str, bad: bool, at: Instant) -> Json:
    """The same about any object that says its kind."""
    metadata = part(obj, "metadata")
    name = f"{str(metadata.get('name', ''))[:200]}.{str(metadata.get('uid', ''))[:8]}.{part_name}"
    return {
        "metadata": {"name": name, "namespace": metadata.get("namespace", "default")},
        "involvedObject": {
            "apiVersion": obj.get("apiVersion"),
            "kind": obj.get("kind"),
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
