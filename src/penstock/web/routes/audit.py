"""Routes of the audit trail: who did what, denied requests, and erasing what is personal about somebody."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from penstock.core.model.events import DetailsErased
from penstock.journal.audit import AuditFilter, AuditRow
from penstock.journal.journal import Reader
from penstock.web import deps, schemas
from penstock.web.deps import GuardHere, MayAudit, PlaneHere, ReaderHere
from penstock.web.details import details, read
from penstock.web.patterns import EVENT_ID
from penstock.web.routes.control import names_of

routes: Final = APIRouter(prefix="/v1", tags=["audit"], responses=deps.PROBLEMS)
PAGE: Final = 500  #: rows read at once


@routes.get("/audit", summary="Who did what, newest first")
def audit(
    reader: ReaderHere,
    caller: MayAudit,  # noqa: ARG001 - declares the permission
    who: Annotated[str, Query(max_length=200, description="By this token or user only.")] = "",
    did: Annotated[str, Query(max_length=50, description="Only this, like `cancel`, `cap`, `exec`.")] = "",
    about: Annotated[str, Query(max_length=300, description="About this job, attempt, token or scope only.")] = "",
    before: Annotated[str | None, Query(pattern=EVENT_ID, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> schemas.AuditTrail:
    """From the journal's chain. Submissions are in the list of jobs, each with its user."""
    number, _, part = (before or "").partition(".")
    rows = reader.audit(AuditFilter(who, did, about), (int(number), int(part or 0)) if before else None, limit)
    following = f"{rows[-1].number}.{rows[-1].part}" if len(rows) == limit else None
    names = names_of(reader, {name for row in rows for name in (row.who, row.asked_by)})
    return schemas.AuditTrail(entries=[_entry(reader, row, names) for row in rows], next=following)


def _entry(reader: Reader, row: AuditRow, names: Mapping[str, str]) -> schemas.AuditEntry:
    address, words = read(reader.blob(row.details) if row.details else None)
    return schemas.AuditEntry.of(
        row,
        id=f"{row.number}.{row.part}",
        name=names.get(row.who, ""),
        asked_by_name=names.get(row.asked_by, ""),
        address=address,
        words=words,
    )


@routes.get("/audit/denials", summary="Denied requests, by address or token")
async def denials(guard: GuardHere, caller: MayAudit) -> schemas.DeniedList:  # noqa: ARG001 - as above
    return schemas.DeniedList(denied=[schemas.DeniedRequests.of(line) for line in guard.denials.lines()])


@routes.post(
    "/audit/erase",
    openapi_extra=deps.shape_of_body(schemas.EraseAsk),
    summary="Erase the name, addresses and words recorded about somebody",
)
async def erase(
    request: Request,
    guard: GuardHere,
    plane: PlaneHere,
    reader: ReaderHere,
    caller: MayAudit,
) -> schemas.Erasure:
    """Also of the browsers that they let in. What they did stays on record, and the chain still verifies."""
    ask, known = await deps.read_shape(request, schemas.EraseAsk), details(request)
    digests = await run_in_threadpool(_digests, reader, ask.who)
    await plane.tell(DetailsErased(0, ask.who, caller.id, known.digest), blobs=known.blobs)
    await plane.erase(*digests)
    return schemas.Erasure(who=ask.who, details=len(digests), denials=guard.denials.forget(ask.who))


def _digests(reader: Reader, who: str) -> list[str]:
    """Of all that they and their browsers did, and of their name; each once, if it is still there."""
    digests: dict[str, None] = {}
    for name in _with_browsers(reader, who):
        before: tuple[int, int] | None = None
        while rows := reader.audit(AuditFilter(who=name), before, PAGE):
            digests.update(dict.fromkeys(row.details for row in rows if row.details))
            before = rows[-1].number, rows[-1].part
    named = reader.token(who)
    digests.update({named.name: None} if named is not None and named.name else {})
    return [digest for digest in digests if reader.blob(digest) is not None]


def _with_browsers(reader: Reader, who: str) -> list[str]:
    """The token, and all that came in by it, in the order they were made."""
    names = {who: None}
    for row in reader.tokens():
        if row.made_by in names:
            names[row.id] = None
    return list(names)
