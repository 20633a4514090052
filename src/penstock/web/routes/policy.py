"""Routes about the policy in force: apply a file, list the revisions, show one."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request

from penstock.core.model.events import PolicySet
from penstock.journal.journal import Reader
from penstock.live.policy_changes import PolicyChanges
from penstock.web import deps, schemas
from penstock.web.deps import MayOperate, MayRead, ReaderHere
from penstock.web.details import details
from penstock.web.limits import MOST_BYTES, read_body, room_for_body
from penstock.web.parsing import Parsing
from penstock.web.problems import Problem, conflict, not_found

routes: Final = APIRouter(prefix="/v1", tags=["policy"], responses=deps.PROBLEMS)
MOST: Final = 500  #: revisions that are listed


@routes.post("/policy", openapi_extra=deps.shape_of_body(schemas.PolicyText), summary="Apply a policy file")
async def apply(request: Request, caller: MayOperate) -> schemas.PolicyApplied:
    """All of it or nothing. If running jobs would be stranded, nothing is done unless `yes`. A raised cap waits for
    approval.
    """
    changes: PolicyChanges | None = request.app.state.policies
    if changes is None:
        raise conflict("This Penstock takes no policy file.")
    parsing: Parsing = request.app.state.parsing
    with room_for_body(request, caller.id):
        raw = await read_body(request, MOST_BYTES)
        text, file = await parsing.policy(caller.id, raw, changes.sites)
    request.app.state.guard.tokens.demand(caller)  # a body may take long to arrive
    known = details(request)
    done = await changes.apply(
        text.text.encode(),
        text.name,
        file=file,
        by=caller.id,
        reason=text.reason,
        details=known.digest,
        blobs=known.blobs,
        strand=text.yes,
    )
    return schemas.PolicyApplied.of(
        done, raised=list(done.raised), stranded=[schemas.StrandedJob.of(one) for one in done.stranded]
    )


@routes.get("/policy/history", summary="The policies that were in force, newest first")
def history(reader: ReaderHere, caller: MayRead) -> schemas.PolicyHistory:  # noqa: ARG001 - declares the permission
    return schemas.PolicyHistory(revisions=[_revision(reader, event) for event in revisions(reader)])


@routes.get("/policy/revisions/{revision}", summary="One revision, with its file's text")
def show(
    revision: Annotated[int, Path(ge=0, lt=1 << 62, description="0: the one in force.")],
    reader: ReaderHere,
    caller: MayRead,
) -> schemas.PolicyRevision:
    """Of all teams, so a team's token does not do."""
    if caller.team:
        raise Problem(403, "forbidden", "A policy file is about all teams; use a token that is not for one team.")
    for event in revisions(reader):
        if revision in (0, event.revision):
            return _revision(reader, event, text=True)
    raise not_found("revision", str(revision))


def revisions(reader: Reader) -> list[PolicySet]:
    found = [happening.event for happening in reader.feed(limit=MOST, kinds=("PolicySet",))]
    return [event for event in found if isinstance(event, PolicySet)]


def _revision(reader: Reader, event: PolicySet, text: bool = False) -> schemas.PolicyRevision:
    digest = event.policy.governance.digest
    raw = reader.blob(digest) if text and digest else None
    return schemas.PolicyRevision(
        revision=event.revision,
        at=event.at,
        by=event.by,
        reason=event.reason,
        digest=digest,
        text=raw.decode("utf-8", "replace") if raw else "",
    )
