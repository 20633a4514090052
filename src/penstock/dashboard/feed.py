"""What just happened and why: the events that people care about, newest first, an icon and a sentence each."""

from typing import Any, Final

from penstock.api import schemas
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.dashboard.queue import href
from penstock.dashboard.words import clock

#: Kind -> icon, and what is said after the job's name; empty: the first sentence of what the event says itself.
TOLD: Final[dict[str, tuple[str, str]]] = {
    "StartPromised": ("start", ""),
    "WaitPromised": ("wait", "waits"),
    "ReservePromised": ("wait", "has nodes kept for it"),
    "StopPromised": ("back", "is told to checkpoint and stop"),
    "JobRefused": ("no", "is refused"),
    "AttemptLost": ("lost", "lost its place"),
    "AttemptRefused": ("no", "found no room after all"),
    "AttemptEnded": ("done", "has ended"),
    "RenewalDenied": ("no", "gets no longer lease"),
    "LeaseCalledBack": ("no", "has its lease shortened"),
    "CancelRequested": ("no", "is cancelled by a person"),
    "MoveRequested": ("burst", ""),
    "NodeLost": ("lost", "lost a rented node"),
    "NodeGone": ("back", "gave a rented node back"),
    "SiteJoined": ("note", ""),
    "SiteLost": ("alarm", ""),
    "SiteBack": ("done", ""),
    "OfferClosed": ("no", ""),
    "CapSet": ("note", ""),
    "PolicySet": ("note", ""),
    "Paused": ("wait", "A person paused new placements"),
    "Resumed": ("start", "Placements go on"),
    "EventQuarantined": ("alarm", ""),
}
BAD: Final = ("lost", "alarm")


@value
class Item:
    id: str
    at: str
    icon: str
    bad: bool
    name: str  # of a job, as typed; empty: about no single one
    href: str
    what: str
    why: str


def items(events: list[schemas.Event], names: dict[str, str], now: Instant) -> list[Item]:
    return [_item(event, names.get(event.job, event.job), now) for event in events if event.kind in TOLD]


def _item(event: schemas.Event, name: str, now: Instant) -> Item:
    icon, what = _icon(event), TOLD[event.kind][1]
    first, _, rest = event.says.partition(". ")
    why = event.says if what else rest
    what = what or (_uncapital(first) if event.job else first).removesuffix(".")
    if event.kind == "AttemptEnded":
        failed = event.event.get("outcome") != "done"
        what, why = ("failed", event.says) if failed else ("is done", "")
    why = "" if event.kind in ("CancelRequested", "Paused", "Resumed", "NodeLost", "NodeGone") else why
    link = href(event.job) if event.job else ""
    return Item(event.id, clock(event.at, now), icon, icon in BAD, name, link, what, why)


def _icon(event: schemas.Event) -> str:
    if event.kind == "AttemptEnded" and event.event.get("outcome") != "done":
        return "no"
    if event.kind != "StartPromised":
        return TOLD[event.kind][0]
    if _kind(event.event.get("because")) == "ComesHome":
        return "home"
    return "burst" if event.event.get("nodes") or event.event.get("hold") else "start"


def _kind(because: Any) -> str:
    return str(because.get("kind", "")) if isinstance(because, dict) else ""


def _uncapital(text: str) -> str:
    return text[:1].lower() + text[1:]
