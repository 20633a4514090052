"""The audit trail: who did what, with the value before and after. `projection` makes its rows from the chain.

A row names people by opaque ids. Addresses and the words of commands are blobs beside the chain, which has their salted
digests only: they can be erased, and the chain still verifies.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.model import events as e
from penstock.core.model.types import Site
from penstock.core.units import Instant
from penstock.core.values import value

#: Who acts where no token does.
SITES_FILE: Final = "sites file"


@value
class AuditRow:
    number: int  # of its step
    part: int  # its index in the step
    at: Instant
    who: str  # a token's id, or the opaque id of a cluster's user; empty: Penstock itself
    did: str  # one of `DID`
    about: str  # a job, an attempt, a token, a scope
    before: str
    after: str
    details: str  # digest of the erasable blob; empty: there is none


@value
class AuditFilter:
    """Empty fields match all."""

    who: str = ""
    did: str = ""
    about: str = ""


#: What somebody did, about what, before, after.
Deed = tuple[str, str, str, str]


def _retry(event: e.JobSubmitted) -> Deed | None:
    return ("retry", event.job, event.retries, event.job) if event.retries else None


def _answered(event: e.ApprovalAnswered) -> Deed:
    """Amounts in micro-units: what the job might cost in all, before and after."""
    before = "" if event.before is None else str(event.before)
    after = str(event.amount) if event.approved and event.amount is not None else ""
    return "approve" if event.approved else "deny", event.job, before, after


def _policy(event: e.PolicySet) -> Deed | None:
    """Only what a person applied; starts and files are in the policy's own history."""
    before, after = f"revision {event.revision - 1}", f"revision {event.revision}"
    return ("policy", event.policy.governance.digest, before, after) if event.by else None


def _site(event: e.SiteJoined | e.SiteRemoved) -> Deed | None:
    """Only what a person applied. Offers by name; the event has all of both sites."""
    site = event.site if isinstance(event, e.SiteJoined) else None
    name = site.id if site is not None else str(event.site)
    return ("site", name, _offers(event.before), _offers(site)) if event.by else None


def _offers(site: Site | None) -> str:
    offers = () if site is None else site.offers
    return ", ".join(f"{offer.id} (closed)" if offer.closed else offer.id for offer in offers)


def _cap(event: e.CapSet) -> Deed:
    before = _amounts(event.before_per_period, event.before_per_hour)
    return "cap", event.scope, before, _amounts(event.per_period, event.per_hour)


def _raise(event: e.CapRaiseAsked) -> Deed:
    before = _amounts(event.before_per_period, event.before_per_hour)
    return "cap asked", event.scope, before, _amounts(event.per_period, event.per_hour)


def _amounts(per_period: int | None, per_hour: int | None) -> str:
    """Caps in micro-units; empty: none."""
    amounts = [f"{per_period} a month"] if per_period is not None else []
    return ", ".join(amounts + ([f"{per_hour} an hour"] if per_hour is not None else []))


def _issued(event: e.TokenIssued) -> Deed:
    did = "login" if event.made_by else "token made"
    return did, event.token, event.made_by, f"{event.role} of {event.team}" if event.team else event.role


TOLD: Final[Mapping[type, Callable[[Any], Deed | None]]] = {
    e.JobSubmitted: _retry,
    e.CancelRequested: lambda event: ("cancel", event.job, event.before, ""),
    e.SuspendRequested: lambda event: ("suspend", event.job, "", ""),
    e.ResumeRequested: lambda event: ("resume job", event.job, "", ""),
    e.MoveRequested: lambda event: ("move", event.job, event.before, event.offer),
    e.ApprovalAnswered: _answered,
    e.PolicySet: _policy,
    e.SiteJoined: _site,
    e.SiteRemoved: _site,
    e.CapSet: _cap,
    e.CapRaiseAsked: _raise,
    e.CapRaiseDenied: lambda event: ("cap denied", event.scope, "", ""),
    e.Paused: lambda _: ("pause", "", "", ""),
    e.Resumed: lambda _: ("resume", "", "", ""),
    e.TokenIssued: _issued,
    e.TokenRevoked: lambda event: ("token revoked", event.token, "", ""),
    e.LogRead: lambda event: ("log read", event.job, "", ""),
    e.ExecStarted: lambda event: ("exec", event.attempt, "", ""),
    e.LeaveRequested: lambda event: ("leave", event.site, "", ""),
    e.DetailsErased: lambda event: ("erase", event.who, "", ""),
}
#: All that `AuditRow.did` may say.
DID: Final = (
    "cancel", "move", "retry", "approve", "deny", "policy", "site", "cap", "cap asked", "cap denied", "pause", "resume",
    "token made", "token revoked", "login", "log read", "exec", "leave", "erase",
)  # fmt: skip


def audit_row(number: int, part: int, event: Any) -> AuditRow | None:
    """The event's row; None: it is nothing that somebody did."""
    tell = TOLD.get(type(event))
    entry = tell(event) if tell is not None else None
    if entry is None:
        return None
    did, about, before, after = entry
    who = event.spec.user if isinstance(event, e.JobSubmitted) else event.by
    if not who and isinstance(event, e.CapSet):
        who = SITES_FILE
    return AuditRow(number, part, event.at, who, did, about, before, after, event.details)
