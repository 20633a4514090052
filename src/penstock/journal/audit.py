"""The audit trail: who did what, with the value before and after. `projection` makes its rows from the chain.

A row names people by opaque ids. Addresses and the words of commands are blobs beside the chain, which has their salted
digests only: they can be erased, and the chain still verifies.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.model import events as e
from penstock.core.model.types import Site
from penstock.core.units import Instant, Money
from penstock.core.values import value
from penstock.formatting import exact_money, money

#: Who acts where no token does, if the event does not name the file.
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
    reason: str = ""  # in their own words
    asked_by: str = ""  # of what takes two: who asked, or the file that says so


@value
class AuditFilter:
    """Empty fields match all."""

    who: str = ""
    did: str = ""
    about: str = ""


#: What somebody did, about what, before, after.
Deed = tuple[str, str, str, str]


def _retry(event: e.JobSubmitted, _: str) -> Deed | None:
    return ("retry", event.job, event.retries, event.job) if event.retries else None


def _answered(event: e.ApprovalAnswered, currency: str) -> Deed:
    """What the job might cost in all, before and after."""
    before = "" if event.before is None else money(event.before, currency)
    after = money(event.amount, currency) if event.approved and event.amount is not None else ""
    return "approve" if event.approved else "deny", event.job, before, after


def _policy(event: e.PolicySet, _: str) -> Deed | None:
    """Only what a person applied; starts and files are in the policy's own history."""
    before, after = f"revision {event.revision - 1}", f"revision {event.revision}"
    return ("policy", event.policy.governance.digest, before, after) if event.by else None


def _site(event: e.SiteJoined | e.SiteRemoved, _: str) -> Deed | None:
    """Only what a person applied. Offers by name; the event has all of both sites."""
    site = event.site if isinstance(event, e.SiteJoined) else None
    name = site.id if site is not None else str(event.site)
    return ("site", name, _offers(event.before), _offers(site)) if event.by else None


def _offers(site: Site | None) -> str:
    offers = () if site is None else site.offers
    return ", ".join(f"{offer.id} (closed)" if offer.closed else offer.id for offer in offers)


def _cap(event: e.CapSet, currency: str) -> Deed:
    return "cap approved" if event.asked_by else "cap", event.scope, *_caps(event, currency)


def _raise(event: e.CapRaiseAsked, currency: str) -> Deed:
    return "cap asked", event.scope, *_caps(event, currency)


def _caps(event: e.CapSet | e.CapRaiseAsked, currency: str) -> tuple[str, str]:
    """The cap before, and the cap after. A cap that is taken away is named, too."""
    before = _amounts(event.before_per_period, event.before_per_hour, currency)
    after = _amounts(event.per_period, event.per_hour, currency)
    return before, after or ("no cap" if before else "")


def _amounts(per_period: Money | None, per_hour: Money | None, currency: str) -> str:
    """Empty: no cap."""
    amounts = [f"{exact_money(per_period, currency)} a month"] if per_period is not None else []
    return ", ".join(amounts + ([f"{exact_money(per_hour, currency)} an hour"] if per_hour is not None else []))


def _issued(event: e.TokenIssued, _: str) -> Deed:
    did = "login" if event.made_by else "token made"
    return did, event.token, event.made_by, f"{event.role} of {event.team}" if event.team else event.role


def _restored(event: e.JournalRestored, _: str) -> Deed:
    before = f"step {event.step + event.missing}" if event.missing else ""
    return "restore", "journal", before, f"step {event.step}"


TOLD: Final[Mapping[type, Callable[[Any, str], Deed | None]]] = {
    e.JobSubmitted: _retry,
    e.CancelRequested: lambda event, _: ("cancel", event.job, event.before, ""),
    e.SuspendRequested: lambda event, _: ("suspend", event.job, "", ""),
    e.ResumeRequested: lambda event, _: ("resume job", event.job, "", ""),
    e.MoveRequested: lambda event, _: ("move", event.job, event.before, event.offer),
    e.ApprovalAnswered: _answered,
    e.PolicySet: _policy,
    e.SiteJoined: _site,
    e.SiteRemoved: _site,
    e.CapSet: _cap,
    e.CapRaiseAsked: _raise,
    e.CapRaiseDenied: lambda event, _: ("cap denied", event.scope, "", ""),
    e.Paused: lambda *_: ("pause", "", "", ""),
    e.Resumed: lambda *_: ("resume", "", "", ""),
    e.TokenIssued: _issued,
    e.TokenRevoked: lambda event, _: ("token revoked", event.token, "", ""),
    e.LogRead: lambda event, _: ("log read", event.job, "", ""),
    e.ExecStarted: lambda event, _: ("exec", event.attempt, "", ""),
    e.LeaveRequested: lambda event, _: ("leave", event.site, "", ""),
    e.JournalRestored: _restored,
    e.DetailsErased: lambda event, _: ("erase", event.who, "", ""),
}
#: All that `AuditRow.did` may say.
DID: Final = (
    "cancel", "suspend", "resume job", "move", "retry", "approve", "deny", "policy", "site", "cap", "cap asked",
    "cap approved", "cap denied", "pause", "resume", "token made", "token revoked", "login", "log read", "exec",
    "leave", "erase", "restore",
)  # fmt: skip


def audit_row(number: int, part: int, event: Any, currency: str) -> AuditRow | None:
    """The event's row; None: it is nothing that somebody did."""
    tell = TOLD.get(type(event))
    entry = tell(event, currency) if tell is not None else None
    if entry is None:
        return None
    did, about, before, after = entry
    who = event.spec.user if isinstance(event, e.JobSubmitted) else event.by
    if not who and isinstance(event, e.CapSet):
        who = event.source.rpartition(":")[0] or SITES_FILE
    return AuditRow(
        number=number,
        part=part,
        at=event.at,
        who=who,
        did=did,
        about=about,
        before=before,
        after=after,
        details=event.details,
        reason=getattr(event, "reason", ""),
        asked_by=getattr(event, "asked_by", ""),
    )
