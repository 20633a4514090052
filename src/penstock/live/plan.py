"""What would happen to such a job if it came now: every offer with wait, start, price, risk, or why not.

Nothing is promised and nothing spent: it asks the engine's own rules, quotes and ledger, and changes nothing.
"""

from copy import copy
from typing import Literal, TypeAlias

from penstock.core import quotes, sharing, waiting
from penstock.core.decide import verdicts
from penstock.core.learned import Starts
from penstock.core.model import JobSpec, Offer
from penstock.core.placement import scopes_of
from penstock.core.reasons import Denial
from penstock.core.rules import Rules
from penstock.core.state import Job, Lane, Shape, State, shape_key
from penstock.core.units import HOUR, PERMILLE, Instant, Millis, Money, ceil_div
from penstock.core.values import value

Answer: TypeAlias = Literal["start", "wait", "burst", "refuse", "short of money", "no room", "paused"]


@value
class Choice:
    """One offer that may run the job. Standing ones first, then rented ones, cheapest first."""

    offer: Offer
    fits_now: bool  # free standing GPUs, or a rented offer that seems to have room
    wait_ms: Millis  # until it could start there, optimistic; 0 if it fits now
    start_ms: Millis
    run_ms: Millis
    cost: Money  # expected: start, run, losses, fees, what leaves at the end. Standing GPUs cost nothing more
    held: Money  # what would be held at first
    losses_ppm: int  # expected number of losses over the run, in millionths
    copies: tuple[str, ...]  # data sets that would be copied there first
    denied: Denial | None = None  # the cap that forbids it now


@value
class Excluded:
    offer: str
    rule: str
    where: str


@value
class Plan:
    expected_run_ms: Millis
    stated: bool  # by whoever asks; otherwise an estimate from history
    answer: Answer
    offer: str  # where, if it starts or bursts
    until_ms: Millis  # how long it would wait at most before it bursts
    choices: tuple[Choice, ...]
    excluded: tuple[Excluded, ...]


def plan(state: State, spec: JobSpec, rules: Rules, now: Instant) -> Plan:
    job = _as_if(state, spec, rules, now)
    expected = state.expect(job)
    standing = [_standing(state, job, name, expected, now) for name in job.shape.standing]
    rented = [_rented(state, job, name, expected, now) for name in job.shape.rented]
    rented.sort(key=lambda choice: (choice.cost, choice.offer.id))
    answer, offer, until_ms = _answer(state, job, standing, rented, expected, now)
    return Plan(
        expected_run_ms=expected,
        stated=spec.expected_run_ms is not None,
        answer=answer,
        offer=offer,
        until_ms=until_ms,
        choices=(*standing, *rented),
        excluded=tuple(Excluded(*said) for said in job.shape.excluded),
    )


def _as_if(state: State, spec: JobSpec, rules: Rules, now: Instant) -> Job:
    """A job that the state does not know, with a shape of its own."""
    shape = Shape(-1, shape_key(spec), spec)
    judged = verdicts(state, shape, rules, now)
    shape.standing, shape.rented, shape.excluded = judged.standing, judged.rented, judged.excluded
    starts = copy(state.starts.get((judged.standing, spec.gpus)) or Starts(judged.standing, spec.gpus))
    starts.waiting += 1
    shape.lane = Lane(-1, spec.gpus, tuple((name, state.pools[name]) for name in judged.standing), starts)
    return Job("plan", state.seq, spec, now, shape)


def _standing(state: State, job: Job, name: str, expected: Millis, now: Instant) -> Choice:
    offer = state.offers[name]
    fits = state.pools[name].fits(job.spec.gpus)
    speed = quotes.rate_of(job.shape, state, offer).speed_permille
    return Choice(
        offer=offer,
        fits_now=fits,
        wait_ms=0 if fits else waiting.soonest_start(job)[0],
        start_ms=offer.start_ms,
        run_ms=ceil_div(expected * PERMILLE, speed),
        cost=0,
        held=0,
        losses_ppm=0,
        copies=_copies(state, job, offer, now),
    )


def _rented(state: State, job: Job, name: str, expected: Millis, now: Instant) -> Choice:
    offer = state.offers[name]
    rate = quotes.rate_of(job.shape, state, offer)
    quote = quotes.quote(job.shape, offer, rate, expected)
    wanted = [(f"plan/{k}", terms) for k, terms in enumerate(rate.terms)]
    funded = state.ledger.authorise(scopes_of(job), wanted, now, state.policy.least_lease_ms)
    held = sum(part.amount for hold in funded for part in hold.parts) if isinstance(funded, tuple) else 0
    return Choice(
        offer=offer,
        fits_now=quotes.available(state, offer, rate, job.spec.gpus, now),
        wait_ms=max(0, state.closed.get(name, 0) - now),
        start_ms=quote.start_ms,
        run_ms=quote.run_ms,
        cost=quote.cost,
        held=held,
        losses_ppm=offer.loss_ppm_per_hour * quote.run_ms // HOUR,
        copies=_copies(state, job, offer, now),
        denied=None if isinstance(funded, tuple) else funded,
    )


def _copies(state: State, job: Job, offer: Offer, now: Instant) -> tuple[str, ...]:
    return quotes.missing_data(state, job, offer, now) if job.spec.data else ()


def _answer(
    state: State, job: Job, standing: list[Choice], rented: list[Choice], expected: Millis, now: Instant
) -> tuple[Answer, str, Millis]:
    """What the engine would do with it now, where, and how long it would wait at most."""
    if not standing and not rented:
        return "refuse", "", 0
    if state.paused:
        return "paused", "", 0
    free = next((choice for choice in standing if choice.fits_now), None)
    if free is not None:
        return "start", free.offer.id, 0
    if not rented or not state.policy.burst:
        return "wait", "", 0
    waits_ms = _patience(state, job, expected, now)
    if standing and waits_ms and standing[0].wait_ms <= waits_ms:
        return "wait", "", waits_ms
    with_room = [choice for choice in rented if choice.fits_now]
    paid = next((choice for choice in with_room if choice.denied is None), None)
    if paid is not None:
        return "burst", paid.offer.id, 0
    return ("short of money" if with_room else "no room"), "", 0


def _patience(state: State, job: Job, expected: Millis, now: Instant) -> Millis:
    if state.policy.waiting.kind != "worth":
        return waiting.patience(state.policy.waiting, job.spec.gpus, expected)
    ranked = sharing.for_job(state, job, expected, now)
    return waiting.weigh(state, job, ranked[0]).allowed_ms if ranked else 0
