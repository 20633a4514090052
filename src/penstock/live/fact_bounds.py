"""Bounds what sites report: numbers to what the engine counts with, text to what every journal stores.

What people send is refused at the door with a sentence (`config.scalars`). A site's report is not: the end of an
attempt must be recorded, also if the job wrote nonsense into its marks. The plane calls it for every fact it hears.
"""

from dataclasses import replace
from typing import Final

from penstock.core.model import events as e
from penstock.core.model.types import PodCounts
from penstock.core.units import LONGEST_MS, MOST_MONEY, NEVER, PERMILLE

MOST_WORDS: Final = 10_000  #: characters of a site's own words about an end
MOST_SAID: Final = 1_000  #: the same about a start, which is told again and again
MOST_PODS: Final = (1 << 31) - 1  #: as Kubernetes counts
MOST_INDEXES: Final = 500_000  #: characters of a list of indexes; Kubernetes bounds it, too


def bounded(fact: e.Fact) -> e.Fact:
    """The fact with its numbers and words within bounds: the same object if they are, as nearly always."""
    match fact:
        case e.AttemptCheckpointed():
            kept_ms = _within(fact.kept_ms, LONGEST_MS)
            return fact if kept_ms == fact.kept_ms else replace(fact, kept_ms=kept_ms)
        case e.AttemptStopped() | e.AttemptLost():
            return replace(fact, kept_ms=_within(fact.kept_ms, LONGEST_MS), pods=_counts(fact.pods))
        case e.AttemptProgressed():
            return replace(fact, done_permille=_within(fact.done_permille, PERMILLE))
        case e.NodeRefused():
            return replace(fact, retry_ms=_within(fact.retry_ms, LONGEST_MS), words=storable(fact.words, MOST_SAID))
        case e.NodeNotice() | e.GuaranteeChanged():
            return replace(fact, words=storable(fact.words, MOST_SAID))
        case e.AttemptRefused():
            return replace(fact, retry_ms=_within(fact.retry_ms, LONGEST_MS), words=storable(fact.words, MOST_SAID))
        case e.AttemptEnded():
            return replace(fact, detail=storable(fact.detail), pods=_counts(fact.pods))
        case e.AttemptQueued() | e.AttemptStuck():
            return replace(fact, words=storable(fact.words, MOST_SAID))
        case e.DeadlineSet():
            return replace(fact, deadline_at=_within(fact.deadline_at, NEVER))
        case e.Metered():
            return replace(fact, amount=_within(fact.amount, MOST_MONEY))
        case _:
            return fact


def _within(number: int, most: int) -> int:
    return min(max(number, 0), most)


def _counts(pods: PodCounts | None) -> PodCounts | None:
    if pods is None:
        return None
    return PodCounts(
        succeeded=_within(pods.succeeded, MOST_PODS),
        failed=_within(pods.failed, MOST_PODS),
        own_failures=_within(pods.own_failures, MOST_PODS),
        completed_indexes=storable(pods.completed_indexes, MOST_INDEXES),
        failed_indexes=storable(pods.failed_indexes, MOST_INDEXES),
        reason=storable(pods.reason, 100),
        message=storable(pods.message, 1000),
    )


def storable(text: str, most: int = MOST_WORDS) -> str:
    """Text that every database takes: not too long, no zero byte, no half of a surrogate pair."""
    return text[:most].replace("\0", "\ufffd").encode(errors="replace").decode()
