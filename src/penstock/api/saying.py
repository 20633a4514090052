"""Events and reasons as sentences and plain JSON, for lists, pages and streams. A whole story is `journal.story`'s."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.api.schemas import Reason
from penstock.core import events as e
from penstock.core.reasons import REASONS
from penstock.core.units import NEVER, Instant
from penstock.journal import codec
from penstock.journal.story import Teller
from penstock.journal.words import duration

ATTEMPT: Final = re.compile(r"(?P<job>.+)\.[0-9]+(?:/n[0-9]+)?")


def reason(because: str, until_at: Instant | None, currency: str) -> Reason | None:
    """A recorded reason, from the journal's JSON."""
    if not because:
        return None
    numbers: dict[str, Any] = json.loads(because)
    made = codec.reader(REASONS[numbers["kind"]])(numbers)
    says = teller("", currency).sentence(made, NEVER if until_at is None else until_at)
    return Reason(kind=numbers.pop("kind"), numbers=numbers, says=says)


def plain(event: Any) -> dict[str, Any]:
    """An event's fields as the journal writes them."""
    ((_, fields),) = json.loads(codec.encode([event]))
    assert isinstance(fields, dict)
    return fields


def job_of(event: Any) -> str:
    """The job that an event concerns: its own, or its attempt's, node's or hold's, whose ids begin with the job's."""
    if job := getattr(event, "job", ""):
        return str(job)
    thing = next((found for key in ("attempt", "node", "hold", "thing") if (found := getattr(event, key, ""))), "")
    found = ATTEMPT.fullmatch(str(thing))
    return found["job"] if found else ""


def teller(job: str, currency: str) -> Teller:
    made = Teller(job)
    made.currency = currency
    return made


def says(event: Any, currency: str) -> str:
    """One event as one sentence, without what went before."""
    if known := SHORT.get(type(event).__name__):
        return known(event)
    if isinstance(event, e.StopPromised):
        return f"Told to checkpoint and stop. {teller('', currency).sentence(event.because)}"
    if not getattr(event, "job", ""):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(event).__name__).capitalize() + "."
    heard = teller(event.job, currency)
    heard.hear(event)
    return heard.lines[-1].text if heard.lines else ""


#: Events that a story tells only together with what went before them.
SHORT: Final[dict[str, Callable[[Any], str]]] = {
    "AttemptStarted": lambda event: "Runs.",
    "AttemptEnded": lambda event: "Done." if event.outcome == "done" else "Failed by its own fault.",
    "AttemptStopped": lambda event: f"Stopped; {duration(event.kept_ms)} of work is kept.",
    "AttemptLost": lambda event: f"Its capacity was taken away; {duration(event.kept_ms)} of work is kept.",
    "AttemptRefused": lambda event: "There was no room after all.",
    "AttemptCheckpointed": lambda event: f"Wrote a checkpoint; {duration(event.kept_ms)} of work is kept.",
    "SiteLost": lambda event: f"{event.site} cannot be reached.",
    "SiteBack": lambda event: f"{event.site} is back.",
    "SiteJoined": lambda event: f"{event.site.id} is a site.",
    "NodeReady": lambda event: "Its node is ready.",
    "NodeLost": lambda event: "Its node was lost.",
    "NodeGone": lambda event: "Its node is given back.",
    "NodeRefused": lambda event: "The provider has no such node now.",
    "OfferClosed": lambda event: f"{event.offer} had no room; nobody tries it for a while.",
    "OfferOpened": lambda event: f"{event.offer} may be tried again.",
    "CapSet": lambda event: f"The cap of {event.scope} was set.",
    "PeriodOpened": lambda event: f"The books of {event.period} are open.",
    "PolicySet": lambda event: f"Policy {event.policy.name} is in force.",
}
