"""The HTML pages: `/`, a job's page, and their assets. They show what the API answers to the same caller.

`/news/stream` tells a page that there is a newer view; the page then fetches itself again, so rendering has one path.
"""

import asyncio
import shlex
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from penstock import __version__
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.drivers.driver import Refused, Unreachable
from penstock.explain.event_words import IN_FEED
from penstock.formatting import money as cash
from penstock.formatting import plain_money
from penstock.journal import states
from penstock.journal.journal import Reader
from penstock.journal.rows import Filter
from penstock.live.plane import Plane
from penstock.live.view import View
from penstock.web import schemas
from penstock.web.deps import Anybody, GuardHere, MayRead, OneStream, PlaneHere, ReaderHere, instant
from penstock.web.html import ForPeople, html
from penstock.web.problems import not_found
from penstock.web.routes import jobs, logs, money, stream
from penstock.web.routes import sites as site_routes
from penstock.web.routes.approvals import job_shape
from penstock.web.streaming import EventStream, ServerEvent
from penstock.web.tokens import Token
from penstock.web.views import feed, formats, queue, sites, spending, timeline
from penstock.web.views import job as job_view
from penstock.web.views.render import static

routes: Final = APIRouter(include_in_schema=False, route_class=ForPeople)
QUEUE: Final = 200  #: queued jobs that are read
ROWS: Final = 40  #: queued jobs that are shown
RUNS: Final = 20
FEED: Final = 24
PAGES_BACK: Final = 5  #: pages of the feed that are searched for a team's events
PACE_SECONDS: Final = 0.4  #: minimum time between two notifications
TAIL: Final = 40_000  #: bytes of a log on a job's page
MOST_READ: Final = 32 << 20  #: bytes that are read at most to find a log's end


# --- now -------------------------------------------------------------------------------------------------------------


@routes.get("/")
async def now(request: Request, plane: PlaneHere, reader: ReaderHere, caller: MayRead) -> Response:
    sites_now = await site_routes.sites(plane, caller)
    values = await run_in_threadpool(_now, plane, reader, caller, sites_now)
    return html(request, "now.html", **frame(request, plane), **values)


def _now(plane: Plane, reader: Reader, caller: Token, listing: schemas.Sites) -> dict[str, Any]:
    view, at, currency = plane.view, instant(plane), plane.view.policy.currency
    waits = jobs.page_of(plane, reader, caller, Filter(states=states.QUEUED), limit=QUEUE).jobs
    runs = jobs.page_of(plane, reader, caller, Filter(states=states.ACTIVE), limit=RUNS).jobs
    queued = queue.queued(waits, at)
    owned = sites.used(listing, standing=True)
    counts = _counts(reader, caller)
    return {
        "title": "Now",
        "here": "Now",
        "owned": owned,
        "rented": sites.used(listing, standing=False),
        "notices": [
            *_short(money.budget(plane, reader, caller)),
            *_notices(view, plane.ready, caller, at),
            *(_notice("note", wait.says, "", "") for wait in queue.shared_waits(waits, at)),
        ],
        "sites": sites.rows(listing),
        "queue": queued[:ROWS],
        "queue_note": _shown(min(ROWS, len(queued)), counts["queued"][0], "by expected start"),
        "queued_jobs": counts["queued"][0],
        "queued_gpus": counts["queued"][1],
        "first_start": f"the first {queued[0].start.says}" if queued else "the queue is empty",
        "idle_note": _idle(listing),
        "running": queue.running(runs, terms(listing), at, currency),
        "running_note": _shown(len(runs), counts["active"][0], "newest first"),
        "feed": _feed(plane, reader, caller, at),
        "approvals": _approvals(view, caller, at),
        "month": formats.month(view.period),
        **_spending(plane, reader, caller, at),
    }


def terms(sites: schemas.Sites) -> dict[str, str]:
    return {offer.id: offer.term for site in sites.sites for offer in site.offers}


def _counts(reader: Reader, caller: Token) -> dict[str, tuple[int, int]]:
    """Jobs and GPUs: queued, and with GPUs."""
    mine = [count for count in reader.counts() if caller.sees(count.team)]
    groups = {"queued": states.QUEUED, "active": states.ACTIVE}
    return {
        name: (
            sum(tally.jobs for tally in mine if tally.state in group),
            sum(tally.gpus for tally in mine if tally.state in group),
        )
        for name, group in groups.items()
    }


def _shown(shown: int, total: int, order: str) -> str:
    if not total:
        return ""
    return f"{total:,}, {order}" if shown >= total else f"{shown:,} of {total:,}, {order}"


def _idle(sites: schemas.Sites) -> str:
    most = max((max(offer.free, default=0) for site in sites.sites for offer in site.offers), default=0)
    if most:
        return f"A job of up to {formats.many(most, 'GPU')} on one node would start on owned GPUs at once."
    return "No owned GPU is idle: the next job is queued, or bursts when delay costs more than renting."


def _notices(view: View, trouble: str, caller: Token, at: Instant) -> list[dict[str, str]]:
    """A team sees only notices for everybody: an alarm may name another team's job."""
    made = [_notice("alarm", "Penstock takes no submissions and starts nothing now.", trouble, "")] if trouble else []
    if view.paused:
        made.append(_notice("warn", "Paused.", "Running jobs continue; nothing new starts until: penstock resume", ""))
    alarms = () if caller.team else view.alarms
    return made + [_notice("alarm", alarm.text, "", f"since {formats.clock(alarm.at, at)}") for alarm in alarms]


def _short(budget: schemas.Budget) -> list[dict[str, str]]:
    """Whose money is used up, while jobs wait for it."""
    made = []
    for scope in budget.scopes:
        if scope.waiting:
            free = "" if scope.free is None else f": {cash(max(0, scope.free), budget.currency)} is free this month"
            hour = "" if scope.cap_per_hour is None else f", {spending.rate(scope, budget.currency)}"
            what = f"{formats.many(scope.waiting, 'job')} {'waits' if scope.waiting == 1 else 'wait'} for money of "
            so = "For the next month, a higher cap, or money that is returned; owned GPUs are used meanwhile."
            made.append(_notice("warn", f"{what}{scope.scope}{free}{hour}.", so, ""))
    return made


def _approvals(view: View, caller: Token, at: Instant) -> list[dict[str, str]]:
    """Only shown: an answer needs a token that may approve, and a cookie changes nothing."""
    pending = [approval for approval in view.approvals if caller.sees(approval.team)][:ROWS]
    return [
        {
            "href": queue.href(approval.request.job),
            "name": approval.name or approval.request.job,
            "team": approval.team,
            "says": job_shape(approval, view).says,
            "cost": cash(approval.request.amount, view.policy.currency),
            "until": formats.clock(approval.request.until_at, at),
            "do": f"penstock approvals approve {approval.request.job} --up-to {plain_money(approval.request.amount)}",
        }
        for approval in pending
    ]


def _notice(kind: str, what: str, so: str, when: str) -> dict[str, str]:
    return {"kind": kind, "what": what, "so": so, "when": when}


def _spending(plane: Plane, reader: Reader, caller: Token, at: Instant) -> dict[str, Any]:
    budget = money.budget(plane, reader, caller)
    mine = f"team:{caller.team}" if caller.team else "org"
    row = next((scope for scope in budget.scopes if scope.scope == mine), None)
    rate = next((spend.running for spend in plane.view.rates if spend.scope == mine), 0)
    free = row.free if row else None
    spent = cash(row.spent if row else 0, budget.currency)
    return {
        "running_per_hour": cash(rate, budget.currency),
        "budget_title": "Spent this month" if free is None else "Free this month",
        "budget_amount": spent if free is None else cash(max(0, free), budget.currency),
        "budget_note": "no cap" if row is None or row.cap is None else f"of {cash(row.cap, budget.currency)}",
        "caps": spending.caps(budget),
        "exposure": spending.exposed(money.exposure(plane, caller), at),
    }


def _feed(plane: Plane, reader: Reader, caller: Token, at: Instant) -> list[feed.Item]:
    telling, shown = stream.EventShapes(reader, plane.view.policy.currency, caller), dict[str, schemas.Event]()
    before: tuple[int, int] | None = None
    for _ in range(PAGES_BACK):
        entries = reader.feed(before, FEED, IN_FEED)
        for entry in entries:
            event = telling.shape(entry.number, entry.part, entry.at, entry.event)
            if event is not None and feed.worth_telling(event):
                is_wait = event.kind == "WaitPromised"  # its latest is enough
                shown.setdefault(f"{event.kind} {event.job}" if is_wait else event.id, event)
        if not entries or len(shown) >= FEED:
            break
        before = (entries[-1].number, entries[-1].part)
    events = list(shown.values())[:FEED]
    return feed.items(events, _names(reader, events), at)


def _names(reader: Reader, events: list[schemas.Event]) -> dict[str, str]:
    rows = (reader.job(job_id) for job_id in dict.fromkeys(event.job for event in events if event.job))
    return {row.id: row.name or row.id for row in rows if row is not None}


# --- a job -----------------------------------------------------------------------------------------------------------


@value
class LogTail:
    title: str
    text: str
    attempt: str
    next: int
    over: bool
    address: str
    whole: str


@routes.get("/jobs/{job:job}")
async def one_job(
    job: str, request: Request, guard: GuardHere, plane: PlaneHere, reader: ReaderHere, caller: MayRead
) -> Response:
    await logs.on_record(request, guard, plane, reader, caller, job)
    detail = await run_in_threadpool(jobs.detail_of, plane, reader, caller, job)
    story = await run_in_threadpool(jobs.story, job, plane, reader, caller)
    kinds, at, currency = terms(await site_routes.sites(plane, caller)), instant(plane), plane.view.policy.currency
    return html(
        request,
        "job.html",
        **frame(request, plane),
        title=detail.name or detail.id,
        job=detail,
        lede=job_view.lede(detail, at),
        facts=job_view.facts(detail, at, currency),
        timeline=timeline.draw(detail, kinds, at),
        tries=job_view.tries(detail, kinds, at, currency),
        story=[{"at": formats.clock(line.at, at), "text": formats.plain(line.text, at)} for line in story.lines],
        log=await _tail(logs.LogQuery(plane, reader, caller, job), detail),
        command=shlex.join(detail.command),
    )


async def _tail(asked: logs.LogQuery, job: schemas.JobDetail) -> LogTail:
    """The end of the last attempt's log, and the offset at which the page continues."""
    address = f"/v1/jobs/{quote(job.id)}/log"
    text, after, title = b"", 0, ""
    try:
        piece = await asked.piece("", 0, 0)
        while piece.text and after < MOST_READ:
            text, after = (text + piece.text)[-TAIL:], piece.next
            piece = await asked.piece(piece.attempt, after, 0)
        title = f"{piece.attempt}" if piece.attempt else "not started yet"
        over = job.state in states.ENDED and not piece.more and not piece.text
        return LogTail(title, text.decode("utf-8", "replace"), piece.attempt, after, over, address, address)
    except (Unreachable, Refused):
        return LogTail("the site does not answer", text.decode("utf-8", "replace"), "", after, False, address, address)


# --- what they share -------------------------------------------------------------------------------------------------


def frame(request: Request, plane: Plane) -> dict[str, Any]:
    view = plane.view
    return {
        "rehearsal": request.app.state.rehearsal,
        "speed": int(plane.clock.speed),
        "number": view.number,
        "day": formats.day(instant(plane)),
        "at": f"{formats.clock(instant(plane), instant(plane))} UTC",
        "policy": view.policy.name,
        "revision": view.revision,
        "version": __version__,
    }


@routes.get("/news/stream")
async def news(
    guard: GuardHere,
    plane: PlaneHere,
    caller: MayRead,
    stream_slot: OneStream,  # noqa: ARG001 - counts it
) -> Response:
    """The number of the latest picture, at once and whenever there is a newer one: a page that was away catches up."""
    return EventStream(guard.tokens.while_valid(caller, _news(plane)))


async def _news(plane: Plane) -> AsyncGenerator[ServerEvent, None]:
    seen = -1
    while True:
        if plane.view.number > seen:
            seen = plane.view.number
            yield ServerEvent(str(seen))
        await asyncio.sleep(PACE_SECONDS)  # one notification for many steps; the view follows them
        await plane.heard(seen)


@routes.get("/static/{name:path}")
async def file(name: Annotated[str, Path(max_length=200)], caller: Anybody) -> Response:  # noqa: ARG001 - declares the permission
    asset = static().get(name)
    if asset is None:
        raise not_found("file", name)
    headers = {
        "Cache-Control": "public, max-age=86400",
        "X-Content-Type-Options": "nosniff",
        "ETag": f'"{asset.digest}"',
    }
    return Response(asset.content, media_type=asset.media_type, headers=headers)
