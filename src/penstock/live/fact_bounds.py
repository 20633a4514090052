"""Bounds what sites report: numbers to what the engine counts with, text to what every journal stores.

What people send is refused at the door with a sentence (`config.scalars`). A site's report is not: the end of an
attempt must be recorded, also if the job wrote nonsense into its marks. The plane calls it for every fact it hears.
"""

from dataclasses import replace
from typing import Final

from penstock.core.model import events as e
from penstock.core.units import LONGEST_MS, MOST_MONEY, NEVER, PERMILLE

MOST_WORDS: Final = 10_000  #: characters of a site's own words about an end
MOST_SAID: Final = 1_000  #: the same about a start, which is told again and again


def bounded(fact: e.Fact) -> e.Fact:
    """The fact with its numbers and words within bounds: the same object if they are, as nearly always."""
    match fact:
        case e.AttemptCheckpointed() | e.AttemptStopped() | e.AttemptLost():
            kept_ms = _within(fact.kept_ms, LONGEST_MS)
            return fact if kept_ms == fact.kept_ms else replace(fact, kept_ms=kept_ms)
        case e.AttemptProgressed():
            return replace(fact, done_permille=_within(fact.done_permille, PERMILLE))
        case e.NodeRefused():
            return replace(fact, retry_ms=_within(fact.retry_ms, LONGEST_MS))
        case e.AttemptRefused():
            return replace(fact, retry_ms=_within(fact.retry_ms, LONGEST_MS), words=storable(fact.words, MOST_SAID))
        case e.AttemptEnded():
            return replace(fact, detail=storable(fact.detail))
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


def storable(text: str, most: int = MOST_WORDS) -> str:
    """Text that every database takes: not too long, no zero byte, no half of a surrogate pair."""
    return text[:most].replace("\0", "\ufffd").encode(errors="replace").decode()
