"""`penstock plan`: what the engine would do with a job submitted now. `live/what_if.py` calls it with a copy.

    planned = plan(copy, rules, submitted)      # the copy now has the job: throw it away

Nothing here decides: the submission goes through `Engine.handle`, and the plan is the engine's promise to that job.
The quotes beside it are taken at the moment of that promise, before it changes anything, by the functions the engine
asks.
"""

from dataclasses import replace
from typing import Final, Literal, TypeAlias

from penstock.core.decide import colocation, placement, quotes, waiting
from penstock.core.decide.choices import Choices
from penstock.core.decide.quotes import Quote
from penstock.core.decide.rules import Rules
from penstock.core.engine import Engine
from penstock.core.fold.sites import as_proved
from penstock.core.fold.state import Job, State
from penstock.core.fold.suited import suited
from penstock.core.model.events import (
    Fact,
    JobRefused,
    JobSubmitted,
    Promise,
    ReservePromised,
    StartPromised,
    StopPromised,
    WaitPromised,
)
from penstock.core.model.lifecycle import Broken
from penstock.core.model.reasons import (
    AwaitsApproval,
    CapBinds,
    ClassPreempted,
    Denial,
    Displaced,
    GivesWay,
    MovesTogether,
    NoRoomThere,
    Paced,
    PeriodUnknown,
    PlacementsPaused,
    Preempted,
    RateBinds,
    Reason,
    ShareReturned,
)
from penstock.core.model.types import Offer
from penstock.core.units import HOUR, NEVER, PERMILLE, Instant, Millis, Money, ceil_div, cost_of
from penstock.core.values import value

Answer: TypeAlias = Literal["start", "wait", "burst", "refuse", "short of money", "no room", "paused", "needs approval"]
#: What the engine can promise a job that has just come.
Decision: TypeAlias = StartPromised | WaitPromised | ReservePromised | JobRefused


#: Reasons of a stop for another job's sake.
EFFECTS: Final = (Preempted, ClassPreempted, Displaced, ShareReturned, MovesTogether, GivesWay)


@value
class Choice:
    """One offer that may run the job. Standing offers come first, then rented ones in the order the engine tries them;
    those without room now come last."""

    offer: Offer
    node: str  # a rented node that it would join; empty: standing GPUs, or nodes of its own
    width: int  # GPUs that it would have there
    fits_now: bool  # free standing GPUs, or a rented offer that seems to have room
    wait_ms: Millis  # until it is expected to get a place there; 0 if it fits now
    start_ms: Millis  # from then until it runs: the offer's start, and its data's way there
    run_ms: Millis
    cost: Money  # expected: start, run, preemptions, fees, what leaves at the end. Standing GPUs cost nothing more
    total: Money  # the cost and what the delay costs: what rented offers are ranked by
    held: Money  # what would be held at first
    losses_ppm: int  # expected number of preemptions over the run, in millionths
    copies: tuple[str, ...]  # data sets that would be copied there first
    denied: Denial | None = None  # the cap that forbids it now
    late_ms: Millis = 0  # how much later than its deadline it is expected to end; 0: in time, or it has none
    penalty: Money = 0  # for so much


@value
class Excluded:
    offer: str
    rule: str
    where: str


@value
class Effect:
    """A running job that would have to make room."""

    job: str
    team: str
    to: str  # the offer it would move to; empty: it would be queued again
    because: Reason


@value
class Plan:
    decision: Decision  # the engine's own promise; of an array, that to its first job
    answer: Answer
    offer: str  # where, if it starts or bursts
    until_ms: Millis  # how long it would wait at most before it is decided anew; 0: until something happens
    tally: tuple[tuple[Answer, str, int], ...]  # answer, offer and how many jobs: more than one job if it is an array
    expected_run_ms: Millis
    stated: bool  # by the user; otherwise an estimate from history
    jobs_ended: int  # what history is made of; 0: the estimate is a guess
    choices: tuple[Choice, ...]
    excluded: tuple[Excluded, ...]
    effects: tuple[Effect, ...]
    deadline_at: Instant | None = None


def plan(state: State, rules: Rules, submitted: JobSubmitted, also: tuple[Fact, ...] = ()) -> Plan:
    """Let the engine decide on `submitted`, and on facts of the same instant. Changes `state`: hand over a copy."""
    observer = PlanRecorder(state, submitted)
    engine = Engine(rules)
    engine.state, engine.choices = state, observer
    engine.handle(submitted, *also)
    first = observer.decisions.get(observer.jobs[0])
    if first is None:
        raise Broken(f"the engine gave {observer.jobs[0]} no answer")
    return Plan(
        decision=first,
        answer=_answer(first),
        offer=_offer(first),
        until_ms=first.until_at - first.at if isinstance(first, WaitPromised) and first.until_at < NEVER else 0,
        tally=_tally(list(observer.decisions.values())),
        expected_run_ms=observer.expected_ms,
        deadline_at=submitted.spec.deadline_at,
        stated=submitted.spec.expected_run_ms is not None,
        jobs_ended=state.history.jobs_ended(),
        choices=observer.listed,
        excluded=observer.excluded,
        effects=tuple(observer.effects),
    )


class PlanRecorder(Choices):
    """The engine's record of one step, which also notes what concerns the planned job."""

    __slots__ = ("decisions", "effects", "excluded", "expected_ms", "jobs", "listed")

    def __init__(self, state: State, submitted: JobSubmitted) -> None:
        super().__init__(state, submitted.at)
        count = submitted.spec.count
        self.jobs = [submitted.job] if count == 1 else [f"{submitted.job}/{k}" for k in range(count)]
        self.decisions: dict[str, Decision] = {}  #: by job: the last one is what comes of the step
        self.effects: list[Effect] = []
        self.expected_ms: Millis = 0
        self.listed: tuple[Choice, ...] = ()
        self.excluded: tuple[Excluded, ...] = ()

    def record(self, promise: Promise) -> None:
        if isinstance(promise, (StartPromised, WaitPromised, ReservePromised, JobRefused)):
            self._note(promise)
        elif isinstance(promise, StopPromised):
            self._note_effect(promise)
        super().record(promise)

    def _note(self, promise: Decision) -> None:
        if promise.job == self.jobs[0] and promise.job not in self.decisions:
            # Not applied yet: the state is still the one that the engine quoted and decided in.
            job = self.state.jobs[promise.job]
            self.expected_ms = self.state.expect(job)
            self.listed = _listed(self, job, self.expected_ms)
            self.excluded = tuple([Excluded(offer, rule, where) for offer, rule, where in job.shape.excluded])
        if promise.job in self.jobs:
            self.decisions[promise.job] = promise

    def _note_effect(self, promise: StopPromised) -> None:
        because = promise.because
        if isinstance(because, EFFECTS) and because.gainer in self.jobs:
            job = self.state.attempts[promise.attempt].job
            to = job.next.offer.id if job.next is not None else ""
            self.effects.append(Effect(job=job.id, team=job.spec.team, to=to, because=because))


def _answer(decision: Decision) -> Answer:
    if isinstance(decision, JobRefused):
        return "refuse"
    if isinstance(decision, StartPromised):
        return "burst" if decision.rented else "start"
    because = decision.because
    if isinstance(because, PlacementsPaused):
        return "paused"
    if isinstance(because, (CapBinds, RateBinds, PeriodUnknown, Paced)):
        return "short of money"
    if isinstance(because, AwaitsApproval):
        return "needs approval"
    return "no room" if isinstance(because, NoRoomThere) else "wait"


def _offer(decision: Decision) -> str:
    return decision.offer if isinstance(decision, StartPromised) else ""


def _tally(decisions: list[Decision]) -> tuple[tuple[Answer, str, int], ...]:
    counts: dict[tuple[Answer, str], int] = {}
    for decision in decisions:
        key = (_answer(decision), _offer(decision))
        counts[key] = counts.get(key, 0) + 1
    return tuple([(answer, offer, count) for (answer, offer), count in counts.items()])


# --- every offer, as the engine quotes it ----------------------------------------------------------------------------


def _listed(choices: Choices, job: Job, expected_ms: Millis) -> tuple[Choice, ...]:
    state, now = choices.state, choices.now
    wait_ms = _wait_ms(choices, job)
    standing = [_standing(state, job, name, expected_ms, wait_ms, now) for name in job.shape.standing]
    ranked = colocation.for_job(state, job, expected_ms, now)
    roomy = [_rented(choices, job, quote, fits_now=True) for quote in ranked]
    tried = [quote.offer.id for quote in ranked if not quote.node]
    full = [_quote(state, job, name, expected_ms, now) for name in job.shape.rented if name not in tried]
    full.sort(key=lambda quote: (quote.total, quote.offer.id))
    listed = (*standing, *roomy, *[_rented(choices, job, quote, fits_now=False) for quote in full])
    deadline_at = job.spec.deadline_at
    return (
        listed if deadline_at is None else tuple([_against(deadline_at, state, job, choice, now) for choice in listed])
    )


def _against(deadline_at: Instant, state: State, job: Job, choice: Choice, now: Instant) -> Choice:
    """Its end is expected with the preemptions that are."""
    offer, lost_ms = choice.offer, 0
    if choice.losses_ppm:
        lost_ms = quotes.lost_ms(job.shape, offer, choice.run_ms, quotes.loss_of(state, offer))
    late_ms = max(0, now + choice.wait_ms + choice.start_ms + choice.run_ms + lost_ms - deadline_at)
    return replace(choice, late_ms=late_ms, penalty=cost_of(job.spec.penalty_per_hour, late_ms))


def _wait_ms(choices: Choices, job: Job) -> Millis:
    """Until standing GPUs are free for it, as the engine forecasts it."""
    if job.shape.lane is None:
        return 0
    soonest = (choices.foreseen or {}).get(job.id, waiting.soonest_start(job))
    return waiting.foretell(choices.state, job, soonest)[0]


def _standing(state: State, job: Job, name: str, expected_ms: Millis, wait_ms: Millis, now: Instant) -> Choice:
    offer, pool = state.offers[name], suited(state, job.shape, name)
    fits = pool.fits(job.spec.gpus)
    width, scale = placement.widest(state, job, pool) if fits and job.spec.scaling else (job.spec.gpus, PERMILLE)
    speed = quotes.rate_of(job.shape, state, offer).speed_permille * scale // PERMILLE
    copy_ms = quotes.copying_ms(state, job, offer, now) if job.spec.data else 0
    return Choice(
        offer=offer,
        node="",
        width=width,
        fits_now=fits,
        wait_ms=0 if fits else wait_ms,
        start_ms=copy_ms + offer.start_ms,
        run_ms=ceil_div(expected_ms * PERMILLE, speed),
        cost=0,
        total=0,
        held=0,
        losses_ppm=0,
        copies=_copies(state, job, offer, now),
    )


def _rented(choices: Choices, job: Job, quote: Quote, fits_now: bool) -> Choice:
    state, now, offer = choices.state, choices.now, quote.offer
    funded = placement.fund(choices, job, quote)
    held = sum([part.amount for hold in funded for part in hold.parts]) if isinstance(funded, tuple) else 0
    return Choice(
        offer=as_proved(state, offer),
        node=quote.node,
        width=job.spec.gpus,
        fits_now=fits_now,
        wait_ms=max(0, state.closed.get(offer.id, 0) - now),
        start_ms=quote.start_ms,
        run_ms=quote.run_ms,
        cost=quote.cost,
        total=quote.total,
        held=held,
        losses_ppm=quotes.loss_of(state, offer) * quote.run_ms // HOUR,
        copies=_copies(state, job, offer, now),
        denied=None if isinstance(funded, tuple) else funded,
    )


def _quote(state: State, job: Job, name: str, expected_ms: Millis, now: Instant) -> Quote:
    """Of an offer that has no room now: `quotes.for_job` leaves it out."""
    offer = state.offers[name]
    rate, loss = quotes.rate_of(job.shape, state, offer), quotes.loss_of(state, offer)
    copy_ms = quotes.copying_ms(state, job, offer, now) if job.spec.data else 0
    return quotes.quote(job.shape, offer, rate, expected_ms, loss, quotes.worth_of(state, job), copy_ms)


def _copies(state: State, job: Job, offer: Offer, now: Instant) -> tuple[str, ...]:
    return quotes.missing_data(state, job, offer, now) if job.spec.data else ()
