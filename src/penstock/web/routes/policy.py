"""Routes about the policy in force: apply a file, list the revisions, show one, explain where a job may run."""

from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from penstock.core.fold.state import State
from penstock.core.ids import array_of
from penstock.core.model.events import Fact, PolicySet, SiteJoined
from penstock.core.model.types import DataSet, Policy, Site
from penstock.journal.journal import Reader
from penstock.live.policy_changes import PolicyChanges
from penstock.policy.judge import judged, verdicts_record
from penstock.web import deps, schemas
from penstock.web.deps import MayOperate, MayRead, PlaneHere, ReaderHere
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
        done, raised=list(done.raised), stranded=[schemas.StrandedJob.of(stranded) for stranded in done.stranded]
    )


@routes.get("/policy/history", summary="The policies that were in force, newest first")
def history(reader: ReaderHere, caller: MayRead) -> schemas.PolicyHistory:
    """A team sees when which revision came; who applied it, and why, may be about other teams."""
    shapes = [_revision(reader, event) for event in revisions(reader)]
    if caller.team:
        shapes = [shape.model_copy(update={"by": "", "reason": ""}) for shape in shapes]
    return schemas.PolicyHistory(revisions=shapes)


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


@routes.get("/jobs/{job:job}/verdicts", summary="Where a job may run, and which rules stand against each offer")
async def verdicts(job: str, plane: PlaneHere, reader: ReaderHere, caller: MayRead) -> schemas.JobVerdicts:
    """Under the policy in force, with the offers as Penstock knows them now."""
    await run_in_threadpool(deps.find_job, reader, caller, job)
    spec = await run_in_threadpool(lambda: reader.spec(job) or reader.spec(array_of(job)))
    if spec is None:
        raise not_found("job", job)
    sites, data, policy = await plane.consider(lambda state, _: _in_force(state, plane.setup.opening))
    by_offer = await run_in_threadpool(judged, spec, sites, data, policy)
    return schemas.JobVerdicts.model_validate(verdicts_record(job, spec, by_offer))


def _in_force(state: State, configured: tuple[Fact, ...]) -> tuple[tuple[Site, ...], tuple[DataSet, ...], Policy]:
    """Sites in the sites file's order. An offer's nodes are those that its site has reported."""
    listed = [fact.site.id for fact in configured if isinstance(fact, SiteJoined)]
    ids = [*(name for name in listed if name in state.sites), *(name for name in state.sites if name not in listed)]
    sites = [
        replace(site, offers=tuple(state.offers[offer.id] for offer in site.offers))
        for site in [state.sites[name] for name in ids]
    ]
    return tuple(sites), tuple(state.data.values()), state.policy


def revisions(reader: Reader) -> list[PolicySet]:
    events = [happening.event for happening in reader.feed(limit=MOST, kinds=("PolicySet",))]
    return [event for event in events if isinstance(event, PolicySet)]


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
