"""The page `/jobs`: all jobs, newest first, filtered by state and text, with paging. Belongs to `pages.py`."""

from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from penstock.journal.rows import Filter
from penstock.web.deps import MayRead, PlaneHere, ReaderHere, instant
from penstock.web.html import ForPeople, html
from penstock.web.routes import jobs
from penstock.web.routes.pages import frame
from penstock.web.views import listing

routes: Final = APIRouter(include_in_schema=False, route_class=ForPeople)
ROWS: Final = 50
FORMER: Final = {"waiting": "queued"}  #: values that the parameter had


@routes.get("/jobs")
async def all_jobs(
    request: Request,
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayRead,
    show: Annotated[str, Query(max_length=200)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    after: Annotated[int | None, Query(ge=0, lt=1 << 62)] = None,
) -> Response:
    show = FORMER.get(show, show)
    show = show if show in listing.SHOWN else ""  # who types an address sees all jobs, and no error
    wanted = Filter(states=listing.SHOWN[show][1], text=text)
    job_page = await run_in_threadpool(jobs.page_of, plane, reader, caller, wanted, after, ROWS)
    values: dict[str, Any] = {
        "title": "Jobs",
        "here": "Jobs",
        "rows": listing.rows(job_page.jobs, instant(plane), plane.view.policy.currency),
        "tabs": [(name, _address(word, text), word == show) for word, (name, _) in listing.SHOWN.items()],
        "show": show,
        "text": text,
        "older": _address(show, text, job_page.next) if job_page.next is not None else "",
        "newest": _address(show, text) if after is not None else "",
    }
    return html(request, "jobs.html", **(frame(request, plane) | values))


def _address(show: str, text: str, after: int | None = None) -> str:
    asked = {
        name: value for name, value in (("show", show), ("text", text), ("after", after)) if value not in ("", None)
    }
    return f"/jobs?{urlencode(asked)}" if asked else "/jobs"
