"""The feed of recent events on the page: newest first, each with an icon and a sentence."""

import re
from typing import Any, Final

from penstock.core.units import Instant
from penstock.core.values import value
from penstock.explain.event_words import BY_NAME, IN_FEED
from penstock.web import schemas
from penstock.web.views.formats import clock, plain
from penstock.web.views.queue import href

BAD: Final = ("lost", "alarm")
#: Reasons of a stop that the next start or a person's request tells already.
TOLD_ELSEWHERE: Final = (
    "ComesHome",
    "CheaperElsewhere",
    "MovesTogether",
    "MoveAsked",
    "LeaseNotRenewed",
    "CancelAsked",
    "SuspendAsked",
)
#: Money that a start mentions; the feed leaves it to the job's story.
HELD: Final = re.compile(r" \S+ is held, enough to run until .*$")


@value
class Item:
    id: str
    at: str
    icon: str
    bad: bool
    name: str  # the job's name; empty: about no single job
    href: str
    what: str
    why: str


def items(events: list[schemas.Event], names: dict[str, str], now: Instant) -> list[Item]:
    return [_item(event, names.get(event.job, event.job), now) for event in events if worth_telling(event)]


def worth_telling(event: schemas.Event) -> bool:
    return event.kind in IN_FEED and not (event.kind == "StopPromised" and _because(event) in TOLD_ELSEWHERE)


def _item(event: schemas.Event, name: str, now: Instant) -> Item:
    icon, (what, why) = _icon(event), _words(event)
    link = href(event.job) if event.job else ""
    return Item(event.id, clock(event.at, now), icon, icon in BAD, name, link, what, plain(why, now))


def _words(event: schemas.Event) -> tuple[str, str]:
    """What happened, to follow the job's name, and why."""
    first, _, rest = event.says.partition(". ")
    match event.kind:
        case "StartPromised":
            return f"{_goes(event)} {event.event.get('offer')}", HELD.sub("", rest)
        case "AttemptEnded":
            return ("succeeded", "") if event.event.get("outcome") == "done" else ("failed", event.says)
        case "CancelRequested" | "SuspendRequested" | "ResumeRequested" | "Paused" | "Resumed":
            return BY_NAME[event.kind].feed, ""
        case kind if BY_NAME[kind].feed:
            return BY_NAME[kind].feed, event.says.removeprefix("Stopping. ")
        case _:
            return (first[:1].lower() + first[1:] if event.job else first).removesuffix("."), rest


def _goes(event: schemas.Event) -> str:
    because = event.event.get("because")
    within = because.get("burst") if isinstance(because, dict) else None  # as the engine weighed it, within its policy
    match within["kind"] if isinstance(within, dict) else _because(event):
        case "ComesHome" | "LeaseNotRenewed":
            return "moves home to"
        case "LostNode":
            return "resumes on"
        case "JoinsNode":
            return "joins a node of"
        case "TakesWarmNode":
            return "takes a warm node of"
        case _:
            return "bursts to" if _rents(event) else "starts on"


def _rents(event: schemas.Event) -> bool:
    return bool(event.event.get("nodes") or event.event.get("hold") or event.event.get("joins"))


def _icon(event: schemas.Event) -> str:
    if event.kind == "AttemptEnded" and event.event.get("outcome") != "done":
        return "no"
    if event.kind != "StartPromised":
        return BY_NAME[event.kind].icon
    if _because(event) in ("ComesHome", "LeaseNotRenewed"):
        return "home"
    return "burst" if _rents(event) else "start"


def _because(event: schemas.Event) -> str:
    """The kind of the event's reason."""
    because: Any = event.event.get("because")
    return str(because.get("kind", "")) if isinstance(because, dict) else ""
