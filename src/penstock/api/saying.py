"""Events and reasons as sentences and plain JSON, for lists, pages and streams. A whole story is `journal.story`'s."""

import json
import re
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from penstock.api.schemas import Reason
from penstock.core import events as e
from penstock.core.reasons import REASONS
from penstock.core.reasons import Reason as CoreReason
from penstock.core.units import NEVER, Instant
from penstock.journal import codec
from penstock.journal.story import Teller
from penstock.journal.words import duration


@lru_cache(maxsize=4_096)  # pages show the same jobs again and again, and what was recorded does not change
def reason(because: str, until_at: Instant | None, currency: str) -> Reason | None:
    """A recorded reason, from the journal's JSON."""
    if not because:
        return None
    numbers: dict[str, Any] = json.loads(because)
    return reason_shape(codec.reader(REASONS[numbers["kind"]])(numbers), until_at, currency)


def reason_shape(made: CoreReason, until_at: Instant | None, currency: str) -> Reason:
    says = teller("", currency).sentence(made, NEVER if until_at is None else until_at)
    return Reason(kind=made.kind, numbers={k: v for k, v in asdict(made).items() if k != "kind"}, says=says)


def plain(event: Any) -> dict[str, Any]:
    """An event's fields as the journal writes them."""
    ((_, fields),) = json.loads(codec.encode([event]))
    assert isinstance(fields, dict)
    return fields


def teller(job: str, currency: str) -> Teller:
    made = Teller(job)
    made.currency = currency
    return made


def says(event: Any, currency: str) -> str:
    """One event as one sentence, without what went before."""
    if known := SHORT.get(type(event).__name__):
        percent = getattr(event, "done_permille", 0) // 10
        return known.format(event=event, kept=duration(getattr(event, "kept_ms", 0)), percent=percent)
    if isinstance(event, e.AttemptEnded):
        detail = f" ({event.detail})" if event.detail else ""
        return "Done." if event.outcome == "done" else f"Failed by its own fault{detail}."
    if isinstance(event, e.StopPromised):
        return f"Told to checkpoint and stop. {teller('', currency).sentence(event.because)}"
    if not getattr(event, "job", ""):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(event).__name__).capitalize() + "."
    heard = teller(event.job, currency)
    heard.hear(event)
    return heard.lines[-1].text if heard.lines else ""


#: Events that a story tells only together with what went before them.
SHORT: Final[dict[str, str]] = {
    "AttemptStarted": "Runs.",
    "AttemptQueued": "Waits at the site: {event.words}.",
    "AttemptStopped": "Stopped; {kept} of work is kept.",
    "AttemptLost": "Its capacity was taken away; {kept} of work is kept.",
    "AttemptRefused": "There was no room after all.",
    "AttemptCheckpointed": "Wrote a checkpoint; {kept} of work is kept.",
    "AttemptProgressed": "{percent} % done, by its own account.",
    "NodeReady": "Its node is ready.",
    "NodeLost": "Its node was lost.",
    "NodeGone": "Its node is given back.",
    "NodeRefused": "The provider has no such node now.",
    "SiteJoined": "{event.site.id} is a site.",
    "SiteLost": "{event.site} cannot be reached.",
    "SiteBack": "{event.site} is back.",
    "NodesSeen": "{event.offer} shows its nodes anew.",
    "OfferClosed": "{event.offer} had no room; nobody tries it for a while.",
    "OfferOpened": "{event.offer} may be tried again.",
    "CapSet": "The cap of {event.scope} was set.",
    "PeriodOpened": "The books of {event.period} are open.",
    "PolicySet": "Policy {event.policy.name} is in force.",
    "EventQuarantined": "A fact was set aside: {event.what} {event.about}: {event.error}.",
}
