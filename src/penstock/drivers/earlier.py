"""What the attempts of a home Job have done so far, added up from the journal's facts: run time, and how pods ended.

The front door shows it on the home Job and sends it along with the next attempt, as an annotation on the manifest; the
Kubernetes driver gives that attempt only what is left of the user's own limits.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from penstock.core.model import events as e
from penstock.core.model.types import PodCounts
from penstock.core.units import Instant, Millis
from penstock.core.values import value
from penstock.kube import annotations, indexes

NUMBERS: Final = ("ran_ms", "succeeded", "failed", "own_failures")
TEXTS: Final = ("completed_indexes", "failed_indexes")


@value
class Earlier:
    """Over all attempts that ended. Those of drivers that count no pods count as one failed pod each, if they ran."""

    ran_ms: Millis = 0  # from start to end; queued time is none of it
    succeeded: int = 0
    failed: int = 0
    own_failures: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    last: PodCounts | None = None  # of the last attempt that ended; None: not counted there


class AttemptTally:
    """Adds up a job's facts as they come."""

    def __init__(self) -> None:
        self.earlier = Earlier()
        self.started: dict[str, Instant] = {}
        self.over: set[str] = set()

    def hear(self, event: Any) -> None:
        if isinstance(event, e.AttemptStarted):
            self.started.setdefault(event.attempt, event.at)
        elif isinstance(event, e.AttemptEnded | e.AttemptStopped | e.AttemptLost) and event.attempt not in self.over:
            self.over.add(event.attempt)  # a fact may be told twice
            self.earlier = self._with(event)

    def _with(self, event: e.AttemptEnded | e.AttemptStopped | e.AttemptLost) -> Earlier:
        before, pods = self.earlier, event.pods
        is_stop = isinstance(event, e.AttemptStopped) or getattr(event, "outcome", "") == "done"
        never_ran = isinstance(event, e.AttemptLost) and event.attempt not in self.started
        counted = pods or PodCounts(failed=0 if is_stop or never_ran else 1)
        done = indexes.together(before.completed_indexes, counted.completed_indexes)
        return Earlier(
            ran_ms=before.ran_ms + max(0, event.at - self.started.get(event.attempt, event.at)),
            succeeded=len(indexes.read(done)) if done else before.succeeded + counted.succeeded,
            failed=before.failed + counted.failed,
            own_failures=before.own_failures + counted.own_failures,
            completed_indexes=done,
            failed_indexes=indexes.together(before.failed_indexes, counted.failed_indexes),
            last=pods,
        )


def tallied(events: Iterable[Any]) -> Earlier:
    tally = AttemptTally()
    for event in events:
        tally.hear(event)
    return tally.earlier


# --- on the manifest that a driver gets ------------------------------------------------------------------------------


def written(earlier: Earlier) -> str:
    """The annotation's text; empty if there is nothing to say."""
    fields = {name: amount for name in (*NUMBERS, *TEXTS) if (amount := getattr(earlier, name))}
    return json.dumps(fields, sort_keys=True) if fields else ""


def of_manifest(manifest: dict[str, Any]) -> Earlier:
    text = ((manifest.get("metadata") or {}).get("annotations") or {}).get(annotations.EARLIER) if manifest else None
    fields = json.loads(text) if text else {}
    return Earlier(**{name: content for name, content in fields.items() if name in (*NUMBERS, *TEXTS)})
