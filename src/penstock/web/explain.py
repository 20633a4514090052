"""Events and reasons as sentences and JSON, for lists, pages and streams. Whole stories are in `explain.story`."""

import json
import re
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.core.model import events as e
from penstock.core.model.reasons import REASONS, NothingAllowed
from penstock.core.model.reasons import Reason as CoreReason
from penstock.core.units import MINUTE, NEVER, Instant
from penstock.explain.sentences import Say, sentence, stop_sentence
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
    if known := SHORT.get(type(event).__name__):
        percent = getattr(event, "done_permille", 0) // 10
        return known.format(event=event, kept=duration(getattr(event, "kept_ms", 0)), percent=percent).rstrip()
    if isinstance(event, e.AttemptEnded):
        detail = f": {event.detail}" if event.detail else ""
        return "Succeeded." if event.outcome == "done" else f"Failed (application){detail}."
    if isinstance(event, e.StopPromised):
        return stop_sentence(event.because, Say(currency))
    if isinstance(event, e.WarmPromised):
        return f"A node is rented ahead at {event.offer}. {teller('', currency).sentence(event.because)}"
    if isinstance(event, e.ReleasePromised) or (isinstance(event, e.PayerChanged) and not event.job):
        return teller("", currency).sentence(event.because)
    if isinstance(event, e.WarmShort) and isinstance(event.because, NothingAllowed):
        where = f" ({event.because.where})" if event.because.where else ""
        return f"The warm pool of {event.offer} rents nothing: {event.because.rule}{where}."
    if isinstance(event, e.ClusterPromised):
        return f"A cluster is asked for at {event.site}. {teller('', currency).sentence(event.because)}"
    if isinstance(event, e.ClusterShort):
        return f"Site {event.site} has no cluster. {teller('', currency).sentence(event.because)}"
    if isinstance(event, e.WarmShort):
        return f"The warm pool of {event.offer} has too few nodes. {teller('', currency).sentence(event.because)}"
    if not getattr(event, "job", ""):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(event).__name__).capitalize() + "."
    heard = teller(event.job, currency)
    heard.hear(event)
    return heard.lines[-1].text if heard.lines else ""


#: Events that a story tells only in context.
SHORT: Final[dict[str, str]] = {
    "AttemptStarted": "Running.",
    "AttemptQueued": "Queued at its site: {event.words}.",
    "AttemptStopped": "Stopped; {kept} of work kept.",
    "AttemptLost": "Preempted: it lost its node; {kept} of work kept.",
    "AttemptStuck": "Its site has not started it yet: {event.words}",
    "AttemptRefused": "The site did not start it. {event.words}",
    "AttemptCheckpointed": "Wrote a checkpoint; {kept} of work kept.",
    "AttemptProgressed": "{percent} % done, as the job reports.",
    "NodeReady": "Its node is ready.",
    "NodeLost": "Its node was lost.",
    "NodeGone": "Its node was returned.",
    "NodeRefused": "The provider has no such node now. {event.words}",
    "NodeNotice": "Its node will be taken away. {event.words}",
    "SiteJoined": "Site {event.site.id} joined.",
    "SiteRemoved": "Site {event.site} was removed from the sites file.",
    "SiteLost": "Site {event.site} cannot be reached.",
    "ClusterAsked": "A person wants the cluster of site {event.site}.",
    "ClusterDismissed": "A person sent the cluster of site {event.site} away.",
    "SiteBack": "Site {event.site} is back.",
    "NodesSeen": "{event.offer} reported its nodes.",
    "GuaranteeChanged": "How what is rented at {event.offer} ends without Penstock: {event.guarantee}. {event.words}",
    "OfferClosed": "{event.offer} had no capacity; Penstock tries it again later.",
    "OfferOpened": "Penstock tries {event.offer} again.",
    "CapSet": "The cap of {event.scope} was set.",
    "CapRaiseAsked": "A person asks for a higher cap of {event.scope}; another must approve it.",
    "CapRaiseDenied": "A person denied a higher cap of {event.scope}.",
    "PeriodOpened": "The budgets of {event.period} are open.",
    "HoursOpened": "Hours of the policy: {event.window}.",
    "TokenIssued": "Token {event.token} was made.",
    "TokenRevoked": "Token {event.token} was revoked.",
    "LogRead": "Somebody who sees all teams read its log.",
    "ExecStarted": "A person runs a command in it.",
    "LeaveRequested": "A person asked that {event.site} gets its Jobs back.",
    "DetailsErased": "The name, addresses and words recorded about {event.who} were erased.",
    "PolicySet": "Policy {event.policy.name} is in force.",
    "EventQuarantined": "Penstock set aside {event.what} about {event.about}, a fact it cannot process: {event.error}.",
}
