"""The scheduling cycle: all decisions of one step, in numbered steps. The engine calls it after the facts are applied.

`decide` says for each step why it comes where it does. Among placements the order is the benchmark's: ends have freed
their GPUs, then patience runs out, then arrivals join, then one pass over the queue, then the queue's cap. A job with
zero patience gets one pass before it bursts.
"""

from collections.abc import Iterable
from heapq import heappop

from penstock.core.decide import (
    ahead,
    backfill,
    clusters,
    defragment,
    giveback,
    leases,
    limits,
    moves,
    ordering,
    placement,
    preemption,
    reservations,
    retries,
    targets,
    triggers,
)
from penstock.core.decide.choices import Choices
from penstock.core.decide.rules import (
    BUILT_IN,
    UNTIL_CHANGED,
    Candidate,
    Rules,
    by_rule,
    could_hold,
    finds_what_it_needs,
    gap_at_home,
    gpu_wanted,
    preference_of,
    widest_of,
)
from penstock.core.fold.governed import HELD, open_until
from penstock.core.fold.state import Job, Lane, RareChanges, Shape, State
from penstock.core.fold.suited import barred, why_barred
from penstock.core.model.events import (
    JobFailed,
    JobRefused,
    OfferClosed,
    OfferOpened,
    ShapeJudged,
    StopPromised,
    WaitPromised,
)
from penstock.core.model.reasons import CancelAsked, MoveAsked, NothingAllowed, PlacementsPaused, SuspendAsked, TooWide
from penstock.core.model.types import Offer, Policy
from penstock.core.units import NEVER, Instant, Millis


def decide(choices: Choices, rules: Rules) -> None:
    """Each promise is applied as it is made, so a later step sees what an earlier one did."""
    state, now = choices.state, choices.now
    choices.rules = rules
    changes, policy = state.changes, state.policy
    rare = changes.rare  # the same object throughout: promises below may add to it

    # 1. Verdicts on new shapes: every later step asks where a job may run.
    if state.stale_shapes:
        judge(choices, rules)

    # 2. Providers' answers: money is freed before a job asks for it, offers close before a job is sent there.
    if rare.noted:
        hear(choices, rare, rules)
    elif changes.closing:
        leases.settle(choices)

    # 3. Reopen offers whose back-off is over: queued jobs may start there below, and jobs on demand move there.
    if state.closed:
        open_offers(choices)

    # 4. People's requests go before the policy's choices, while the job is still where they saw it.
    if rare.requests:
        answer_requests(choices, rare.requests)
    if rare.suspends:
        suspend(choices, rare.suspends)

    # 5. Adjust the cost of delay, before jobs are weighed with it.
    if state.aim.next_at < NEVER and targets.next_at(state) <= now:
        targets.follow(choices)

    # 6. Stop jobs that have run as long as their class may: their next attempts are not placed below.
    if state.run_ends and state.run_ends[0][0] <= now:
        end_long_runs(choices)

    # 7. Placements, with the GPUs and money that the steps above freed.
    overdue = bool(state.timers) and state.timers[0][0] <= now  # a job's patience is over
    if state.paused:
        hold_off(choices)
    elif changes.arrived or changes.freed or rare.room or overdue:
        place_all(choices, overdue)
    if (state.reserved or state.governed) and not state.paused:
        place_more(choices)

    # 8. Shorten leases after a lowered cap: new placements count, too.
    if rare.stale:
        leases.call_back(choices)

    # 9. Renewals: an attempt stopped above gets at most one more lease, and a denied one may drain.
    if state.renewals and state.renewals[0][0] <= now:
        renew(choices)

    # 10. Moves between rented offers: after a renewal, and when spot is seen to be open.
    if (changes.review or rare.open_spot) and policy.share_nodes and policy.home and not state.paused:
        moves.move_on(choices)

    # 11. Release idle nodes, last: a job that bursts in this step may have joined one.
    if rare.idle:
        giveback.idle(choices, rare.idle)
    if state.idle:
        giveback.rested(choices)

    # 12. Warm nodes and transient clusters, after that: a node that a job has left may be kept instead of renting one.
    tend(choices)


def tend(choices: Choices) -> None:
    """What is rented for no job in particular."""
    state = choices.state
    if state.warm.offers or state.warm.nodes:
        ahead.tend(choices)
    if state.clusters.live or state.clusters.kept:
        clusters.tend(choices)


def hear(choices: Choices, rare: RareChanges, rules: Rules) -> None:
    """Meter readings, ends, confirmed deadlines, refusals. Readings first: settling closes the lease that a reading
    belongs to.
    """
    leases.compare(choices, rare.readings)
    leases.settle(choices)
    leases.shorten(choices, rare.shortened)
    close_offers(choices, rare.refused)
    retries.promise_retries(choices, rare.failed)  # after `settle`: what the try cost is charged
    if rare.noticed:
        leases.warn(choices, rare.noticed)
    if choices.state.stale_shapes:  # of jobs that are kept from an offer where their starts failed
        judge(choices, rules)


def place_all(choices: Choices, overdue: bool) -> None:
    """In this order: jobs whose patience is over, the queue, arrivals, jobs that come home, and jobs that wait for
    money.
    """
    state = choices.state
    changes, policy = state.changes, state.policy
    expired = overdue and expire(choices)
    if state.waiting and (changes.arrived or changes.freed or (expired and _lets_others_in(policy))):
        place(choices, changes.arrived)
    if changes.freed and policy.home:  # after queued jobs had their turn on the freed GPUs
        tidy_up(choices)
    if changes.rare.room:  # last: moves home have freed money, and jobs on owned GPUs need none
        spend_room(choices, changes.rare.room)


def place_more(choices: Choices) -> None:
    """Call back backfills that are in the way of a reserved job; and where a trigger holds, burst who waits for it."""
    state = choices.state
    if state.reserved:
        backfill.call_back(choices)
    if state.governed and triggers.awaited(state) and triggers.one_holds(state, choices.now):
        spend_room(choices, {HELD: None})


def renew(choices: Choices) -> None:
    """Renew due leases. An attempt that is drained before it started is over at once, and frees its money for queued
    jobs.
    """
    state = choices.state
    hidden = hide(choices)
    leases.renew(choices)
    limits.show(hidden)
    if state.changes.closing:
        leases.settle(choices)
        if state.changes.rare.room and not state.paused:
            spend_room(choices, state.changes.rare.room)


def _lets_others_in(policy: Policy) -> bool:
    """Whether a departure matters to other queued jobs. Where any job that fits may start, each was asked already."""
    return not policy.backfill or policy.waiting.queue_cap is not None


def tidy_up(choices: Choices) -> None:
    """Standing GPUs are free and queued jobs had their turn: rented jobs come home, and small ones are defragmented."""
    hidden = hide(choices)
    moves.come_home(choices)
    if choices.state.policy.defragment:
        defragment.defragment(choices)
    limits.show(hidden)
    if choices.state.changes.closing:
        leases.settle(choices)


def hide(choices: Choices, job_class: str = "") -> limits.Hidden:
    """Headroom that is kept from jobs of this class, out of sight of what reads the pools themselves."""
    state = choices.state
    return limits.hide(state, job_class, choices.now) if state.policy.governance.headroom else []


def end_long_runs(choices: Choices) -> None:
    """Stop attempts whose job has run as long as its class may, but for the time of a last checkpoint."""
    state, now = choices.state, choices.now
    while state.run_ends and state.run_ends[0][0] <= now:
        attempt = state.run_ends[0][2]
        because = limits.ran_too_long(state, attempt.job, now)
        choices.record(StopPromised(now, attempt.id, "fail", yields=False, because=because))


def hold_off(choices: Choices) -> None:
    """Placements are paused: record that for arrivals. All are decided again when a person resumes."""
    for job in choices.state.changes.arrived:
        if job.queued:
            choices.record(WaitPromised(choices.now, job.id, NEVER, PlacementsPaused()))


def place(choices: Choices, arrived: list[Job]) -> None:
    """One pass over the queue, and an answer for every arrival."""
    state = choices.state
    policy = state.policy
    for job in arrived:
        shape = job.shape
        if job.queued and shape.judged and can_never_run(shape):
            refuse(choices, shape)  # as others of its shape were before
        elif state.class_rules and job.queued and limits.left_to_run(state, job) == 0:
            choices.record(JobFailed(choices.now, job.id, limits.ran_too_long(state, job, choices.now)))
    if state.reserved and state.changes.freed:
        reservations.start_reserved(choices)
    fresh_lanes = None if state.changes.freed or not policy.backfill else arrived
    pass_queue(choices, fresh_lanes)
    if state.reserved:
        backfill.backfill(choices, arrived)
    if policy.preempt or policy.displace or state.class_stops or state.team_shares:
        make_room(choices, arrived)
    cap = policy.waiting.queue_cap
    if cap is not None and state.waiting > cap:
        cap_queue(choices, cap)
    due = []
    for job in arrived:
        if job.queued and placement.answer(choices, job):
            due.append(job)  # noqa: PERF401 - a comprehension is a call more, and nearly always one job came
    if due:
        for job in due:
            if job.queued:  # one that was preempted in this very step arrived twice
                placement.burst(choices, job)
        if not policy.backfill:
            pass_queue(choices, None)


def pass_queue(choices: Choices, arrived: list[Job] | None) -> None:
    """Start what fits, in order. If no GPU was freed, only lanes with arrivals can have anything new."""
    state, policy = choices.state, choices.state.policy
    lanes: Iterable[Lane] = state.lanes
    if arrived is not None:
        if len(arrived) == 1:
            job = arrived[0]
            lane = job.shape.lane
            if lane is not None and lane.head() is job and ordering.fits(state, lane, choices.now):
                placement.start_standing(choices, job)
            if lane is None or not lane.keys or not ordering.fits(state, lane, choices.now):
                return
        lanes = dict.fromkeys(job.shape.lane for job in arrived if job.shape.lane is not None)
    while state.waiting:
        turn = ordering.turn(state, lanes, choices.now)
        first = None if turn is None else turn.head()
        if first is None:
            return
        if not placement.start_standing(choices, first):  # it fits only at an unreachable site
            if not policy.backfill:
                return
            lanes = [lane for lane in lanes if lane is not turn]


def expire(choices: Choices) -> bool:
    """Jobs whose patience is over burst, in the order it ended."""
    state, now = choices.state, choices.now
    timers, bursts = state.timers, False
    while timers and timers[0][0] <= now:
        at, _, job = timers[0]
        if job.until_at == at:
            bursts = placement.burst(choices, job) or bursts
        if timers and timers[0][2] is job and timers[0][0] == at:
            heappop(timers)
    return bursts


def cap_queue(choices: Choices, cap: int) -> None:
    """The queue exceeds the policy's cap: the newest jobs burst."""
    state = choices.state
    for job in reversed(list(state.newest)):
        if state.waiting <= cap:
            return
        if job.queued and job.shape.rented and job.phase == "waiting":
            placement.burst(choices, job, cap)


def make_room(choices: Choices, arrived: list[Job]) -> None:
    """For each arrival that is still queued. Whom it stops before its start arrives again, and may make room in turn:
    `ranks` says why that ends.
    """
    state = choices.state
    made: dict[str, None] = {}
    for job in arrived:
        if job.id in made or (state.at_once and limits.team_at_limit(state, job) is not None):
            continue
        hidden = hide(choices, job.spec.job_class)
        quiet = state.gated and limits.quiet_hours(state, choices.now) is not None
        if _make_room_for(choices, job, quiet):
            made[job.id] = None
        limits.show(hidden)


def _make_room_for(choices: Choices, job: Job, quiet: bool) -> bool:
    """The first way that finds GPUs counts. In quiet hours nobody is displaced, because that rents."""
    state = choices.state
    policy = state.policy
    if not job.queued:
        return False
    if policy.preempt and job.spec.priority > 0 and preemption.preempt(choices, job):
        return True
    if state.class_stops and preemption.preempt_classes(choices, job):
        return True
    if state.team_shares and not quiet and preemption.return_shares(choices, job):
        return True
    return policy.displace and not job.shape.rented and not quiet and preemption.displace(choices, job)


def spend_room(choices: Choices, scopes: dict[str, None]) -> None:
    """Money was freed: jobs that wait for it try again, first come first served, until one is denied."""
    state = choices.state
    for scope in scopes:
        for job in list(state.short.get(scope, {}).values()):
            if job.queued and not placement.burst(choices, job) and job.short_of == scope:
                break


def judge(choices: Choices, rules: Rules) -> None:
    """A verdict for each new shape and every offer; a shape that can never run anywhere is refused at once."""
    state = choices.state
    if not state.offers:
        return
    for shape in state.stale_shapes.copy():
        judged = verdicts(state, shape, rules, choices.now)
        choices.record(judged)
        if can_never_run(shape):
            refuse(choices, shape)


def can_never_run(shape: Shape) -> bool:
    """No offer may run it, whatever becomes free and whatever changes on the nodes of its home."""
    waits = shape.base is not None or any(where == UNTIL_CHANGED for _, _, where in shape.excluded)
    return not (shape.standing or shape.rented or waits)


def verdicts(state: State, shape: Shape, rules: Rules, now: Instant) -> ShapeJudged:
    spec = shape.spec
    data = tuple(state.data[name] for name in spec.data if name in state.data)
    allowed: list[str] = []
    excluded: list[tuple[str, str, str]] = []
    for offer in state.offers.values():
        asked = Candidate(spec, state.sites[offer.site], offer, data, state.policy)
        verdict = rules.verdict(asked)
        if verdict.allowed and (unsuited := _unsuited(state, shape, offer.id)):
            excluded.append((offer.id, unsuited, UNTIL_CHANGED))
        elif verdict.allowed and retries.is_kept_from(shape, offer):
            excluded.append((offer.id, retries.RULE, ""))
        elif verdict.allowed:
            allowed.append(offer.id)
        elif verdict.where == BUILT_IN and verdict.rule in (gpu_wanted(asked), finds_what_it_needs(asked)):
            gap = gap_at_home(asked)
            excluded.append((offer.id, gap or verdict.rule, UNTIL_CHANGED if gap else BUILT_IN))
        else:
            excluded.append((offer.id, verdict.rule, verdict.where))
    if spec.models_ordered:
        allowed.sort(key=lambda name: preference_of(spec, state.offers[name]))
    # Owned before reserved; otherwise by preference, then in the order declared.
    standing = tuple(sorted((n for n in allowed if n in state.pools), key=lambda n: state.offers[n].term != "owned"))
    rented = tuple(name for name in allowed if name not in state.pools)
    return ShapeJudged(now, shape.number, standing, rented, tuple(excluded))


def _unsuited(state: State, shape: Shape, offer_id: str) -> str:
    """Why too few nodes of a standing offer suit the shape, even if all were free; empty: enough do."""
    pool = state.pools.get(offer_id)
    if pool is None or not (pool.barred or shape.unfit):
        return ""
    bits = barred(pool, shape, offer_id)
    return "" if pool.holds_without(bits, shape.spec.gpus) else why_barred(pool, shape, offer_id, bits)


def refuse(choices: Choices, shape: Shape) -> None:
    """No offer may run the shape: refuse all its queued jobs, for their width or by the first rule that objected."""
    state, gpus = choices.state, shape.spec.gpus
    because: TooWide | NothingAllowed
    if any(could_hold(offer, gpus) for offer in state.offers.values()):
        offer_id, rule, where = shape.excluded[0]
        because = NothingAllowed(offer=offer_id, rule=rule, where=where, each=by_rule(shape.excluded))
    else:
        widest, offer_id = max((widest_of(offer) or 0, offer.id) for offer in state.offers.values())
        because = TooWide(gpus=gpus, widest=widest, offer=offer_id)
    for job in [job for job in state.jobs.values() if job.shape is shape and job.queued]:
        choices.record(JobRefused(choices.now, job.id, because))


def close_offers(choices: Choices, refused: list[tuple[Offer, Millis]]) -> None:
    """No capacity: close the offer for all jobs, longer each time, until one job has succeeded there."""
    state = choices.state
    for offer, retry_ms in refused:
        if state.closed.get(offer.id, 0) > choices.now:
            continue
        refusals = state.refusals.get(offer.id, 0) + 1
        until = choices.now + retries.pause(retry_ms, refusals)
        choices.record(OfferClosed(choices.now, offer.id, until, refusals))


def open_offers(choices: Choices) -> None:
    """Reopen standing offers whose back-off is over, and spot if a job would move there; other rented ones are checked
    when a job asks.
    """
    state = choices.state
    for name, until in list(state.closed.items()):
        if until <= choices.now and (name in state.pools or moves.tried_at(state, name) <= choices.now):
            choices.record(OfferOpened(choices.now, name))


def answer_requests(choices: Choices, requests: list[tuple[str, str]]) -> None:
    """A person's request about a job that has GPUs: cancel it, or move it."""
    state = choices.state
    for job_id, offer_id in requests:
        job = state.jobs.get(job_id)
        if job is None or job.phase != "placed" or job.attempt is None:
            continue
        if not offer_id:
            choices.record(StopPromised(choices.now, job.attempt.id, "cancel", yields=False, because=CancelAsked()))
        elif not state.paused and placement.may_move(state, job, choices.now):
            hidden = hide(choices, job.spec.job_class)
            placement.move(choices, job, state.offers[offer_id], MoveAsked(job.attempt.offer.id, job.attempt.kept_ms))
            limits.show(hidden)
    if state.changes.closing:  # an attempt that had not started is over at once
        leases.settle(choices)


def suspend(choices: Choices, jobs: list[str]) -> None:
    """Stop the attempts of jobs that a person suspended. One that stops already is kept out of the queue afterwards."""
    state = choices.state
    for job_id in jobs:
        job = state.jobs.get(job_id)
        if job is None or job_id not in state.suspended or job.phase != "placed" or job.attempt is None:
            continue
        choices.record(StopPromised(choices.now, job.attempt.id, "wait", yields=False, because=SuspendAsked()))
    if state.changes.closing:  # an attempt that had not started is over at once
        leases.settle(choices)


def next_deadline(state: State) -> Instant:
    """When to wake up if no event comes; NEVER if only an event can change anything."""
    timers, renewals = state.timers, state.renewals
    soonest = timers[0][0] if timers and not state.paused else NEVER
    if renewals and renewals[0][0] < soonest:
        soonest = renewals[0][0]
    if state.short and not state.paused and any(state.short.values()):
        soonest = min(soonest, state.ledger.next_period_at(state.at))
    if state.retries and state.retries[0][0] < soonest:
        soonest = state.retries[0][0]
    if state.closed:
        soonest = min([soonest, *_opens_at(state)])
    if state.aim.next_at < NEVER:
        soonest = min(soonest, targets.next_at(state))
    if state.run_ends and state.run_ends[0][0] < soonest:
        soonest = state.run_ends[0][0]
    if state.idle:
        soonest = min([soonest, *(giveback.kept_until(state, node) for node in state.idle.values())])
    if state.reserved and not state.paused:
        soonest = min(soonest, backfill.next_at(state))
    if state.warm.offers or state.warm.nodes:
        soonest = min(soonest, ahead.next_at(state))
    if state.clusters.live or state.clusters.kept:
        soonest = min(soonest, clusters.next_at(state))
    if state.governed and state.waiting and not state.paused:
        soonest = min(soonest, _policy_changes_at(state))
    return soonest


def _opens_at(state: State) -> list[Instant]:
    """When closed offers are open again: standing ones, and spot to which somebody may move."""
    opens = [at if name in state.pools else moves.tried_at(state, name) for name, at in state.closed.items()]
    return [at for at in opens if at > state.at]


def _policy_changes_at(state: State) -> Instant:
    """When a trigger will hold for queued jobs, or headroom that is kept from them ends."""
    soonest = triggers.next_at(state) if triggers.awaited(state) else NEVER
    for rule in state.policy.governance.headroom:
        soonest = min(soonest, open_until(state, rule.id, state.at) or NEVER)
    return soonest
