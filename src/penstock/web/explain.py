"""Events and reasons as sentences and JSON, for lists, pages and streams. Whole stories are in `explain.story`."""

import json
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import msgspec

from penstock.core.model import events as e
from penstock.core.model.reasons import REASONS, NothingAllowed
from penstock.core.model.reasons import Reason as CoreReason
from penstock.core.units import MINUTE, NEVER, Instant
from penstock.explain.event_words import words_of
from penstock.explain.sentences import Say, as_sentence, sentence, stop_sentence
from penstock.explain.story import StoryTeller
from penstock.formatting import duration
from penstock.journal import codec
from penstock.web.schemas import Reason


@lru_cache(maxsize=4_096)  # pages show the same jobs repeatedly, and records do not change
def reason(because: str, until_at: Instant | None, currency: str, minutes_ago: int = 0) -> Reason | None:
    """A recorded reason, from the journal's JSON. `minutes_ago`: the age of its numbers, if it should be shown."""
    if not because:
        return None
    numbers: dict[str, Any] = json.loads(because)
    return reason_shape(codec.reader(REASONS[numbers["kind"]])(numbers), until_at, currency, minutes_ago)


@lru_cache(maxsize=4_096)
def reason_json(because: str, until_at: Instant | None, currency: str, minutes_ago: int = 0) -> tuple[str, msgspec.Raw]:
    """The same as JSON, and its kind; null and empty if there is none."""
    shape = reason(because, until_at, currency, minutes_ago)
    return ("", msgspec.Raw(b"null")) if shape is None else (shape.kind, msgspec.Raw(shape.model_dump_json().encode()))


def reason_shape(made: CoreReason, until_at: Instant | None, currency: str, minutes_ago: int = 0) -> Reason:
    says = sentence(made, Say(currency, NEVER if until_at is None else until_at, minutes_ago * MINUTE))
    return Reason(kind=made.kind, numbers={k: v for k, v in asdict(made).items() if k != "kind"}, says=says)


def plain(event: Any) -> dict[str, Any]:
    """An event's fields as the journal encodes them."""
    ((_, fields),) = json.loads(codec.encode([event]))
    assert isinstance(fields, dict)
    return fields


def teller(job: str, currency: str) -> StoryTeller:
    made = StoryTeller(job)
    made.currency = currency
    return made


def says(event: Any, currency: str) -> str:
    """One event as a sentence, without its context."""
    heard = teller(getattr(event, "job", ""), currency)
    match event:
        case e.AttemptEnded(outcome="done"):
            return "Succeeded."
        case e.AttemptEnded(detail=detail):
            return f"Failed: {as_sentence(detail)}" if detail else "Failed: its own program ended with an error."
        case e.StopPromised(because=because):
            return stop_sentence(because, Say(currency))
        case e.WarmShort(offer=offer, because=NothingAllowed(rule=rule, where=where)):
            return f"The warm pool of {offer} rents nothing: {rule}{f' ({where})' if where else ''}."
    if words := words_of(event).says:
        return _filled(words, event, heard)
    heard.hear(event)
    return heard.lines[-1].text if heard.lines else f"{type(event).__name__}."


def _filled(words: str, event: Any, heard: StoryTeller) -> str:
    because = getattr(event, "because", None)
    filled = words.format(
        event=event,
        because="" if because is None else heard.sentence(because),
        kept=duration(getattr(event, "kept_ms", 0)),
        percent=getattr(event, "done_permille", 0) // 10,
    )
    return filled.rstrip()
