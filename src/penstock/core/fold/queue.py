"""Applies events to the queue: which jobs wait, for what, and in which order. Part of `apply`.

Jobs of a shape wait in the lane of its verdict, or in `Shape.pending` before there is one.
"""

from dataclasses import replace
from heapq import heappop, heappush

from penstock.core.fold.fair_share import Use
from penstock.core.fold.job_approvals import JobApprovals, open_request
from penstock.core.fold.learned import Starts
from penstock.core.fold.shape_key import ShapeKey, shape_key
from penstock.core.fold.state import (
    Job,
    Lane,
    OrderKey,
    Shape,
    State,
)
from penstock.core.fold.suited import note_barred
from penstock.core.fold.transitions import must_be_queued, touch_job
from penstock.core.ids import members
from penstock.core.model import events as e
from penstock.core.model.governance import Governance
from penstock.core.model.lifecycle import Broken
from penstock.core.model.types import JobSpec
from penstock.core.units import NEVER, Instant, Money


def regroup(state: State) -> None:
    """The rules read other things of a job than before: give each job the shape that it has now. `judge_anew` follows.

    Shapes that no job has any more keep their numbers and are not judged again.
    """
    state.shapes = {}
    for job in state.jobs.values():
        before = job.shape
        shape = shape_of(state, job.spec)
        if before.base is not None:
            shape = shape_without(state, shape, before.without, before.stays, before.unfit)
        job.shape = shape


def judge_anew(state: State) -> None:
    """Verdicts are void; queued jobs leave their lanes until there are new ones."""
    state.lanes, state.lane_of = [], {}
    for starts in state.starts.values():
        starts.waiting = 0
    state.stale_shapes = list(state.shapes.values())
    for shape in state.shape_list:
        shape.judged, shape.lane, shape.pending = False, None, {}
        shape.rates, shape.ways = {}, None
    for job in list(state.reserved.values()):
        _let_go(state, job)
    queued = [job for job in state.jobs.values() if job.queued]
    for job in queued:
        job.key = order_key(state, job)
        job.shape.pending[job] = None
    ask_all(state, queued)
    capped = state.policy.waiting.queue_cap is not None
    state.newest = dict.fromkeys(sorted(queued, key=lambda job: job.seq)) if capped else {}


def ask_all(state: State, queued: list[Job]) -> None:
    """Old answers may no longer hold: decide all of these again."""
    arrived = dict.fromkeys(state.changes.arrived)
    state.changes.arrived += [job for job in queued if job not in arrived]


def job_submitted(state: State, event: e.JobSubmitted) -> None:
    spec = event.spec
    if event.number <= state.numbered:  # a duplicate, perhaps long after the job ended
        return
    state.numbered = event.number
    jobs = members(event.job, spec.count) if spec.count > 1 else (event.job,)
    if event.job in state.jobs or (spec.count > 1 and any(job in state.jobs for job in jobs)):
        return
    shape = shape_of(state, spec)
    for job in jobs:
        _admit(state, job, spec, event.at, shape)


def shape_of(state: State, spec: JobSpec) -> Shape:
    """The shape that jobs like this have under the policy in force."""
    key = shape_key(spec, state.policy.governance.shaped_by)
    shape = state.shapes.get(key)
    if shape is None:
        shape = _new_shape(state, key, spec)
    return shape


def shape_without(
    state: State, base: Shape, offers: tuple[str, ...], stays: bool, unfit: tuple[tuple[str, tuple[str, ...]], ...] = ()
) -> Shape:
    """The shape of jobs that are kept from these offers, or from some of their nodes, meanwhile."""
    key = (*base.key, offers, stays, unfit) if unfit else (*base.key, offers, stays)
    shape = state.shapes.get(key)
    if shape is None:
        shape = _new_shape(state, key, base.spec)
        shape.base, shape.without, shape.stays, shape.unfit = base, offers, stays, unfit
    return shape


def _new_shape(state: State, key: ShapeKey, spec: JobSpec) -> Shape:
    shape = state.shapes[key] = Shape(len(state.shape_list), key, spec)
    state.shape_list.append(shape)
    state.stale_shapes.append(shape)
    return shape


def _admit(state: State, job_id: str, spec: JobSpec, at: Instant, shape: Shape) -> None:
    job = Job(job_id, state.seq, spec, at, shape)
    state.seq += 1
    state.jobs[job_id] = job
    state.demand.change(at, spec.gpus)
    if state.touched is not None:
        state.touched.jobs[job] = ""
    cap = cap_of(state, spec)
    if cap is not None:
        state.ledger.cap_job("job:" + job_id, cap)
    enqueue(state, job)


def cap_of(state: State, spec: JobSpec) -> Money | None:
    """On one job's rent, over all its attempts: its own, or its team's, whichever is less."""
    rule = state.team_rules.get(spec.team) if state.team_rules else None
    if rule is None or rule.per_job is None:
        return spec.cap
    return rule.per_job if spec.cap is None else min(spec.cap, rule.per_job)


def enqueue(state: State, job: Job) -> None:
    job.queued, job.queued_at = True, state.at
    job.until_at = NEVER
    job.key = order_key(state, job)
    state.waiting += 1
    state.changes.arrived.append(job)
    lane = job.shape.lane
    if lane is None:
        job.shape.pending[job] = None
    else:
        lane.add(job)
    if state.policy.waiting.queue_cap is not None:
        state.newest[job] = None


def change_shape(state: State, job: Job, shape: Shape) -> None:
    """The job keeps its turn, among the jobs of another shape."""
    before, job.shape = job.shape, shape
    if not job.queued:
        return
    if job.reserved is not None:
        _let_go(state, job)
    if before.lane is None:
        del before.pending[job]
    else:
        before.lane.remove(job)
    if shape.lane is None:
        shape.pending[job] = None
    else:
        shape.lane.add(job)


def order_key(state: State, job: Job) -> OrderKey:
    return job.seq if state.policy.ordering == "fifo" else (-job.spec.priority, job.seq)


def dequeue(state: State, job: Job) -> None:
    timed = job.until_at < NEVER
    job.queued, job.until_at = False, NEVER
    state.waiting -= 1
    if job.short_of:
        state.short[job.short_of].pop(job.id, None)
        job.short_of = ""
    if job.reserved is not None:
        _let_go(state, job)
    if state.approvals:
        _lapse(state, job)
    lane = job.shape.lane
    if lane is None:
        del job.shape.pending[job]
    else:
        lane.remove(job)
    if state.newest:
        del state.newest[job]
    if timed:
        drop_stale_timers(state)


def drop_stale_timers(state: State) -> None:
    """Call after each change of a job's `until_at`: the heap's first timer must always be valid."""
    timers = state.timers
    while timers and timers[0][2].until_at != timers[0][0]:
        heappop(timers)


def reserve_promised(state: State, event: e.ReservePromised) -> None:
    job = state.jobs[event.job]
    must_be_queued(job, "a reservation")
    if job.reserved is not None:
        raise Broken(f"job {job.id} has nodes {job.reserved} reserved, and would have {event.nodes} of {event.offer}")
    touch_job(state, job)
    job.because = event.because
    job.reserved, job.until_at = (event.offer, event.nodes), NEVER
    drop_stale_timers(state)
    state.reserved[job.id] = job
    for node in event.nodes:
        state.pools[event.offer].keep(node)


def _let_go(state: State, job: Job) -> None:
    assert job.reserved is not None
    offer, nodes = job.reserved
    job.reserved = None
    del state.reserved[job.id]
    for node in nodes:
        state.pools[offer].let_go(node)
    state.changes.freed = True


def shape_judged(state: State, event: e.ShapeJudged) -> None:
    shape = state.shape_list[event.shape]
    shape.standing, shape.rented, shape.excluded, shape.judged = event.standing, event.rented, event.excluded, True
    shape.ways = None
    state.stale_shapes = [other for other in state.stale_shapes if other is not shape]
    note_barred(state, shape)
    lane = shape.lane = _lane(state, shape)
    for job in shape.pending:
        lane.add(job)
    state.changes.freed = True
    shape.pending = {}


def _lane(state: State, shape: Shape) -> Lane:
    """One lane per team under fair share, or for a team with a limit on GPUs, and for a class with headroom; otherwise
    one for all.
    """
    known, spec, headroom = (shape.standing, shape.spec.gpus), shape.spec, state.policy.governance.headroom
    team = spec.team if state.policy.ordering == "fair" or spec.team in state.at_once else ""
    job_class = spec.job_class if headroom and any(rule.job_class == spec.job_class for rule in headroom) else ""
    barred = tuple([shape.barred.get(offer, 0) for offer in shape.standing]) if shape.barred else ()
    key = (*known, team, job_class, barred) if any(barred) else (*known, team, job_class)
    lane = state.lane_of.get(key)
    if lane is None:
        starts = state.starts.get(known)
        if starts is None:
            starts = state.starts[known] = Starts(*known)
        pools = tuple((offer, state.pools[offer]) for offer in shape.standing)
        lane = Lane(len(state.lanes), spec.gpus, pools, starts, team)
        lane.job_class, lane.limited = job_class, bool(headroom) or spec.team in state.at_once
        lane.barred = barred if any(barred) else ()
        state.lane_of[key] = lane
        state.lanes.append(lane)
    return lane


def wait_promised(state: State, event: e.WaitPromised) -> None:
    job, until, scope = state.jobs[event.job], event.until_at, event.scope
    must_be_queued(job, "a wait")
    touch_job(state, job)
    job.because = event.because
    before, job.until_at = job.until_at, until
    if until < NEVER:
        heappush(state.timers, (until, job.seq, job))
    if before < NEVER:
        drop_stale_timers(state)
    if job.short_of and job.short_of != scope:
        state.short[job.short_of].pop(job.id, None)
    job.short_of = scope
    if scope:
        state.short.setdefault(scope, {})[job.id] = job
    if event.patience_ms is not None:
        job.patience_ms = event.patience_ms
    if event.worst_ms:
        job.foretold = (event.at, event.about_ms, event.worst_ms)


# --- approvals -------------------------------------------------------------------------------------------------------


def approval_asked(state: State, event: e.ApprovalAsked) -> None:
    known = state.approvals.get(event.job)
    if known is None:
        known = state.approvals[event.job] = JobApprovals()
    known.asked[event.rule] = event
    known.answers.pop(event.rule, None)


def approval_answered(state: State, event: e.ApprovalAnswered) -> None:
    """An answer that comes too late, or to what nobody asks any more, changes nothing."""
    known, job = state.approvals.get(event.job), state.jobs.get(event.job)
    asked = open_request(known, event.rule, event.at)
    if known is None or job is None or asked is None:
        return
    amount = asked.amount if event.amount is None else min(event.amount, asked.amount)
    known.answers[asked.rule] = replace(event, rule=asked.rule, amount=amount)
    if event.approved:
        known.granted[asked.rule] = amount
    ask_all(state, [job])


def _lapse(state: State, job: Job) -> None:
    """It starts, or is suspended: what was asked and not answered is void. What nobody answered in time stays a no, and
    what was approved stays approved.
    """
    known = state.approvals.get(job.id)
    while (asked := open_request(known, "", state.at)) is not None:
        assert known is not None
        del known.asked[asked.rule]
    if known is not None and known.is_empty:
        del state.approvals[job.id]


def keep_approvals(state: State, before: Governance, after: Governance) -> None:
    """Under a new policy: answers to rules that ask otherwise now, or no more, are void."""
    rules_before = {rule.name: replace(rule, source="") for rule in before.approvals}
    same = [rule.name for rule in after.approvals if rules_before.get(rule.name) == replace(rule, source="")]
    for job, known in list(state.approvals.items()):
        known.asked = {rule: asked for rule, asked in known.asked.items() if rule in same}
        known.answers = {rule: answer for rule, answer in known.answers.items() if rule in same}
        known.granted = {rule: amount for rule, amount in known.granted.items() if rule in same}
        if known.is_empty:
            del state.approvals[job]


def prove(job: Job, at: Instant, started: bool) -> None:
    """Compare a job's forecast with its real start."""
    assert job.foretold is not None
    told_at, about, worst = job.foretold
    job.foretold = None
    if job.shape.lane is not None:
        job.shape.lane.starts.proved(at - told_at, about, worst, started)


def count_use(state: State, job: Job, gpus: int) -> None:
    """Under fair share: the team has so many standing GPUs more, or fewer."""
    team = job.spec.team
    use = state.uses.get(team)
    if use is None:
        use = state.uses[team] = Use()
    use.change(gpus, state.at, state.policy.half_life_ms)


def keep_no_longer(state: State, offer: str, node: int) -> None:
    """The node cannot serve its reservation any more: decide the waiting job again."""
    kept = [(job, *job.reserved) for job in state.reserved.values() if job.reserved is not None]
    for job in [job for job, at, nodes in kept if at == offer and node in nodes]:
        _let_go(state, job)
        ask_all(state, [job])
