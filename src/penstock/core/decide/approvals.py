"""Approvals: which quotes need a person's word, whether it was given, and what a request shows. `placement` asks
before every burst and every move to rented GPUs, under a policy that has such rules.

A quote that needs an approval and has none is passed over. An approval covers an amount: what the job has spent and
may spend together, with as many preemptions as one in twenty such jobs has. A dearer quote asks again. Denied, or
unanswered in time, means no for this job and rule; but a job that was approved is asked about until somebody answers.
"""

from typing import Final, Literal, TypeAlias

from penstock.core.decide import quotes, waiting
from penstock.core.decide.quotes import Quote
from penstock.core.decide.rules import ApprovalNeed, Candidate, QuoteNumbers, Rules
from penstock.core.fold.job_approvals import JobApprovals
from penstock.core.fold.state import Job, State
from penstock.core.model.events import ApprovalAsked
from penstock.core.model.reasons import ApprovalDenied, AwaitsApproval
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value

#: `ask`: nobody was asked for this amount yet. `open`: asked, and not answered. The other two mean no.
Standing: TypeAlias = Literal["ask", "open", "denied", "unanswered"]
#: How many other ways a request shows.
SHOWN: Final = 3


@value
class Barrier:
    """A rule without whose approval the job may not burst at this quote."""

    need: ApprovalNeed
    quote: Quote
    standing: Standing
    asked: ApprovalAsked | None = None  # the latest request
    by: str = ""
    words: str = ""

    @property
    def refuses(self) -> bool:
        return self.standing in ("denied", "unanswered")


def barrier(state: State, rules: Rules, job: Job, quote: Quote, now: Instant) -> Barrier | None:
    """The first rule that keeps the job from this quote; None: it may burst there."""
    spec, offer = job.spec, quote.offer
    data = tuple([state.data[name] for name in spec.data if name in state.data])
    numbers = QuoteNumbers(
        cost=quote.cost,
        per_hour=quote.rate.price_per_hour,
        gpus=spec.gpus,
        run_ms=quote.run_ms,
        start_ms=quote.start_ms,
    )
    known = state.approvals.get(job.id)
    for need in rules.approvals(Candidate(spec, state.sites[offer.site], offer, data, state.policy), numbers):
        barred = _in_the_way(job, need, quote, known, now)
        if barred is not None:
            return barred
    return None


def _in_the_way(job: Job, need: ApprovalNeed, quote: Quote, known: JobApprovals | None, now: Instant) -> Barrier | None:
    rule, amount = need.rule.name, job.spent + quote.cost
    if known is not None and amount <= known.granted.get(rule, -1):
        return None
    asked = None if known is None else known.asked.get(rule)
    if known is None or asked is None:
        return Barrier(need, quote, "ask")
    answer = known.answers.get(rule)
    if answer is None and asked.until_at <= now:
        return Barrier(need, quote, "ask" if _goes_on(job, known, rule) else "unanswered", asked)
    if answer is not None and (not answer.approved or amount <= asked.amount):  # denied, or approved for less
        return Barrier(need, quote, "denied", asked, answer.by, answer.reason)
    return Barrier(need, quote, "ask" if amount > asked.amount else "open", asked)


def _goes_on(job: Job, known: JobApprovals, rule: str) -> bool:
    """It was approved before, or it has run and could go nowhere else: silence does not end it, it is asked again."""
    owned = job.shape.standing or (job.shape.base is not None and job.shape.base.standing)
    return rule in known.granted or (job.attempts > 0 and not owned)


def request(state: State, job: Job, barred: Barrier, ranked: list[Quote], now: Instant) -> ApprovalAsked:
    rule, quote = barred.need.rule, barred.quote
    return ApprovalAsked(
        at=now,
        job=job.id,
        rule=rule.name,
        role=rule.by,
        until_at=now + rule.within_ms,
        offer=quote.offer.id,
        cost=quote.cost,
        amount=job.spent + quotes.cost_at_worst(state, job, quote),
        gpus=job.spec.gpus,
        run_ms=quote.run_ms,
        start_ms=quote.start_ms,
        per_hour=quote.rate.price_per_hour,
        cheaper=_cheaper(state, job, quote, ranked),
        source=rule.source,
        words=rule.because,
        error=barred.need.error,
    )


def _cheaper(state: State, job: Job, quote: Quote, ranked: list[Quote]) -> tuple[tuple[str, Money, Millis], ...]:
    """Owned GPUs, with the expected wait for them, and rented offers that cost less but delay it more."""
    ways: list[tuple[str, Money, Millis]] = []
    if job.shape.standing and job.shape.lane is not None:
        about, _ = waiting.foretell(state, job, waiting.soonest_start(job))
        ways.append((job.shape.standing[0], 0, about))
    others = sorted([(other.cost, other.offer.id, other.start_ms) for other in ranked if other.cost < quote.cost])
    ways += [(offer, cost, start_ms) for cost, offer, start_ms in others]
    return tuple(ways[:SHOWN])


def awaits(asked: ApprovalAsked) -> AwaitsApproval:
    return AwaitsApproval(
        rule=asked.rule,
        role=asked.role,
        offer=asked.offer,
        cost=asked.cost,
        until_at=asked.until_at,
        source=asked.source,
        error=asked.error,
    )


def denial(barred: Barrier) -> ApprovalDenied:
    rule = barred.need.rule
    return ApprovalDenied(
        rule=rule.name,
        role=rule.by,
        offer=barred.quote.offer.id,
        cost=barred.quote.cost,
        answer="denied" if barred.standing == "denied" else "unanswered",
        by=barred.by,
        words=barred.words,
        source=rule.source,
    )
