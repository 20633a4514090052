"""`apply`: what an event does to the state. Called once for every fact and every promise, live and in replay alike.

It reads nothing but the event and the state, decides nothing, and computes no money. Facts that come twice or too
late (an end after a loss, an answer to something that is gone) change nothing: drivers may repeat themselves.
Actions are noted here, where the promise becomes state, so that what is said and what is owed cannot differ.
"""

from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, Final

from penstock.core import books
from penstock.core import events as e
from penstock.core.actions import CopyData, ReleaseNode, StopAttempt
from penstock.core.free import Pool
from penstock.core.learned import Losses, Starts
from penstock.core.ledger import Lease
from penstock.core.lifecycle import ATTEMPT, JOB, NODE, AttemptPhase, Broken, JobPhase, NodePhase
from penstock.core.model import Hold, JobSpec, NodeAsk, Offer
from penstock.core.runtimes import ESTIMATORS
from penstock.core.shares import Use
from penstock.core.state import (
    Aim,
    Attempt,
    Job,
    Lane,
    Node,
    OrderKey,
    Shape,
    State,
    launch_action,
    reason_scope,
    shape_key,
    start_action,
)
from penstock.core.units import NEVER, PERMILLE, Instant, Millis


def apply(state: State, event: e.Event) -> None:
    state.at = event.at
    APPLY[type(event)](state, event)


def begin_step(state: State, at: Instant) -> None:
    """Forget what the last step changed. Replay does the same at each row, so both know the same."""
    state.fresh.forget()
    state.steps += 1
    if state.short and state.ledger.crossed(state.at, at):  # a new month has new room
        state.fresh.room.update(dict.fromkeys(state.short))


# --- what people decide ----------------------------------------------------------------------------------------------


def policy_set(state: State, event: e.PolicySet) -> None:
    if event.policy.estimator != state.policy.estimator:  # another way to learn starts from nothing
        state.history = ESTIMATORS[event.policy.estimator]()
    if event.policy.ordering == "fair" and state.policy.ordering != "fair":
        state.uses = {}
        for attempt in state.attempts.values():
            _use(state, attempt.job, sum([gpus for _, gpus in attempt.slots]))
    state.policy, state.revision = event.policy, event.revision
    state.value_per_hour = event.policy.waiting.value_per_hour
    state.aim = Aim()
    state.aim.since_at, state.aim.next_at = event.at, event.at + event.policy.waiting.look_every_ms
    _judge_anew(state)


def value_set(state: State, event: e.ValueSet) -> None:
    """What was measured fades by a sixteenth: a quiet night says little beside a busy day, and a week is forgotten."""
    state.value_per_hour, aim = event.value_per_hour, state.aim
    aim.next_at = event.next_at
    aim.jobs -= aim.jobs // 16
    aim.delay_ms -= aim.delay_ms // 16
    spent = sum([account.spent for (scope, _), account in state.ledger.accounts.items() if scope == "org"])
    aim.spent += (spent - aim.spent) // 16
    aim.since_at += (event.at - aim.since_at) // 16


def paused(state: State, _: e.Paused) -> None:
    state.paused = True


def resumed(state: State, _: e.Resumed) -> None:
    """Whoever waits is answered anew: its time may have come meanwhile."""
    state.paused = False
    state.fresh.freed = True
    _ask_all(state, [job for job in state.jobs.values() if job.queued])


def site_joined(state: State, event: e.SiteJoined) -> None:
    site = event.site
    state.sites[site.id] = site
    for gone in [o.id for o in state.offers.values() if o.site == site.id and o.id not in {x.id for x in site.offers}]:
        state.offers.pop(gone)
    for offer in site.offers:
        state.offers[offer.id] = offer
        if state.standing(offer) and offer.id not in state.pools:
            state.pools[offer.id] = Pool(offer.shapes[-1].gpus, offer.shapes[-1].count or 0)
            state.on_node[offer.id] = [{} for _ in range(offer.shapes[-1].count or 0)]
        _count(state, offer)
    state.fresh.freed = True
    _set_open(state)
    _judge_anew(state)


def nodes_seen(state: State, event: e.NodesSeen) -> None:
    """Nodes keep their numbers as long as anything of ours is on them; one that is not seen has nothing to give."""
    pool, seen = state.pools.get(event.offer), dict(event.nodes)
    if pool is None:
        return
    for name in seen:
        if name not in pool.names:
            _call(state, event.offer, pool, name, seen)
    for node in range(pool.size):
        has = min(seen.get(pool.names[node], 0), pool.per_node) if node < len(pool.names) else 0
        _leave_to_others(state, event.offer, node, pool.per_node - has)
    state.fresh.freed = True
    if _count(state, state.offers.get(event.offer)):
        _judge_anew(state)


def _call(state: State, offer: str, pool: Pool, name: str, seen: dict[str, int]) -> None:
    """A new node takes the number of one that is gone and empty, or the next."""
    there = state.on_node[offer]
    gone = (node for node, other in enumerate(pool.names) if other not in seen and not there[node])
    node = next(gone, len(pool.names))
    if node == len(there):
        there.append({})
    pool.call(node, name)


def _leave_to_others(state: State, offer: str, node: int, gpus: int) -> None:
    pool = state.pools[offer]
    if gpus > pool.others.get(node, 0):
        _keep_no_longer(state, offer, node)
    if gpus != pool.others.get(node, 0):
        pool.leave(node, gpus)


def _count(state: State, offer: Offer | None) -> bool:
    """An offer whose nodes are seen has as many as were seen at once, whatever was declared. Is that new?"""
    pool = state.pools.get(offer.id) if offer is not None else None
    if offer is None or pool is None or not pool.names or offer.shapes[-1].count == pool.size:
        return False
    state.offers[offer.id] = replace(offer, shapes=(replace(offer.shapes[-1], count=pool.size),))
    return True


def _judge_anew(state: State) -> None:
    """Verdicts are void; queued jobs wait for new ones beside their lanes."""
    state.lanes, state.lane_of = [], {}
    for starts in state.starts.values():
        starts.waiting = 0
    state.stale_shapes = state.shape_list.copy()
    for shape in state.shape_list:
        shape.judged, shape.lane, shape.pending = False, None, []
        shape.rates, shape.ways = {}, None
    for job in list(state.reserved.values()):
        _let_go(state, job)
    queued = [job for job in state.jobs.values() if job.queued]
    for job in queued:
        job.key = order_key(state, job)
        job.shape.pending.append(job)
    _ask_all(state, queued)
    state.newest = sorted(queued, key=lambda job: job.seq) if state.policy.waiting.queue_cap is not None else []


def _ask_all(state: State, queued: list[Job]) -> None:
    """The old answers may no longer hold."""
    arrived = dict.fromkeys(state.fresh.arrived)
    state.fresh.arrived += [job for job in queued if job not in arrived]


def period_opened(state: State, event: e.PeriodOpened) -> None:
    state.ledger.open_period(event.starts_at, event.ends_at, event.period)
    state.fresh.room.update(dict.fromkeys(state.short))


def cap_set(state: State, event: e.CapSet) -> None:
    before = state.ledger.caps.get(event.scope)
    state.ledger.set_cap(event.scope, event.per_period, event.per_hour)
    state.fresh.room[event.scope] = None
    if event.per_period is not None and (before is None or event.per_period < before):
        state.fresh.stale = True


def site_lost(state: State, event: e.SiteLost) -> None:
    state.lost_sites[event.site] = None
    _set_open(state)


def site_back(state: State, event: e.SiteBack) -> None:
    state.lost_sites.pop(event.site, None)
    state.fresh.freed = True
    _set_open(state)


def _set_open(state: State) -> None:
    """A standing offer is open while its site can be reached and it has not refused."""
    for offer_id, pool in state.pools.items():
        offer = state.offers.get(offer_id)
        pool.open = offer is not None and offer.site not in state.lost_sites and offer_id not in state.closed


# --- data ------------------------------------------------------------------------------------------------------------


def data_set_registered(state: State, event: e.DataSetRegistered) -> None:
    state.data[event.data_set.id] = event.data_set
    for shape in state.shape_list:
        if event.data_set.id in shape.spec.data and shape.judged:
            _judge_anew(state)
            return


def replica_landed(state: State, event: e.ReplicaLanded) -> None:
    key = (event.data_set, event.site)
    state.replicas[key] = event.expires_at
    for attempt in state.copying.pop(key, ()):
        attempt.copies.pop(event.data_set, None)
        _begin_if_ready(state, attempt)


# --- jobs ------------------------------------------------------------------------------------------------------------


def job_submitted(state: State, event: e.JobSubmitted) -> None:
    spec = event.spec
    if event.number <= state.numbered:  # told twice, perhaps long after it ended
        return
    state.numbered = event.number
    if event.job in state.jobs or (spec.count > 1 and any(f"{event.job}/{k}" in state.jobs for k in range(spec.count))):
        return
    key = shape_key(spec)
    shape = state.shapes.get(key)
    if shape is None:
        shape = state.shapes[key] = Shape(len(state.shape_list), key, spec)
        state.shape_list.append(shape)
        state.stale_shapes.append(shape)
    if spec.count == 1:
        _admit(state, event.job, spec, event.at, shape)
        return
    for k in range(spec.count):
        _admit(state, f"{event.job}/{k}", spec, event.at, shape)


def _admit(state: State, job_id: str, spec: JobSpec, at: Instant, shape: Shape) -> None:
    job = Job(job_id, state.seq, spec, at, shape)
    state.seq += 1
    state.jobs[job_id] = job
    if spec.cap is not None:
        state.ledger.cap_job("job:" + job_id, spec.cap)
    _enqueue(state, job)


def _enqueue(state: State, job: Job) -> None:
    job.queued, job.queued_at = True, state.at
    job.until_at = NEVER
    key = job.key = order_key(state, job)
    state.waiting += 1
    state.fresh.arrived.append(job)
    lane = job.shape.lane
    if lane is None:
        job.shape.pending.append(job)
    else:
        heappush(lane.heap, (key, job))
        lane.starts.waiting += 1
    if state.policy.waiting.queue_cap is not None:
        state.newest.append(job)


def order_key(state: State, job: Job) -> OrderKey:
    return job.seq if state.policy.ordering == "fifo" else (-job.spec.priority, job.seq)


def _dequeue(state: State, job: Job) -> None:
    job.queued, job.until_at = False, NEVER
    state.waiting -= 1
    if job.short_of:
        state.short[job.short_of].pop(job.id, None)
        job.short_of = ""
    if job.reserved is not None:
        _let_go(state, job)
    lane = job.shape.lane
    if lane is not None:
        lane.starts.waiting -= 1
        heap = lane.heap
        while heap and not heap[0][1].queued:
            heappop(heap)
    newest, timers = state.newest, state.timers
    while newest and not newest[-1].queued:
        newest.pop()
    while timers and timers[0][2].until_at != timers[0][0]:
        heappop(timers)


def reserve_promised(state: State, event: e.ReservePromised) -> None:
    job = state.jobs[event.job]
    job.reserved, job.until_at = (event.offer, event.nodes), NEVER
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
    state.fresh.freed = True


def shape_judged(state: State, event: e.ShapeJudged) -> None:
    shape = state.shape_list[event.shape]
    shape.standing, shape.rented, shape.excluded, shape.judged = event.standing, event.rented, event.excluded, True
    shape.ways = None
    state.stale_shapes = [other for other in state.stale_shapes if other is not shape]
    lane = shape.lane = _lane(state, shape)
    pending = [(job.key, job) for job in shape.pending if job.queued]
    lane.heap.extend(pending)
    lane.starts.waiting += len(pending)
    heapify(lane.heap)
    state.fresh.freed = True
    shape.pending = []


def _lane(state: State, shape: Shape) -> Lane:
    """A lane for each team where turns go by what teams had; one for all where they do not."""
    known = (shape.standing, shape.spec.gpus)
    team = shape.spec.team if state.policy.ordering == "fair" else ""
    lane = state.lane_of.get((*known, team))
    if lane is None:
        starts = state.starts.get(known)
        if starts is None:
            starts = state.starts[known] = Starts(*known)
        pools = tuple((offer, state.pools[offer]) for offer in shape.standing)
        lane = state.lane_of[(*known, team)] = Lane(len(state.lanes), shape.spec.gpus, pools, starts, team)
        state.lanes.append(lane)
    return lane


def job_refused(state: State, event: e.JobRefused) -> None:
    job = state.jobs[event.job]
    _dequeue(state, job)
    _end(state, job, "refused")


def cancel_requested(state: State, event: e.CancelRequested) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.cancelled:
        return
    job.cancelled = True
    if job.queued:
        _dequeue(state, job)
        _end(state, job, "cancelled")
    else:
        state.fresh.requests.append((job.id, ""))


def move_requested(state: State, event: e.MoveRequested) -> None:
    job = state.jobs.get(event.job)
    if job is not None and job.phase == "placed" and event.offer in state.offers:
        state.fresh.requests.append((job.id, event.offer))


def wait_promised(state: State, event: e.WaitPromised) -> None:
    job = state.jobs[event.job]
    job.until_at = event.until_at
    if event.until_at < NEVER:
        heappush(state.timers, (event.until_at, job.seq, job))
    scope = reason_scope(event.because)
    if job.short_of and job.short_of != scope:
        state.short[job.short_of].pop(job.id, None)
    job.short_of = scope
    if scope:
        state.short.setdefault(scope, {})[job.id] = job
    patience = getattr(event.because, "patience_ms", None)
    if patience is not None:
        job.patience_ms = patience
        worst = getattr(event.because, "worst_ms", 0)
        if worst:
            job.foretold = (event.at, event.because.about_ms, worst)  # type: ignore[union-attr]  # who has one has both


def start_promised(state: State, event: e.StartPromised) -> None:
    job, offer = state.jobs[event.job], state.offers[event.offer]
    attempt = Attempt(event, job, offer)
    slots = event.slots
    job.attempts += 1
    if job.queued:
        _dequeue(state, job)
        _job(job, "placed")
        job.attempt = attempt
    else:
        job.next = attempt
        job.moves += 1
        job.moved_at = event.at
    state.attempts[attempt.id] = attempt
    if job.foretold is not None:
        _prove(job, event.at, started=bool(slots))
    if slots:
        state.pools[offer.id].take(slots)
        on_node = state.on_node[offer.id]
        for node, _ in slots:
            on_node[node][attempt.id] = attempt
        for starts in state.starts.values():
            if starts.width <= event.width:
                starts.began(event.at, job.submitted_at)
        _use(state, job, event.width)
    elif job.spec.checkpoint_every_ms is not None and job.spec.interruptible:
        state.away.setdefault(job.spec.gpus, {})[attempt.id] = attempt
    if event.nodes or event.hold or event.after or event.copies:
        _note_needs(state, event, attempt)
    _begin_if_ready(state, attempt)


def _prove(job: Job, at: Instant, started: bool) -> None:
    """What it was told about its start is put to the test."""
    assert job.foretold is not None
    told_at, about, worst = job.foretold
    job.foretold = None
    if job.shape.lane is not None:
        job.shape.lane.starts.proved(at - told_at, about, worst, started)


def _use(state: State, job: Job, gpus: int) -> None:
    """Its team has so many standing GPUs more, or fewer; counted where turns go by it."""
    if gpus and state.policy.ordering == "fair":
        team = job.spec.team
        use = state.uses.get(team)
        if use is None:
            use = state.uses[team] = Use()
        use.change(gpus, state.at, state.policy.half_life_ms)


def _note_needs(state: State, event: e.StartPromised, attempt: Attempt) -> None:
    """Money is held, nodes are asked for, data is copied, and whoever is there must go first."""
    offer = attempt.offer
    hold = event.hold
    if hold is not None:
        attempt.lease = hold.id
        _open(state, hold).asked = False
        state.in_use[offer.id, 0] = state.in_use.get((offer.id, 0), 0) + attempt.width
    if offer.id in state.refusals:
        state.probing.setdefault(offer.id, attempt.id)
    if event.nodes:
        _ask_for_nodes(state, event.nodes, attempt)
    for other in event.after:
        if other in state.attempts:
            attempt.after[other] = None
            state.followers.setdefault(other, []).append(attempt)
    for data_set in event.copies:
        key = (data_set, offer.site)
        attempt.copies[data_set] = None
        if key not in state.copying:
            state.copying[key] = []
            state.fresh.actions.append(CopyData(data_set, offer.site))
        state.copying[key].append(attempt)


def _ask_for_nodes(state: State, nodes: tuple[NodeAsk, ...], attempt: Attempt) -> None:
    offer = attempt.offer
    for ask in nodes:
        node = state.nodes[ask.node] = Node(ask.node, offer, ask.gpus, attempt.id, state.at)
        attempt.missing[ask.node] = None
        state.in_use[offer.id, ask.gpus] = state.in_use.get((offer.id, ask.gpus), 0) + 1
        _open(state, ask.hold)
        state.fresh.actions.append(launch_action(state, node))
    attempt.nodes = tuple([ask.node for ask in nodes])


def _open(state: State, hold: Hold) -> Lease:
    lease = state.ledger.open(hold)
    heappush(state.renewals, (hold.renew_at, hold.id, lease))
    return lease


def _begin_if_ready(state: State, attempt: Attempt) -> None:
    if not attempt.ready:
        return
    _attempt(attempt, "starting")
    if attempt.lease:
        state.ledger.leases[attempt.lease].ask(state.at)
    for node_id in attempt.nodes:
        _node(state.nodes[node_id], "busy")
        state.nodes[node_id].idle_at = None
    state.fresh.actions.append(start_action(state, attempt))


# --- attempts --------------------------------------------------------------------------------------------------------


def attempt_started(state: State, event: e.AttemptStarted) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is None:
        return
    if attempt.phase == "starting":
        _attempt(attempt, "running")
    if attempt.started_at is None:
        attempt.started_at = event.at
        attempt.job.lost = ""  # not before: a next place may be refused, and then it is still lost
    if state.refusals:
        _found_room(state, attempt.offer)


def attempt_checkpointed(state: State, event: e.AttemptCheckpointed) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is not None:
        attempt.kept_ms = max(attempt.kept_ms, event.kept_ms)


def attempt_progressed(state: State, event: e.AttemptProgressed) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is None or attempt.started_at is None or not 0 < event.done_permille <= PERMILLE:
        return
    done = attempt.resume_ms + (event.at - attempt.started_at) * attempt.speed_permille // PERMILLE
    attempt.job.told_ms = done * PERMILLE // event.done_permille


def attempt_ended(state: State, event: e.AttemptEnded) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is None or attempt.phase == "promised":
        return
    job = attempt.job
    run_ms = attempt.resume_ms
    if attempt.started_at is not None:
        run_ms += (event.at - attempt.started_at) * attempt.speed_permille // PERMILLE
    _drop_next(state, job)
    _over(state, attempt, billed=True, leaves=True)
    if event.outcome == "done":
        state.history.learn(job.spec, run_ms)
        if state.policy.waiting.target_delay_ms:
            state.aim.jobs += PERMILLE
            state.aim.delay_ms += (
                event.at - job.submitted_at
            ) * PERMILLE - run_ms * PERMILLE**2 // attempt.speed_permille
    _end(state, job, event.outcome)


def attempt_stopped(state: State, event: e.AttemptStopped) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is None or attempt.phase == "promised":
        return
    then = attempt.then or "pause"  # nobody told it to: its own deadline passed
    _keep(attempt.job, attempt, event.at, event.kept_ms)
    if attempt.job.cancelled:
        _drop_next(state, attempt.job)
    _over(state, attempt, billed=True, leaves=then == "move")
    _go_on(state, attempt.job, "paused" if then == "pause" else "waiting")


def _drop_next(state: State, job: Job) -> None:
    """Its next place will not be needed. Before its attempt is over, or the next one would begin at that."""
    if job.next is not None:
        _over(state, job.next, billed=True, leaves=False)
        job.next = None


def _go_on(state: State, job: Job, otherwise: JobPhase) -> None:
    """Its attempt is over and the job is not: to its next place if one was promised, otherwise back to the queue."""
    if job.cancelled:
        _end(state, job, "cancelled")
    elif job.next is not None:
        job.attempt, job.next = job.next, None
        if job.phase == "leaving":
            _job(job, "placed")
        job.attempt.resume_ms = job.attempt.kept_ms = job.kept_ms
        _begin_if_ready(state, job.attempt)
    else:
        _job(job, otherwise)
        job.attempt = None
        _enqueue(state, job)


def attempt_lost(state: State, event: e.AttemptLost) -> None:
    _lost(state, event.attempt, event.at, event.kept_ms, billed=True)


def attempt_refused(state: State, event: e.AttemptRefused) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is not None:
        state.fresh.refused.append((attempt.offer, event.retry_ms))
        _lost(state, event.attempt, event.at, attempt.resume_ms, billed=False)


def _lost(state: State, attempt_id: str, at: Instant, kept_ms: Millis, billed: bool) -> None:
    attempt = state.attempts.get(attempt_id)
    if attempt is None:
        return
    job = attempt.job
    if attempt is job.next:  # it never began; its predecessor runs on, or is stopping and will wait
        _over(state, attempt, billed=True, leaves=False)
        job.next = None
        if job.attempt is not None:
            job.attempt.then = "wait"
        return
    _keep(job, attempt, at, kept_ms)
    if billed:  # a refusal loses nothing
        job.lost = attempt.id
    if job.cancelled:
        _drop_next(state, job)
    _over(state, attempt, billed=billed, leaves=False)
    _go_on(state, job, "waiting")


def _keep(job: Job, attempt: Attempt, at: Instant, kept_ms: Millis) -> None:
    done = attempt.resume_ms
    if attempt.started_at is not None:
        done += (at - attempt.started_at) * attempt.speed_permille // PERMILLE
    job.kept_ms = max(kept_ms, attempt.resume_ms)
    if kept_ms > attempt.resume_ms:
        job.keeper = attempt.id
    job.redone_ms = max(0, done - job.kept_ms)
    if job.next is not None:  # before anything can begin: what moves resumes where it stopped
        job.next.resume_ms = job.next.kept_ms = job.kept_ms


def stop_promised(state: State, event: e.StopPromised) -> None:
    attempt = state.attempts[event.attempt]
    job = attempt.job
    _job(job, "leaving")
    attempt.then = event.then
    if event.yields and attempt.slots:
        attempt.yielded = attempt.slots
        _leave(state, attempt)
        state.yielding[attempt.id] = attempt
    if attempt.phase == "promised":  # nothing runs yet: it is over at once
        _over(state, attempt, billed=True, leaves=False)
        _go_on(state, job, "paused" if event.then == "pause" else "waiting")
        return
    _attempt(attempt, "stopping")
    state.fresh.actions.append(StopAttempt(attempt.id, job.spec.grace_ms))


def _over(state: State, attempt: Attempt, billed: bool, leaves: bool) -> None:
    """The attempt is gone: its GPUs, its nodes and its money come free, and whoever waited for that may begin."""
    billed = billed and attempt.phase != "promised"  # the site was never asked for it
    _attempt(attempt, "over")
    del state.attempts[attempt.id]
    if attempt.yielded:
        del state.yielding[attempt.id]
    if attempt.slots:
        _leave(state, attempt)
        state.fresh.freed = True
    job, offer = attempt.job, attempt.offer
    if job.spec.gpus in state.away:
        state.away[job.spec.gpus].pop(attempt.id, None)
    if attempt.lease:
        state.in_use[offer.id, 0] -= attempt.width
        if billed:
            _saw(state, offer, state.at - attempt.promised_at, lost=job.lost == attempt.id)
        state.fresh.closing.append((state.ledger.leases[attempt.lease], billed, leaves))
    for node_id in attempt.nodes:
        node = state.nodes.get(node_id)
        if node is not None:
            if node.phase == "busy":
                _node(node, "idle")
            node.idle_at = state.at
            state.fresh.idle.append(node)
    for data_set in attempt.copies:
        waiting = state.copying.get((data_set, offer.site), [])
        if attempt in waiting:
            waiting.remove(attempt)
    if attempt.id in state.followers:
        for follower in state.followers.pop(attempt.id):
            follower.after.pop(attempt.id, None)
            _begin_if_ready(state, follower)
    if state.probing and state.probing.get(offer.id) == attempt.id:
        del state.probing[offer.id]


def _leave(state: State, attempt: Attempt) -> None:
    """Its standing GPUs are free, or promised to somebody else."""
    state.pools[attempt.offer.id].give(attempt.slots)
    _use(state, attempt.job, -sum([gpus for _, gpus in attempt.slots]))
    for node, _ in attempt.slots:
        del state.on_node[attempt.offer.id][node][attempt.id]
    attempt.slots = ()


def _end(state: State, job: Job, phase: JobPhase) -> None:
    _job(job, phase)
    job.attempt = None  # each knew the other: without this neither would ever be freed but by the collector
    del state.jobs[job.id]
    state.ended[phase] = state.ended.get(phase, 0) + 1
    if job.spec.cap is not None:
        books.forget_job(state, "job:" + job.id)


# --- nodes -----------------------------------------------------------------------------------------------------------


def node_ready(state: State, event: e.NodeReady) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        _standing_node(state, event.node, up=True)
        return
    if node.phase != "asked":
        return
    _node(node, "idle")
    node.idle_at = event.at
    if state.refusals:
        _found_room(state, node.offer)
    attempt = state.attempts.get(node.attempt)
    if attempt is None:
        state.fresh.idle.append(node)
        return
    attempt.missing.pop(node.id, None)
    _begin_if_ready(state, attempt)


def node_refused(state: State, event: e.NodeRefused) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        return
    state.fresh.refused.append((node.offer, event.retry_ms))
    _gone(state, node, billed=False)


def node_lost(state: State, event: e.NodeLost) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        _standing_node(state, event.node, up=False)
    else:
        _gone(state, node, billed=True, lost=True)


def node_gone(state: State, event: e.NodeGone) -> None:
    node = state.nodes.get(event.node)
    if node is not None:
        _gone(state, node, billed=True)


def _gone(state: State, node: Node, billed: bool, lost: bool = False) -> None:
    leaves = node.phase == "returning"
    _node(node, "gone")
    del state.nodes[node.id]
    state.in_use[node.offer.id, node.gpus] -= 1
    if billed:
        _saw(state, node.offer, state.at - node.asked_at, lost)
    state.fresh.closing.append((state.ledger.leases[node.id], billed, leaves))
    attempt = state.attempts.get(node.attempt)
    # What runs is told of by its own AttemptLost, with what it kept; what only waited for this node cannot begin.
    if attempt is not None and attempt.phase == "promised":
        _lost(state, attempt.id, state.at, attempt.resume_ms, billed)


def _saw(state: State, offer: Offer, ms: Millis, lost: bool) -> None:
    """Something rented there lived so long; only spot is lost often enough to learn from."""
    if offer.term == "spot":
        losses = state.losses.get(offer.id)
        if losses is None:
            losses = state.losses[offer.id] = Losses()
        losses.saw(ms, lost)


def _standing_node(state: State, node_id: str, up: bool) -> None:
    offer, _, number = node_id.rpartition("/")
    pool = state.pools.get(offer)
    if pool is None or not number.isdigit() or int(number) >= pool.size:
        return
    if up:
        pool.restore(int(number))
        state.fresh.freed = True
    else:
        pool.withdraw(int(number))
        _keep_no_longer(state, offer, int(number))


def _keep_no_longer(state: State, offer: str, node: int) -> None:
    """It can no longer give what it was kept for: whoever waits for it is answered anew."""
    kept = [(job, *job.reserved) for job in state.reserved.values() if job.reserved is not None]
    for job in [job for job, at, nodes in kept if at == offer and node in nodes]:
        _let_go(state, job)
        _ask_all(state, [job])


def release_promised(state: State, event: e.ReleasePromised) -> None:
    node = state.nodes[event.node]
    _node(node, "returning")
    # Never renewed again: if giving it back fails for good, its own deadline is what ends it.
    state.ledger.leases[node.id].renew_at = NEVER
    state.fresh.actions.append(ReleaseNode(node.id))


def offer_closed(state: State, event: e.OfferClosed) -> None:
    state.closed[event.offer] = event.until_at
    state.refusals[event.offer] = event.refusals
    _set_open(state)


def offer_opened(state: State, event: e.OfferOpened) -> None:
    state.closed.pop(event.offer, None)
    state.fresh.freed = True
    _set_open(state)


def _found_room(state: State, offer: Offer) -> None:
    state.closed.pop(offer.id, None)
    state.refusals.pop(offer.id, None)
    state.probing.pop(offer.id, None)
    _set_open(state)


# --- time, and what a person must look at -----------------------------------------------------------------------------


def clock_jumped(state: State, event: e.ClockJumped) -> None:
    way = "ahead" if event.by_ms > 0 else "back"
    books.alarm(state, "clock", f"The wall clock jumped {abs(event.by_ms) // 1000} s {way}.")


def event_quarantined(state: State, event: e.EventQuarantined) -> None:
    books.alarm(state, "quarantine", f"{event.what} {event.about} was set aside: {event.error}")


def woke(state: State, event: e.Woke) -> None:
    """Only `at` moves."""


# --- edges -----------------------------------------------------------------------------------------------------------


def _job(job: Job, to: JobPhase) -> None:
    if to not in JOB[job.phase]:
        raise Broken(f"job {job.id} cannot go from {job.phase} to {to}")
    job.phase = to


def _attempt(attempt: Attempt, to: AttemptPhase) -> None:
    if to not in ATTEMPT[attempt.phase]:
        raise Broken(f"attempt {attempt.id} cannot go from {attempt.phase} to {to}")
    attempt.phase = to


def _node(node: Node, to: NodePhase) -> None:
    if to not in NODE[node.phase]:
        raise Broken(f"node {node.id} cannot go from {node.phase} to {to}")
    node.phase = to


APPLY: Final[dict[type, Callable[[State, Any], None]]] = {
    e.AttemptCheckpointed: attempt_checkpointed,
    e.AttemptEnded: attempt_ended,
    e.AttemptLost: attempt_lost,
    e.AttemptProgressed: attempt_progressed,
    e.AttemptRefused: attempt_refused,
    e.AttemptStarted: attempt_started,
    e.AttemptStopped: attempt_stopped,
    e.CancelRequested: cancel_requested,
    e.CapSet: cap_set,
    e.ClockJumped: clock_jumped,
    e.DataSetRegistered: data_set_registered,
    e.DeadlineSet: books.deadline_set,
    e.EventQuarantined: event_quarantined,
    e.JobRefused: job_refused,
    e.JobSubmitted: job_submitted,
    e.LeaseCalledBack: books.lease_called_back,
    e.LeaseRenewed: books.lease_renewed,
    e.LeaseShortened: books.lease_shortened,
    e.Metered: books.metered,
    e.MoveRequested: move_requested,
    e.NodeGone: node_gone,
    e.NodeLost: node_lost,
    e.NodeReady: node_ready,
    e.NodeRefused: node_refused,
    e.NodesSeen: nodes_seen,
    e.OfferClosed: offer_closed,
    e.OfferOpened: offer_opened,
    e.OverrunFound: books.overrun_found,
    e.Paused: paused,
    e.PeriodOpened: period_opened,
    e.PolicySet: policy_set,
    e.ReleasePromised: release_promised,
    e.RenewalDenied: books.renewal_denied,
    e.ReplicaLanded: replica_landed,
    e.ReservePromised: reserve_promised,
    e.Resumed: resumed,
    e.Settled: books.settled,
    e.ShapeJudged: shape_judged,
    e.SiteBack: site_back,
    e.SiteJoined: site_joined,
    e.SiteLost: site_lost,
    e.StartPromised: start_promised,
    e.StopPromised: stop_promised,
    e.ValueSet: value_set,
    e.WaitPromised: wait_promised,
    e.Woke: woke,
}
