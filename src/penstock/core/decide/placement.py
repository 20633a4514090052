"""Placement decisions: start, burst, wait, move. Each function makes one kind of choice and records
it with the numbers it used; `cycle` decides when each is called.
"""

from dataclasses import replace

from penstock.core.decide import (
    ahead,
    approvals,
    clusters,
    colocation,
    guards,
    limits,
    lookahead,
    ordering,
    quotes,
    shares,
    triggers,
    waiting,
)
from penstock.core.decide.choices import Choices, promise_start
from penstock.core.decide.quotes import Quote
from penstock.core.decide.reservations import patience_over_at, reserve
from penstock.core.decide.rules import UNTIL_CHANGED, by_rule, in_file
from penstock.core.fold.ledger import STOPS_BEFORE_MS
from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.state import Job, Shape, State
from penstock.core.fold.suited import suited
from penstock.core.ids import attempt_id, node_id, site_of
from penstock.core.model.events import StartPromised, StopPromised, WaitPromised
from penstock.core.model.reasons import (
    Burst,
    CapBinds,
    Denial,
    EndsAlike,
    JoinsNode,
    LostNode,
    NoRoomThere,
    NothingSuits,
    NotWorthWaiting,
    OnlyOwned,
    OwnedFree,
    PatienceOver,
    QueueFull,
    Reason,
    StartFailed,
    WaitsForOwned,
    WaitWorth,
)
from penstock.core.model.types import Hold, NodeAsk, Offer, Terms
from penstock.core.units import MINUTE, NEVER, PERMILLE, Instant, Millis, ceil_div

# --- standing GPUs ---------------------------------------------------------------------------------------------------


def start_standing(choices: Choices, job: Job, after: tuple[str, ...] = ()) -> bool:
    """Start on the first standing offer, in order of preference, that has enough free GPUs, at the preferred width that
    fits.
    """
    state, now = choices.state, choices.now
    lane = job.shape.lane
    assert lane is not None
    kept: dict[str, int] = {}
    if lane.limited:
        if limits.team_at_limit(state, job) is not None:
            return False
        kept = limits.kept_free(state, lane.job_class, now)
    for offer_id, pool in lane.pools:
        offer = state.offers[offer_id]
        if lane.barred:
            pool = suited(state, job.shape, offer_id)
        if kept:
            pool = limits.visible(pool, kept.get(offer_id, 0))  # as this job sees it
        if not pool.fits(lane.width):
            continue
        width, scale = widest(state, job, pool) if job.spec.scaling else (lane.width, PERMILLE)
        speed = quotes.rate_of(job.shape, state, offer).speed_permille * scale // PERMILLE
        because: Reason
        if state.policy.packing == "ends_alike":
            slots, because = _where_ends_are_alike(choices, job, offer_id, pool, width, speed)
        else:
            because = OwnedFree(now - job.submitted_at, pool.free_gpus)
            slots = pool.choose(width, state.policy.packing)
        choices.record(promise_start(choices, job, offer, because, width, speed, after, slots))
        return True
    return False


def _where_ends_are_alike(
    choices: Choices, job: Job, offer_id: str, pool: Pool, width: int, speed: int
) -> tuple[Slots, EndsAlike]:
    state = choices.state
    run_ms = ceil_div(max(0, state.expect(job) - job.kept_ms) * PERMILLE, speed)
    slots, busy_ms = lookahead.alike(state, offer_id, pool, width, run_ms)
    return slots, EndsAlike(choices.now - job.submitted_at, pool.free_gpus, run_ms, busy_ms)


def widest(state: State, job: Job, pool: Pool) -> tuple[int, int]:
    """The widest that fits there now, of the widths that it may have, and how much faster it is; in thousandths."""
    room = limits.room_of(state, job.spec.team) if state.at_once else None
    for width, scale in reversed(job.spec.scaling):
        if width > job.spec.gpus and pool.fits(width) and (room is None or width <= room):
            return width, scale
    return job.spec.gpus, PERMILLE


# --- waiting ---------------------------------------------------------------------------------------------------------


def answer(choices: Choices, job: Job) -> bool:
    """Record that the job waits, and why; True instead if its patience is over already."""
    state, now = choices.state, choices.now
    shape, spec = job.shape, job.spec
    at_limit = limits.team_at_limit(state, job) if state.at_once else None
    if at_limit is not None:
        guards.wait_for_team(choices, job, at_limit)
        return False
    free = 0
    for _, pool in shape.lane.seen() if shape.lane else ():
        free += pool.free_gpus
    if not shape.rented or not state.policy.burst:
        _only_owned(choices, job, free)
        return False
    if state.team_shares and shares.above(state, job) is not None:
        return True
    expected = state.expect(job)
    failed = _last_failure(job)
    if failed is not None and shape.base is not None and shape.base.standing:
        return _wait_after_failure(choices, job, expected, failed)
    if state.policy.waiting.kind == "worth":
        return _weigh(choices, job, expected, free)
    allowed = 0 if job.lost else waiting.patience(state.policy.waiting, spec.gpus, expected)
    until = job.submitted_at + allowed
    if until <= now:
        return True
    offers = colocation.for_job(state, job, expected, now)
    cost = offers[0].cost if offers else None
    because = WaitsForOwned(allowed, expected, free, cost)
    choices.record(WaitPromised(now, job.id, until, guards.behind_headroom(choices, job, because), patience_ms=allowed))
    return False


def _last_failure(job: Job) -> StartFailed | None:
    """Why it waits, if its starts failed at all standing offers that it may use."""
    kept = _kept_from(job.shape)
    if job.setbacks is None or job.shape.standing or not kept:
        return None
    return next(job.setbacks[offer].because for offer in reversed(job.setbacks) if offer in kept)


def _kept_from(shape: Shape) -> tuple[str, ...]:
    """Offers where their starts failed, all of each or some of its nodes."""
    return (*shape.without, *[offer for offer, _ in shape.unfit])


def _wait_after_failure(choices: Choices, job: Job, expected: Millis, failed: StartFailed) -> bool:
    """No node of ours can take it now: it waits as if all GPUs were busy, so that its trouble rents nothing sooner."""
    state, now = choices.state, choices.now
    offers = colocation.for_job(state, job, expected, now)
    allowed = waiting.patience(state.policy.waiting, job.spec.gpus, expected)
    if state.policy.waiting.kind == "worth" and offers:
        allowed = waiting.weigh(state, job, offers[0]).allowed_ms
    until = job.submitted_at + allowed
    if job.lost or not offers or until <= now:
        return True
    choices.record(WaitPromised(now, job.id, until, failed, patience_ms=allowed))
    return False


def _weigh(choices: Choices, job: Job, expected: Millis, free: int) -> bool:
    """Wait while bursting costs more than the delay, unless even an optimistic start comes too late."""
    state, now = choices.state, choices.now
    offers = colocation.for_job(state, job, expected, now)
    if job.lost or not offers or not job.shape.standing:  # no standing GPUs to wait for
        return True
    worth = waiting.weigh(state, job, offers[0])
    until = job.submitted_at + worth.allowed_ms
    soonest = _soonest(choices, job, until)
    if until <= now or now + soonest > until:
        return True
    about, worst = waiting.foretell(state, job, soonest)
    because = WaitWorth(
        cost=worth.cost,
        value_per_hour=worth.value_per_hour,
        patience_ms=worth.allowed_ms,
        expected_run_ms=expected,
        soonest_ms=soonest,
        ahead=ordering.ahead(state, job, now),
        free_gpus=free,
        about_ms=about,
        worst_ms=worst,
        leave_at=worth.leave_at,
        dearer_permille=worth.dearer_permille,
        late=worth.late,
    )
    patience, reason = worth.allowed_ms, guards.behind_headroom(choices, job, because)
    choices.record(
        WaitPromised(now, job.id, until, reason, patience_ms=patience, about_ms=about, worst_ms=worst),
    )
    return False


def _soonest(choices: Choices, job: Job, until: Instant) -> Millis:
    """In how long it could start: from known ends, or else from history."""
    usual = waiting.soonest_start(job)
    if choices.state.policy.estimator != "declared":
        return usual
    if choices.foreseen is None:
        choices.foreseen = {}
    if job.id not in choices.foreseen:
        known = lookahead.soonest(choices.state, job, until - choices.now)
        choices.foreseen[job.id] = usual if known is None else known
    return choices.foreseen[job.id]


def _only_owned(choices: Choices, job: Job, free: int) -> None:
    if not reserve(choices, job):
        stays = _why_it_stays(choices.state, job, free)
        unsuited = _nothing_suits(choices.state, job)
        because = unsuited or _last_failure(job) or guards.behind_headroom(choices, job, stays)
        choices.record(WaitPromised(choices.now, job.id, patience_over_at(choices, job), because))


def _nothing_suits(state: State, job: Job) -> NothingSuits | None:
    """What must change, at home or in the sites file, before it can start there."""
    shape = job.shape
    whys = [(offer, rule) for offer, rule, where in shape.excluded if where == UNTIL_CHANGED]
    if shape.standing or not whys:
        return None
    away = [(rule, in_file(where)) for offer, rule, where in shape.excluded if offer not in state.pools]
    elsewhere, where = away[0] if away else ("", "")
    offer, why = whys[0]
    if job.setbacks is not None and offer in job.setbacks and offer in dict(shape.unfit):
        why = f"{why} ({job.setbacks[offer].because.words})"
    return NothingSuits(site=site_of(offer), why=why, elsewhere=elsewhere, where=where)


def _why_it_stays(state: State, job: Job, free: int) -> OnlyOwned:
    """The rules that keep it from rented offers; if there are none, the rule that keeps it from other owned ones. With
    file and line, if a policy says so.
    """
    shape = job.shape
    if shape.rented:
        return OnlyOwned(free, "policy bursts nothing")
    excluded = [entry for entry in shape.excluded if entry[0] not in state.pools] or shape.excluded[:1]
    if not excluded:
        return OnlyOwned(free, "there is nothing to rent" if shape.judged else "no site has joined yet")
    _, rule, where = excluded[0]
    return OnlyOwned(free, rule, in_file(where), by_rule(excluded))


# --- rented GPUs -----------------------------------------------------------------------------------------------------


def burst(choices: Choices, job: Job, queue_cap: int | None = None) -> bool:
    """Start on the cheapest allowed offer with capacity and money; otherwise record what it waits for."""
    state, now = choices.state, choices.now
    if not job.shape.rented or not state.policy.burst:  # the rules or the policy changed since its last answer
        if queue_cap is None:
            _only_owned(choices, job, 0)
        return False
    expected = state.expect(job)
    ranked = colocation.for_job(state, job, expected, now)
    asked: triggers.Asked | None = None
    if state.gated:
        if guards.held_back(choices, job, ranked, expected, queue_cap):
            return False
        asked = triggers.ask(state, job, ranked[0], now) if ranked and triggers.binds(state, job) else None
        if asked is not None and asked.holds is None:
            if queue_cap is None:
                guards.wait_for_trigger(choices, job, ranked[0], asked)
            return False
    if state.policy.pace and ranked and guards.paced(choices, job, ranked[0], queue_cap):
        return False
    denied: Denial | None = None
    asks, barrier = state.policy.governance.approvals, None
    for quote in ranked:
        holds = fund(choices, job, quote)
        if isinstance(holds, tuple):
            if asks and (unapproved := approvals.barrier(state, choices.rules, job, quote, now)) is not None:
                barrier = unapproved if barrier is None or barrier.refuses else barrier
                continue
            why = _why_burst(choices, job, quote, ranked, expected, queue_cap)
            because = guards.as_allowed(choices, job, why, asked, expected) if state.gated else why
            choices.record(promise_rented(choices, job, quote, holds, (), because))
            return True
        denied = denied or holds
    if queue_cap is None:
        if barrier is not None and (denied is None or not barrier.refuses):
            guards.without_approval(choices, job, barrier, ranked)
        else:
            _record_short(choices, job, denied)
    return False


def _why_burst(
    choices: Choices, job: Job, quote: Quote, ranked: list[Quote], expected: Millis, queue_cap: int | None
) -> Burst:
    passed_over = _passed_over(quote, ranked) if len(ranked) > 1 else ""
    if job.lost:
        return LostNode(job.lost, job.kept_ms, job.redone_ms, quote.cost, passed_over)
    if queue_cap is not None:
        return QueueFull(choices.state.waiting, queue_cap, quote.cost)
    above = shares.above(choices.state, job) if choices.state.team_shares else None
    if above is not None:
        return shares.burst_reason(above, quote.cost)
    waited = choices.now - job.submitted_at
    failed_at = _failed_at(choices.state, job)
    barred_by = "" if job.shape.standing or failed_at else _barred_by(choices.state, job)
    next_offer, next_cost = "", 0
    if len(ranked) > 1:
        after = ranked[1] if quote is ranked[0] else ranked[0]
        next_offer, next_cost = after.offer.id, after.cost
    if quote.node in choices.state.warm.nodes:
        return ahead.why_taken(
            choices, job, quote, expected, ranked[1 if quote is ranked[0] else 0] if next_offer else None
        )
    if quote.node:
        node = choices.state.nodes[quote.node]
        lasts = colocation.lasts_ms(choices.state, node, choices.now)
        return JoinsNode(
            waited_ms=waited,
            free_gpus=node.free,
            lasts_ms=lasts,
            expected_run_ms=expected,
            cost=quote.cost,
            next_offer=next_offer,
            next_cost=next_cost,
        )
    if choices.state.policy.waiting.kind == "worth":
        worth = waiting.weigh(choices.state, job, quote)
        soonest = _soonest(choices, job, job.submitted_at + worth.allowed_ms)
        return NotWorthWaiting(
            waited_ms=waited,
            cost=worth.cost,
            value_per_hour=worth.value_per_hour,
            patience_ms=worth.allowed_ms,
            soonest_ms=soonest,
            expected_run_ms=expected,
            next_offer=next_offer,
            next_cost=next_cost,
            leave_at=worth.leave_at,
            passed_over=passed_over,
            failed_at=failed_at,
            barred_by=barred_by,
            late=worth.late,
        )
    return PatienceOver(waited, job.patience_ms, expected, quote.cost, next_offer, next_cost, failed_at, barred_by)


def _failed_at(state: State, job: Job) -> str:
    """The standing offer where its start failed, if there is no other that it may use."""
    shape = job.shape
    if shape.standing:
        return ""
    return next((offer for offer in _kept_from(shape) if offer in state.pools), "")


def _barred_by(state: State, job: Job) -> str:
    """The rule that keeps it from standing offers, with file and line; empty if there are none."""
    for offer, rule, where in job.shape.excluded:
        if offer in state.pools:
            return f"{rule} ({in_file(where)})" if in_file(where) else rule
    return ""


def _passed_over(quote: Quote, ranked: list[Quote]) -> str:
    """The cheapest offer, where another one is preferred to it."""
    cheapest = min(ranked, key=lambda q: q.total)
    return cheapest.offer.id if quote is ranked[0] and quote.total > cheapest.total else ""


def _record_short(choices: Choices, job: Job, denied: Denial | None) -> None:
    """Nothing to rent now: wait for money, or until an offer reopens."""
    state, now = choices.state, choices.now
    if denied is not None:
        if reserve(choices, job):
            return
        if denied.kind == "PeriodUnknown":
            wait_for_money(choices, job, NEVER, denied)
            return
        until = patience_over_at(choices, job)
        if denied.scope != job.short_of or job.until_at != until:  # otherwise recorded already
            wait_for_money(choices, job, until, denied)
        return
    opens = [(max(quotes.closed_until(state, name), now + MINUTE), name) for name in job.shape.rented]
    until, offer = min(opens)
    choices.record(WaitPromised(now, job.id, until, NoRoomThere(offer, until)))


def wait_for_money(choices: Choices, job: Job, until: Instant, denied: Denial) -> None:
    """Decided again when the binding scope has room; for a period that is not open yet, every minute."""
    if denied.kind == "PeriodUnknown":
        choices.record(WaitPromised(choices.now, job.id, choices.now + MINUTE, denied))
    else:
        choices.record(WaitPromised(choices.now, job.id, until, denied, scope=denied.scope))


def fund(choices: Choices, job: Job, quote: Quote) -> tuple[Hold, ...] | Denial:
    """Holds for this start in all scopes at once, or the scope that denies it. A node that it joins has a hold; of a
    warm one it takes that over.
    """
    state = choices.state
    most_ms = limits.needed_ms(state, job, quote.start_ms) if state.class_rules else NEVER
    if quote.node:
        return ahead.fund(state, job, quote, scopes_of(state, job), most_ms, choices.now)
    holds = _own_holds(choices, job, quote, most_ms)
    if not state.clusters.terms or not isinstance(holds, tuple):
        return holds
    cluster = clusters.authorise(state, quote.offer, holds, choices.now)
    return holds if isinstance(cluster, tuple) else cluster


def _own_holds(choices: Choices, job: Job, quote: Quote, most_ms: Millis) -> tuple[Hold, ...] | Denial:
    """For what is rented for this start alone."""
    state = choices.state
    scopes, things, least_ms = scopes_of(state, job), _things(job, quote), state.policy.least_lease_ms
    holds = state.ledger.authorise(scopes, things, choices.now, least_ms, most_ms)
    if not state.ledger.caps or not isinstance(holds, tuple):
        return holds
    useful_ms = min(most_ms, useful_for_ms(state, job, quote))
    if useful_ms <= holds[0].deadline_at - choices.now:
        return holds
    longer = state.ledger.authorise(scopes, things, choices.now, useful_ms, most_ms)
    if isinstance(longer, tuple):  # a lease that is short because the job says so is renewed in time
        return longer if useful_ms <= job.spec.lease_max_ms else holds
    return replace(longer, useful_ms=useful_ms) if isinstance(longer, CapBinds) else longer


def useful_for_ms(state: State, job: Job, quote: Quote) -> Millis:
    """The shortest lease of which something is kept: start, restart, the work to the next checkpoint or the end, and
    the time before a lease's end in which its job is stopped. 0: unknown, without checkpoints and a declared run time.
    """
    spec = job.spec
    left_ms = None if spec.expected_run_ms is None and job.told_ms is None else max(0, state.expect(job) - job.kept_ms)
    works = [ms for ms in (spec.checkpoint_every_ms, left_ms or None) if ms is not None]
    if not works:
        return 0
    restart_ms = spec.restart_ms if job.attempts else 0
    work_ms = ceil_div(min(works) * PERMILLE, quote.rate.speed_permille)
    return quote.start_ms + restart_ms + work_ms + STOPS_BEFORE_MS


def fund_all(choices: Choices, starts: list[tuple[Job, Quote]], payer: Job) -> list[tuple[Hold, ...]] | Denial | None:
    """Holds for all of these starts or none, on one job's account. None: a limit on egress forbids them."""
    state = choices.state
    if state.team_rules and not limits.egress_fits(state, [job for job, _ in starts], choices.now):
        return None
    wanted = [_things(job, quote) for job, quote in starts]
    things = [thing for some in wanted for thing in some]
    most_ms = NEVER
    if state.class_rules:
        most_ms = max([limits.needed_ms(state, job, quote.start_ms) for job, quote in starts])
    least_ms = state.policy.least_lease_ms
    holds = state.ledger.authorise(scopes_of(state, payer), things, choices.now, least_ms, most_ms)
    if not isinstance(holds, tuple):
        return holds
    for _, quote in starts if state.clusters.terms else ():
        cluster = clusters.authorise(state, quote.offer, holds, choices.now)
        if not isinstance(cluster, tuple):
            return cluster
    left = iter(holds)
    return [tuple([next(left) for _ in some]) for some in wanted]


def _things(job: Job, quote: Quote) -> list[tuple[str, Terms]]:
    """What will be billed, by its future id: the attempt, or each of its nodes."""
    attempt, rate = attempt_id(job.id, job.attempts + 1), quote.rate
    if not rate.nodes:
        return [(attempt, rate.terms[0])]
    return [(node_id(attempt, k), terms) for k, terms in enumerate(rate.terms)]


def promise_rented(
    choices: Choices, job: Job, quote: Quote, holds: tuple[Hold, ...], after: tuple[str, ...], because: Reason
) -> StartPromised:
    """With one hold for the attempt, one for each node, or on a node that has one."""
    rate, offer, width = quote.rate, quote.offer, job.spec.gpus
    speed = rate.speed_permille
    if choices.state.clusters.terms:
        clusters.call(choices, offer, job.id)
    if quote.node:
        for hold in holds:
            ahead.take(choices, job, hold, because)
        return promise_start(choices, job, offer, because, width, speed, after, joins=quote.node)
    if not rate.nodes:
        return promise_start(choices, job, offer, because, width, speed, after, hold=holds[0])
    nodes = tuple([NodeAsk(hold.id, gpus, hold) for gpus, hold in zip(rate.nodes, holds, strict=True)])
    return promise_start(choices, job, offer, because, width, speed, after, nodes=nodes)


def scopes_of(state: State, job: Job) -> tuple[str, ...]:
    """The scopes that pay: equal for every job of a shape, plus the job's own cap if it has one, or its team's rule."""
    scopes = job.shape.scopes
    if job.spec.cap is None and not (state.team_rules and "job:" + job.id in state.ledger.caps):
        return scopes
    return (*scopes, "job:" + job.id)


# --- moving ----------------------------------------------------------------------------------------------------------


def may_move(state: State, job: Job, now: Instant) -> bool:
    """Only a job that survives a stop may move, not too often, and not while it moves already."""
    settled = now - job.moved_at >= max(state.policy.settle_ms, 10 * job.spec.restart_ms)
    survives = job.spec.interruptible and job.spec.checkpoint_every_ms is not None
    return job.phase == "placed" and survives and settled and job.moves < state.policy.max_moves


def move(choices: Choices, job: Job, offer: Offer, because: Reason, after: tuple[str, ...] = ()) -> bool:
    """Promise the next attempt first, then the stop: a moving job always has somewhere to go."""
    state = choices.state
    if state.standing(offer):
        pool = suited(state, job.shape, offer.id)
        reached = offer.id in job.shape.standing and offer.site not in state.lost_sites
        if not reached or not pool.fits(job.spec.gpus):
            return False
        move_standing(choices, job, offer, pool.choose(job.spec.gpus, lookahead.plain(state.policy)), because, after)
        return True
    rate = quotes.rate_of(job.shape, state, offer)
    if offer.id not in job.shape.rented or not quotes.available(state, offer, rate, job.spec.gpus, choices.now):
        return False
    quote = quotes.quote(job.shape, offer, rate, max(0, state.expect(job) - job.kept_ms))
    if state.gated and not quotes.within_limits(state, job, [quote], choices.now):
        return False
    return move_rented(choices, job, quote, because)


def move_rented(choices: Choices, job: Job, quote: Quote, because: Reason) -> bool:
    """Move to rented nodes, launched or joined, if there is money."""
    old = job.attempt
    assert old is not None
    quiet = choices.state.gated and limits.quiet_hours(choices.state, choices.now) is not None
    if quiet or guards.needs_approval(choices, job, quote):
        return False
    holds = fund(choices, job, quote)
    if not isinstance(holds, tuple):
        return False
    choices.record(promise_rented(choices, job, quote, holds, (old.id,), because))
    choices.record(StopPromised(choices.now, old.id, "move", yields=False, because=because))
    return True


def move_standing(
    choices: Choices, job: Job, offer: Offer, slots: Slots, because: Reason, after: tuple[str, ...] = ()
) -> None:
    """Move to these GPUs of a standing offer. Within one offer, its old GPUs are promised to the beneficiary."""
    old = job.attempt
    assert old is not None
    speed = quotes.rate_of(job.shape, choices.state, offer).speed_permille
    after = (old.id, *after)
    width = job.spec.gpus
    choices.record(promise_start(choices, job, offer, because, width, speed, after, slots))
    choices.record(StopPromised(choices.now, old.id, "move", yields=bool(old.slots), because=because))
