"""Routes about jobs: submit, list, get, why, cancel, retry, move, plan. Logs are in `logs.py`."""

import hashlib
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from penstock.config.jobs import JobFile, json_schema
from penstock.core.ids import array_of
from penstock.core.model.events import (
    AttemptQueued,
    AttemptStuck,
    CancelRequested,
    JobSubmitted,
    MoveRequested,
    StartPromised,
    WaitPromised,
)
from penstock.core.model.lifecycle import ENDED
from penstock.core.model.types import JobSpec
from penstock.core.plan import Choice, Effect, Plan
from penstock.core.units import Instant
from penstock.drivers.driver import Work
from penstock.explain.story import StoryLine, tell
from penstock.journal import states
from penstock.journal.journal import Reader
from penstock.journal.rows import AttemptRow, Filter, JobRow
from penstock.journal.states import JobState, OldState
from penstock.kube.job_needs import known_gpus
from penstock.live.plane import Plane
from penstock.live.sequencer import Forged, pack_work, unpack_work
from penstock.web import deps, explain, schemas
from penstock.web.deps import MayRead, MaySubmit, PlaneHere, ReaderHere
from penstock.web.details import details
from penstock.web.discretion import Discretion
from penstock.web.fast_route import FastRoute, JsonAnswer, answered
from penstock.web.limits import MOST_BYTES, read_body, room_for_body
from penstock.web.parsing import Parsing
from penstock.web.problems import Problem, conflict, not_found
from penstock.web.tokens import Token

routes: Final = APIRouter(prefix="/v1", tags=["jobs"], responses=deps.PROBLEMS)
quick: Final = APIRouter(prefix="/v1", tags=["jobs"], responses=deps.PROBLEMS, route_class=FastRoute)
LONGEST_KEY: Final = 200
WAITING: Final = (AttemptQueued, AttemptStuck)  #: facts that say why a start takes long
#: Headers of an answer to a request with `phase`: since when it is deprecated (RFC 9745), and where to read on.
PHASE_DEPRECATED: Final = "@1794873600"
STATE_DOCUMENTED: Final = '</v1/openapi.json>; rel="deprecation"'
BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A job file, as YAML or as JSON with the same keys.",
        "content": {
            "application/json": {"schema": json_schema(), "example": {"gpus": 1, "command": ["python", "train.py"]}},
            "application/yaml": {
                "schema": {"type": "string"},
                "example": "name: finetune\ngpus: 2\ncommand: python train.py\nrun_time: 2h\ncheckpoint_every: 15m\n",
            },
        },
    }
}
KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Sent again within a day: one job.",
    "schema": {"type": "string", "maxLength": LONGEST_KEY},
}


# --- asking ----------------------------------------------------------------------------------------------------------


@quick.post(
    "/jobs",
    status_code=201,
    openapi_extra=BODY | {"parameters": [KEY]},
    response_model=schemas.Submitted,
    summary="Submit a job",
)
async def submit(request: Request, caller: MaySubmit) -> Response:
    """Answered once the job is durable. The same key again gives the same answer, and no second job."""
    plane: Plane = request.app.state.plane
    key = _key(request, caller)
    with room_for_body(request, caller.id):
        raw = await read_body(request, MOST_BYTES)
        file = await _parsing(request).job(caller.id, raw, as_json=_is_json(request))
    request.app.state.guard.tokens.demand(caller)  # a body may take long to arrive
    digest, packed = pack_work(Work(file.command, file.env, file.folder, file.image))
    spec = _as_asked_by(caller, file, plane.at, digest)
    with await plane.admission.admitted(spec, len(raw), trusted=caller.may("operate"), by=_if_of_no_team(caller)):
        submitted = await plane.submit_packed(
            spec, packed, key=key, body=hashlib.sha256(raw).hexdigest() if key else ""
        )
    made = {"job": submitted.answer, "count": spec.count, "again": submitted.again}  # as `schemas.Submitted`
    location = (b"location", f"/v1/jobs/{submitted.answer}".encode())
    return JsonAnswer(msgspec.json.encode(made), 200 if submitted.again else 201, (location,))


def _if_of_no_team(caller: Token) -> str:
    """Its id: then it may name any team, and is bounded itself."""
    return "" if caller.team else caller.id


def _key(request: Request, caller: Token) -> str:
    """The idempotency key, made unique to the token."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > LONGEST_KEY:
        raise Problem(422, "bad-input", f"An Idempotency-Key has at most {LONGEST_KEY} characters; use a shorter one.")
    return f"{caller.id}:{key}" if key else ""


@routes.post("/plan", openapi_extra=BODY, summary="What would happen to such a job now")
async def plan(request: Request, plane: PlaneHere, reader: ReaderHere, caller: MaySubmit) -> schemas.Plan:
    """The engine's own decision, on a copy. Also of a Kubernetes Job, as the front door would read it: its home is the
    first front door.
    """
    homes = [site.id for site in plane.view.sites if site.front_door]
    known = known_gpus(offer.offer for site in plane.view.sites for offer in site.offers)
    with room_for_body(request, caller.id):
        raw = await read_body(request, MOST_BYTES)
        file = await _parsing(request).job_or_home_job(
            caller.id, raw, as_json=_is_json(request), home=next(iter(homes), ""), at=plane.view.at, known=known
        )
    spec = _as_asked_by(caller, file, plane.at)
    if not caller.may("operate"):
        plane.admission.check(spec, _if_of_no_team(caller))
    planned = await plane.plan(spec)
    decision = await run_in_threadpool(Discretion(reader, caller).event, planned.decision)
    return _plan(replace(planned, decision=decision), caller, plane.view.policy.currency)


def _plan(planned: Plan, caller: Token, currency: str) -> schemas.Plan:
    decision = planned.decision
    until_at = decision.until_at if isinstance(decision, WaitPromised) else None
    return schemas.Plan.of(
        planned,
        says=explain.says(decision, currency),
        reason=explain.reason_shape(decision.because, until_at, currency),
        tally=[schemas.Tally(answer=answer, offer=offer, jobs=jobs) for answer, offer, jobs in planned.tally],
        effects=[_effect(effect, caller, currency) for effect in planned.effects],
        choices=[_choice(choice, currency) for choice in planned.choices],
        currency=currency,
    )


def _effect(effect: Effect, caller: Token, currency: str) -> schemas.Effect:
    job = effect.job if caller.sees(effect.team) else ""
    return schemas.Effect(job=job, to=effect.to, reason=explain.reason_shape(effect.because, None, currency))


def _choice(choice: Choice, currency: str) -> schemas.Choice:
    offer = choice.offer
    return schemas.Choice.of(
        choice,
        offer=offer.id,
        site=offer.site,
        term=offer.term,
        gpu_model=offer.gpu_model,
        guarantee=deps.guarantee(offer),
        denied=explain.reason_shape(choice.denied, None, currency) if choice.denied else None,
    )


def _parsing(request: Request) -> Parsing:
    parsing: Parsing = request.app.state.parsing
    return parsing


def _is_json(request: Request) -> bool:
    return "json" in request.headers.get("content-type", "json")


def _as_asked_by(caller: Token, file: JobFile, now: Instant, work: str = "") -> JobSpec:
    """Team and user come from the token: a job cannot be booked to another team."""
    team = file.team or caller.team or "default"
    if not caller.sees(team):
        raise Problem(403, "forbidden", f"Your token is for team {caller.team}; leave 'team' out, or write that.")
    deadline_at = None if file.deadline_ms is None else now + file.deadline_ms
    return replace(file.spec, team=team, user=caller.id, deadline_at=deadline_at, work=work)


@routes.post("/jobs/{job:job}/cancel", summary="Cancel a job")
async def cancel(job: str, request: Request, plane: PlaneHere, reader: ReaderHere, caller: MaySubmit) -> schemas.Asked:
    """Also of a whole array, by the id that its members' ids begin with."""
    by_member = await run_in_threadpool(_states, reader, caller, job)
    if all(state == "cancelled" for state in by_member.values()):
        return schemas.Asked(job=job, so=True, says="The job was already cancelled.")
    live = [member for member, state in by_member.items() if state not in states.ENDED]
    if not live:
        raise conflict(f"{job} has ended; there is nothing to cancel.")
    deps.take_share(plane, caller, len(live))
    known = details(request)
    await plane.tell(*(CancelRequested(0, member, caller.id, known.digest) for member in live), blobs=known.blobs)
    active = any(by_member[member] in states.ACTIVE for member in live)
    says = "The job is stopping; it is cancelled once it has stopped." if active else "The job is cancelled."
    return schemas.Asked(job=job, so=not active, says=says)


def _states(reader: Reader, caller: Token, job: str) -> dict[str, str]:
    """The job's state, or those of an array's members."""
    if "/" in job or reader.job(job) is not None:
        return {job: deps.state_of(deps.find_job(reader, caller, job))}
    members: dict[str, str] = {}
    after: int | None = None
    while page := reader.jobs(Filter(teams=caller.teams, text=f"{job}/"), after, 200):
        members |= {row.id: deps.state_of(row) for row in page if row.id.startswith(f"{job}/")}
        after = page[-1].number
    if not members:
        raise not_found("job", job)
    return members


@routes.post(
    "/jobs/{job:job}/retry",
    status_code=201,
    openapi_extra={"parameters": [KEY]},
    summary="Submit an ended job again",
)
async def retry(
    job: str, request: Request, response: Response, plane: PlaneHere, reader: ReaderHere, caller: MaySubmit
) -> schemas.Submitted:
    """A new job that asks for the same. The old one and its story stay. The same key again: no second job."""
    key = _key(request, caller)
    row = await run_in_threadpool(deps.find_job, reader, caller, job)
    spec = await run_in_threadpool(reader.spec, job)
    if row.phase not in ENDED or spec is None:
        raise conflict(f"{job} is {deps.state_of(row)}; a job can be retried once it has ended.")
    again = replace(spec, count=1, user=caller.id, origin=None, deadline_at=None)
    known, body = details(request), hashlib.sha256(f"retry {job}".encode()).hexdigest() if key else ""
    fact = JobSubmitted(0, 0, "", again, retries=job, details=known.digest)
    with await plane.admission.admitted(again, trusted=caller.may("operate"), by=_if_of_no_team(caller)):
        submitted = await plane.tell(fact, blobs=known.blobs, key=key, body=body)
    response.status_code = 200 if submitted.again else 201
    return schemas.Submitted(job=submitted.answer, count=1, again=submitted.again)


@routes.post(
    "/jobs/{job:job}/move",
    openapi_extra=deps.shape_of_body(schemas.MoveTo),
    summary="Move a running job to another offer",
)
async def move(request: Request, job: str, plane: PlaneHere, reader: ReaderHere, caller: MaySubmit) -> schemas.Asked:
    """If rules, money and room allow it; it keeps its checkpoint."""
    to = await deps.read_shape(request, schemas.MoveTo)
    row = await run_in_threadpool(deps.find_job, reader, caller, job)
    if row.phase != "placed":
        raise conflict(f"{job} is {deps.state_of(row)}; only a job that is starting or running can be moved.")
    if all(to.offer != offer.offer.id for site in plane.view.sites for offer in site.offers):
        raise not_found("offer", to.offer)
    deps.take_share(plane, caller)
    known = details(request)
    recorded = await plane.tell(MoveRequested(0, job, to.offer, caller.id, known.digest), blobs=known.blobs)
    (step,) = await run_in_threadpool(reader.steps, recorded.number - 1, 1)
    so = any(isinstance(event, StartPromised) and event.job == job for event in step.outputs)
    stays = (
        f"The job stays where it is: {to.offer} is not allowed for it, has no room, or a cap leaves no money for it."
    )
    says = f"The job moves to {to.offer}." if so else stays
    return schemas.Asked(job=job, so=so, says=says)


# --- looking ---------------------------------------------------------------------------------------------------------


@quick.get("/jobs", response_model=schemas.Jobs, summary="Jobs, newest first")
async def jobs(
    request: Request,
    caller: MayRead,
    *,
    team: Annotated[list[str], Query(description="Of these teams only.", max_length=50)] = [],  # noqa: B006 - FastAPI copies it
    state: Annotated[list[JobState], Query(description="In these states only.", max_length=9)] = [],  # noqa: B006 - likewise
    phase: Annotated[
        list[OldState | JobState],
        Query(description="Use `state`. Also takes the states' old names.", max_length=12, deprecated=True),
    ] = [],  # noqa: B006 - likewise
    text: Annotated[str, Query(description="In id, name, user or team.", max_length=200)] = "",
    user: Annotated[str, Query(max_length=200)] = "",
    after: Annotated[int | None, Query(ge=0, lt=1 << 62, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    plane: Plane = request.app.state.plane
    wanted = Filter(tuple(team), text=text, user=user, states=states.from_old((*state, *phase)))
    page = await run_in_threadpool(_page_json, plane, request.app.state.reader, caller, wanted, after, limit)
    headers = {"Deprecation": PHASE_DEPRECATED, "Link": STATE_DOCUMENTED} if phase else {}
    return Response(page, 200, headers, "application/json")


def _page_json(plane: Plane, reader: Reader, caller: Token, wanted: Filter, after: int | None, limit: int) -> bytes:
    rows, following = _rows(reader, caller, wanted, after, limit)
    return deps.jobs_json(rows, following, plane.view.policy.currency, deps.instant(plane))


def page_of(
    plane: Plane, reader: Reader, caller: Token, wanted: Filter, after: int | None = None, limit: int = 50
) -> schemas.Jobs:
    rows, following = _rows(reader, caller, wanted, after, limit)
    currency, now = plane.view.policy.currency, deps.instant(plane)
    return schemas.Jobs(jobs=[deps.job_shape(row, currency, now) for row in rows], next=following)


def _rows(
    reader: Reader, caller: Token, wanted: Filter, after: int | None, limit: int
) -> tuple[list[JobRow], int | None]:
    """Jobs of the caller's own teams, whatever the filter says; and where the next page begins."""
    if wanted.teams and caller.team and caller.team not in wanted.teams:
        return [], None
    rows = reader.jobs(replace(wanted, teams=caller.teams or wanted.teams), after, limit + 1)
    discretion = Discretion(reader, caller)
    page = [discretion.row(row) for row in rows[:limit]]
    return page, page[-1].number if len(rows) > limit else None


@routes.get("/jobs/{job:job}/story", summary="Why a job is where it is")
def story(job: str, plane: PlaneHere, reader: ReaderHere, caller: MayRead) -> schemas.Story:
    row = deps.find_job(reader, caller, job)
    lines = [*_told(reader, caller, job), *deps.silence(plane, row)]
    return schemas.Story(job=job, lines=[schemas.Line.of(line) for line in lines])


@routes.get("/jobs/{job:job}", response_model=schemas.JobDetail, summary="One job with its attempts")
def job(job: str, plane: PlaneHere, reader: ReaderHere, caller: MayRead) -> Response:
    return answered(detail_of(plane, reader, caller, job))


def detail_of(plane: Plane, reader: Reader, caller: Token, job: str) -> schemas.JobDetail:
    row, currency = deps.find_job(reader, caller, job), plane.view.policy.currency
    blob = reader.blob(row.work) if row.work else None
    work = _work(row.work, blob) if blob else Work(())  # erased, or a rehearsal's job, which has none
    discretion = Discretion(reader, caller)
    tries = [discretion.row(attempt) for attempt in reader.attempts(job)]
    return deps.job_detail(
        discretion.row(row),
        currency,
        deps.instant(plane),
        tries=[deps.attempt_shape(attempt, currency) for attempt in tries],
        waits=_waits(reader, tries[-1]) if tries and tries[-1].phase == "starting" else "",
        deadline_at=deps.moment(_deadline(reader, job)),
        ended_because=_last_line(reader, caller, job) if row.phase == "failed" else "",
        command=list(work.command),
        folder=work.folder,
        image=work.image,
        variables=[name for name, _ in work.env],
    )


def _work(digest: str, blob: bytes) -> Work:
    try:
        return unpack_work(digest, blob)
    except Forged:  # it will not run, and what would have run is nobody's words
        return Work(())


def _deadline(reader: Reader, job: str) -> Instant | None:
    spec = reader.spec(job) or reader.spec(array_of(job))
    return None if spec is None else spec.deadline_at


def _told(reader: Reader, caller: Token, job: str) -> list[StoryLine]:
    return tell(Discretion(reader, caller).rows(reader.story(job)), job)


def _last_line(reader: Reader, caller: Token, job: str) -> str:
    lines = _told(reader, caller, job)
    return lines[-1].text if lines else ""


def _waits(reader: Reader, attempt: AttemptRow) -> str:
    heard = [event for row in reader.story(attempt.job) for event in row.inputs if isinstance(event, WAITING)]
    event = next((event for event in reversed(heard) if event.attempt == attempt.id), None)
    if event is None:
        return ""
    waits = "queued at" if isinstance(event, AttemptQueued) else "not started yet by"
    return f"{waits} site {attempt.site}: {event.words}"
