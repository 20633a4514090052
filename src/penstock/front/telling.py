"""A job's story as Kubernetes Events: the same sentences as `penstock why`, each with the word of its reason.

A `Tale` hears a job's events as the journal is followed; the door posts its lines. An Event is named by the Job and by
the line's place in its story, so that telling it twice is telling it once.
"""

from typing import Any, Final

from penstock.core import events as e
from penstock.core.units import Instant
from penstock.front.status import Why, when
from penstock.journal.story import Line, Teller
from penstock.kube.closure import Json, part

BAD: Final = ("JobRefused", "AttemptLost", "AttemptRefused", "RenewalDenied")
COMPONENT: Final = "penstock"
LONGEST: Final = 1000  #: letters of an Event's message, by the API's rule


class Tale:
    def __init__(self, job: str, home: str, uid: str, currency: str) -> None:
        self.job, self.home, self.uid = job, home, uid
        self.teller = Teller(job)
        self.teller.currency = currency
        self.lines: list[tuple[str, bool, Line]] = []  #: reason, is it bad, and the line itself
        self.told = 0  #: so many are posted, or too old to be

    def hear(self, event: Any) -> bool:
        """Was it news?"""
        before = len(self.teller.lines)
        self.teller.hear(event)
        for line in self.teller.lines[before:]:
            self.lines.append((reason_of(event), _is_bad(event), line))
        return len(self.teller.lines) > before

    @property
    def why(self) -> Why | None:
        if not self.lines:
            return None
        reason, _, line = self.lines[-1]
        return Why(reason, line.text, line.at)

    def forget_before(self, at: Instant) -> None:
        """What is older was told in another life."""
        self.told = sum(line.at < at for _, _, line in self.lines)


def job_of(event: Any) -> str:
    """The job that an event concerns; empty: none, or all."""
    if job := getattr(event, "job", ""):
        return str(job)
    thing = getattr(event, "attempt", "") or getattr(event, "hold", "")
    return str(thing).partition("/n")[0].rpartition(".")[0]


def reason_of(event: Any) -> str:
    because = getattr(event, "because", None)
    return str(because.kind) if because is not None else type(event).__name__


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
