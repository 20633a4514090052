"""What events do to attempts and to the jobs they are of, from a promised start to the very end. A part of `apply`.

Actions are noted here, where the promise becomes state, so that what is said and what is owed cannot differ.
"""

from typing import Final

from penstock.core.fold import clusters, governed, money, retries
from penstock.core.fold.learned import Losses
from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.queue import count_use, dequeue, enqueue, prove
from penstock.core.fold.state import Attempt, Job, Node, State, launch_action, note_reserved, start_action, without
from penstock.core.fold.transitions import (
    move_attempt,
    move_job,
    move_node,
    must_be_alone,
    must_be_moving,
    must_be_queued,
    story,
    touch_attempt,
    touch_job,
    touch_node,
    touch_offer,
)
from penstock.core.model import events as e
from penstock.core.model.actions import CopyData, StopAttempt
from penstock.core.model.lifecycle import Broken, JobPhase
from penstock.core.model.reasons import NotStarting, SuspendAsked
from penstock.core.model.types import NodeAsk, Offer
from penstock.core.units import PERMILLE, Millis

#: Shortages that do not pass by themselves.
WANTS_A_PERSON: Final = ("quota", "settings")


def set_open(state: State) -> None:
    """A standing offer is open while its site can be reached and it has not refused."""
    for offer_id, pool in state.pools.items():
        offer = state.offers.get(offer_id)
        pool.open = offer is not None and offer.site not in state.lost_sites and offer_id not in state.closed


def job_refused(state: State, event: e.JobRefused) -> None:
    job = state.jobs[event.job]
    must_be_queued(job, "a refusal")
    job.because = event.because
    dequeue(state, job)
    _end(state, job, "refused")


def job_failed(state: State, event: e.JobFailed) -> None:
    job = state.jobs[event.job]
    must_be_queued(job, "the end")
    job.because = event.because
    dequeue(state, job)
    _end(state, job, "failed")


def cancel_requested(state: State, event: e.CancelRequested) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.cancelled:
        return
    job.cancelled = True
    if job.queued:
        dequeue(state, job)
        _end(state, job, "cancelled")
    elif job.attempt is None:  # suspended
        _end(state, job, "cancelled")
    else:
        state.changes.note_rare().requests.append((job.id, ""))


def suspend_requested(state: State, event: e.SuspendRequested) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.cancelled or job.id in state.suspended:
        return
    touch_job(state, job)
    state.suspended[job.id] = None
    if job.queued:
        dequeue(state, job)
        job.because = SuspendAsked()
    else:
        state.changes.note_rare().suspends.append(job.id)


def resume_requested(state: State, event: e.ResumeRequested) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.id not in state.suspended:
        return
    touch_job(state, job)
    del state.suspended[job.id]
    if job.attempt is None:
        enqueue(state, job)


def move_requested(state: State, event: e.MoveRequested) -> None:
    job = state.jobs.get(event.job)
    if job is not None and job.phase == "placed" and event.offer in state.offers:
        state.changes.note_rare().requests.append((job.id, event.offer))


def start_promised(state: State, event: e.StartPromised) -> None:
    job, offer = state.jobs[event.job], state.offers[event.offer]
    attempt = Attempt(event, job, offer, state.promised)
    slots = event.slots
    state.promised += 1
    job.attempts += 1
    job.because = event.because
    if job.queued:
        dequeue(state, job)
        move_job(state, job, "placed")
        job.attempt, job.offer = attempt, offer.id
    else:
        must_be_moving(state, job, attempt.id, event.after)
        job.next = attempt
        job.moves += 1
        job.moved_at = event.at
    state.attempts[attempt.id] = attempt
    if state.touched is not None:
        state.touched.jobs.setdefault(job, job.phase)
        state.touched.attempts[attempt] = "promised"
    if job.foretold is not None:
        prove(job, event.at, started=bool(slots))
    if slots:
        state.pools[offer.id].take(slots)
        on_node = state.on_node[offer.id]
        for node, _ in slots:
            on_node[node][attempt.id] = attempt
        for starts in state.starts.values():
            if starts.width <= event.width:
                starts.began(event.at, job.submitted_at)
        if state.policy.ordering == "fair":
            count_use(state, job, event.width)
    elif job.spec.checkpoint_every_ms is not None and job.spec.interruptible:
        state.away.setdefault(job.spec.gpus, {})[attempt.id] = attempt
        if offer.term != "spot":
            state.on_demand[attempt.id] = attempt
    if state.team_rules:
        governed.placed(state, attempt, event.rented)
    if event.nodes or event.hold or event.joins or event.after or event.copies:
        _note_needs(state, event, attempt)
    begin_if_ready(state, attempt)


def _note_needs(state: State, event: e.StartPromised, attempt: Attempt) -> None:
    """Open holds, launch nodes, copy data, and note the attempts that must end first."""
    offer = attempt.offer
    hold = event.hold
    if hold is not None:
        attempt.lease = hold.id
        money.open_lease(state, hold, attempt, attempt.width).asked = False
        state.in_use[offer.id, 0] = state.in_use.get((offer.id, 0), 0) + attempt.width
    if event.joins:
        _join(state, state.nodes[event.joins], attempt)
    elif offer.id in state.refusals:
        state.probing.setdefault(offer.id, attempt.id)
    if event.nodes:
        _ask_for_nodes(state, event.nodes, attempt)
    if state.clusters.terms:
        clusters.joins(state, attempt)
    attempt.after = tuple([other for other in event.after if other in state.attempts])
    for other in attempt.after:
        state.followers.setdefault(other, []).append(attempt)
    attempt.copies = event.copies
    for data_set in event.copies:
        state.owe(CopyData(data_set, offer.site)).append(attempt)


def _ask_for_nodes(state: State, nodes: tuple[NodeAsk, ...], attempt: Attempt) -> None:
    offer, left = attempt.offer, attempt.width
    for ask in nodes:
        node = state.nodes[ask.node] = Node(
            ask.node, offer, ask.gpus, attempt=attempt.id, asked_at=state.at, payer=ask.hold.scopes
        )
        state.in_use[offer.id, ask.gpus] = state.in_use.get((offer.id, ask.gpus), 0) + 1
        money.open_lease(state, ask.hold, attempt, min(left, ask.gpus))
        state.changes.actions.append(launch_action(state, node))
        touch_node(state, node)
        node.on[attempt.id] = min(left, ask.gpus)
        node.open = ask.hold.scopes == attempt.job.shape.scopes  # no guest's on another's account, no job's own cap
        count_seats(state, node)
        left -= ask.gpus
    attempt.nodes = attempt.missing = tuple([ask.node for ask in nodes])


def _join(state: State, node: Node, attempt: Attempt) -> None:
    attempt.nodes = (node.id,)
    if state.idle:
        state.idle.pop(node.id, None)
    if state.bills[node.id].owner is None:  # a node that was warm is its own now, as if rented for it
        node.attempt, node.open = attempt.id, node.payer == attempt.job.shape.scopes
    money.join(state, node.id, attempt)
    touch_node(state, node)
    node.on[attempt.id] = attempt.width
    count_seats(state, node)
    if node.phase == "asked":
        attempt.missing = attempt.nodes
    if sum(node.on.values()) > node.gpus:
        raise Broken(f"attempt {attempt.id} joins node {node.id} of {node.gpus} GPUs, on which are {node.on}")


def count_seats(state: State, node: Node) -> None:
    """Call when an attempt joins or leaves, or the node closes to others: index it by its spare GPUs."""
    free = node.to_spare
    if node.free:
        known = state.seats[node.offer.id, node.payer, node.free]
        del known[node.id]
        if not known:
            del state.seats[node.offer.id, node.payer, node.free]
    node.free = free
    if free:
        state.seats.setdefault((node.offer.id, node.payer, free), {})[node.id] = node


def close_to_others(state: State, node: Node) -> None:
    node.open = False
    count_seats(state, node)


def begin_if_ready(state: State, attempt: Attempt) -> None:
    if not attempt.ready:
        return
    must_be_alone(attempt)
    move_attempt(state, attempt, "starting")
    if attempt.lease:
        state.ledger.leases[attempt.lease].ask(state.at)
    for name in attempt.nodes:
        node = state.nodes[name]
        if node.phase != "busy":
            move_node(state, node, "busy")
        node.idle_at = None
    if attempt.asked:
        note_reserved(state, attempt)
    state.changes.actions.append(start_action(state, attempt))


def attempt_started(state: State, event: e.AttemptStarted) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is None:
        return
    if attempt.phase == "starting":
        move_attempt(state, attempt, "running")
        _is_where_it_was_to_be(state, attempt)
    if attempt.started_at is None:
        job, attempt.started_at = attempt.job, event.at
        if state.touched is not None:
            state.touched.attempts.setdefault(attempt, attempt.phase)
            state.touched.jobs.setdefault(job, job.phase)
        if job.started_at is None:
            job.started_at = event.at
        if state.class_rules:
            governed.began(state, attempt)
        job.lost = ""  # not before: a next place may be refused, and then it is still lost
        if isinstance(job.because, NotStarting):
            job.because = attempt.because
    # A node said so when it was ready, and one that was joined says nothing.
    if (state.refusals or attempt.offer.term == "spot") and not attempt.nodes:
        saw_capacity(state, attempt.offer)


def attempt_placed(state: State, event: e.AttemptPlaced) -> None:
    """Its site put it on other nodes than it was promised: those GPUs are taken, and the promised ones free."""
    attempt = state.attempts.get(event.attempt)
    pool = None if attempt is None else state.pools.get(attempt.offer.id)
    if attempt is None or pool is None or not attempt.slots:
        return
    wanted = dict(event.nodes)
    slots = tuple([(node, wanted[name]) for node, name in enumerate(pool.names) if wanted.get(name, 0) > 0])
    known = len(slots) == len(wanted) and all(gpus <= pool.per_node for _, gpus in slots)
    if not known or sum([gpus for _, gpus in slots]) != attempt.width:
        return
    touch_attempt(state, attempt)
    attempt.seen, before = True, attempt.slots
    if sorted(slots) != sorted(before):
        _put_on(state, attempt, pool, slots)
        _change_places(state, attempt, pool, before)


def _change_places(state: State, attempt: Attempt, pool: Pool, left: Slots) -> None:
    """Who was promised the GPUs that it took cannot be there: until it is seen, count it where this one was to be."""
    for node in [node for node, _ in attempt.slots if pool.owed.get(node, 0) and not pool.others.get(node, 0)]:
        for other in list(state.on_node[attempt.offer.id][node].values()):
            waits = not other.seen and other.phase in ("promised", "starting") and len(other.slots) == 1
            free = [number for number, _ in left if pool.free[number] >= other.width]
            if waits and free and pool.owed.get(node, 0):
                _put_on(state, other, pool, ((free[0], other.width),))


def _is_where_it_was_to_be(state: State, attempt: Attempt) -> None:
    """It runs, and its site named no other nodes: whoever was counted on its GPUs was not there instead."""
    pool = state.pools.get(attempt.offer.id)
    if pool is not None and not attempt.seen and attempt.slots != attempt.asked:
        _put_on(state, attempt, pool, attempt.asked)


def _put_on(state: State, attempt: Attempt, pool: Pool, slots: Slots) -> None:
    touch_attempt(state, attempt)
    on_node = state.on_node[attempt.offer.id]
    for node, _ in attempt.slots:
        del on_node[node][attempt.id]
    pool.give(attempt.slots)
    for node, gpus in slots:
        pool.put(node, gpus)
        on_node[node][attempt.id] = attempt
    attempt.slots = slots
    state.changes.freed = True


def attempt_stuck(state: State, event: e.AttemptStuck) -> None:
    """Said for people: it is starting as before, and its money is held as before."""
    attempt = state.attempts.get(event.attempt)
    if attempt is not None and attempt.phase == "starting" and attempt is attempt.job.attempt:
        touch_job(state, attempt.job)
        attempt.job.because = NotStarting(attempt.offer.id, event.words)


def attempt_checkpointed(state: State, event: e.AttemptCheckpointed) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is not None:
        touch_attempt(state, attempt)
        attempt.kept_ms = max(attempt.kept_ms, event.kept_ms)
        known = attempt.job.setbacks is not None or attempt.job.in_vain is not None
        if known and attempt.kept_ms > attempt.resume_ms:
            retries.progressed(state, attempt)


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
    _over(state, attempt, event.outcome, billed=True, leaves=True)
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
    _keep(state, attempt, event.kept_ms)
    if not attempt.then:
        retries.failed(state, attempt, "stopped")
    if attempt.job.cancelled or attempt.job.id in state.suspended:
        _drop_next(state, attempt.job)
    elif attempt.then in ("wait", "pause") and attempt.kept_ms <= attempt.resume_ms:
        retries.kept_nothing(state, attempt)
    _over(state, attempt, "stopped", billed=True, leaves=then == "move")
    if then == "fail" and not attempt.job.cancelled:
        _end(state, attempt.job, "failed")
        return
    _go_on(state, attempt.job, "paused" if then == "pause" else "waiting")


def _drop_next(state: State, job: Job) -> None:
    """Drop its promised next attempt. Call it before its attempt is over, or the next one would start."""
    if job.next is not None:
        _over(state, job.next, "dropped", billed=True, leaves=False)
        job.next = None


def _go_on(state: State, job: Job, otherwise: JobPhase) -> None:
    """Its attempt is over and the job is not: start its promised next attempt, or queue it again."""
    if job.cancelled:
        _end(state, job, "cancelled")
    elif job.next is not None:
        touch_job(state, job)
        following = job.next
        touch_attempt(state, following)
        job.attempt, job.next, job.offer = following, None, following.offer.id
        if state.at_once:
            governed.took_over(state, following)
        if job.phase == "leaving":
            move_job(state, job, "placed")
        following.resume_ms = following.kept_ms = job.kept_ms
        begin_if_ready(state, following)
    else:
        move_job(state, job, otherwise)
        job.attempt = None
        if job.id not in state.suspended:
            enqueue(state, job)


def attempt_lost(state: State, event: e.AttemptLost) -> None:
    lose(state, event.attempt, event.kept_ms, billed=True)


def attempt_refused(state: State, event: e.AttemptRefused) -> None:
    attempt = state.attempts.get(event.attempt)
    if attempt is not None:
        if not event.obstacle:
            state.changes.note_rare().refused.append((attempt.offer, event.retry_ms))
        if event.shortage in WANTS_A_PERSON:
            money.alarm(state, event.shortage, f"{attempt.offer.id}: {event.words}")
        retries.failed(state, attempt, event.obstacle or "full", event.words, event.retry_ms, event.nodes)
        lose(state, event.attempt, attempt.resume_ms, billed=False)


def lose(state: State, attempt_id: str, kept_ms: Millis, billed: bool) -> None:
    """Whoever calls it for a refusal has noted the failed start already."""
    attempt = state.attempts.get(attempt_id)
    if attempt is None:
        return
    job, outcome = attempt.job, "lost" if billed else "refused"
    if billed:
        attempt.kept_ms = max(attempt.kept_ms, kept_ms)
        retries.failed(state, attempt, "lost")
    if attempt is job.next:  # it never began; its predecessor runs on, or is stopping and will wait
        _over(state, attempt, outcome, billed=True, leaves=False)
        job.next = None
        if job.attempt is not None:
            job.attempt.then = "wait"
        return
    _keep(state, attempt, kept_ms)
    for node in [state.nodes[name] for name in attempt.nodes if name in state.nodes and attempt.phase != "promised"]:
        close_to_others(state, node)  # what failed one may fail the next
    if billed:  # a refusal loses nothing
        job.lost = attempt.id
        job.losses += 1
    if job.cancelled or job.id in state.suspended:
        _drop_next(state, job)
    _over(state, attempt, outcome, billed=billed, leaves=False)
    if attempt.then == "fail" and not job.cancelled:
        _end(state, job, "failed")
        return
    _go_on(state, job, "waiting")


def _keep(state: State, attempt: Attempt, kept_ms: Millis) -> None:
    job, done = attempt.job, attempt.done_ms(state.at)
    touch_job(state, job)
    job.kept_ms = attempt.kept_ms = max(kept_ms, attempt.resume_ms)
    if kept_ms > attempt.resume_ms:
        job.keeper = attempt.id
    job.redone_ms = max(0, done - job.kept_ms)
    if job.next is not None:  # before anything can begin: what moves resumes where it stopped
        touch_attempt(state, job.next)
        job.next.resume_ms = job.next.kept_ms = job.kept_ms


def stop_promised(state: State, event: e.StopPromised) -> None:
    attempt = state.attempts[event.attempt]
    job = attempt.job
    if job.attempt is not attempt:
        raise Broken(f"a stop of attempt {attempt.id}, which is not its job's: {story(job)}")
    move_job(state, job, "leaving")
    attempt.then, job.because = event.then, event.because
    if event.yields and attempt.slots:
        attempt.yielded = attempt.slots
        _leave(state, attempt)
        state.yielding[attempt.id] = attempt
    if attempt.phase == "promised":  # nothing runs yet: it is over at once
        _over(state, attempt, "dropped", billed=True, leaves=False)
        _go_on(state, job, "paused" if event.then == "pause" else "waiting")
        return
    move_attempt(state, attempt, "stopping")
    if state.run_ends:
        governed.drop_stale_run_ends(state)
    state.changes.actions.append(StopAttempt(attempt.id, job.spec.grace_ms))


def _over(state: State, attempt: Attempt, outcome: str, billed: bool, leaves: bool) -> None:
    """The attempt is over: free its GPUs, nodes and money, and start attempts that waited for it."""
    billed = billed and attempt.phase != "promised"  # the site was never asked for it
    if state.team_rules:
        governed.left(state, attempt, never_ran=outcome == "refused" or attempt.phase == "promised")
    move_attempt(state, attempt, "over")
    if attempt.started_at is not None:
        attempt.job.ran_ms += state.at - attempt.started_at
        if state.run_ends:
            governed.drop_stale_run_ends(state)
    attempt.outcome, attempt.ended_at = outcome, state.at
    del state.attempts[attempt.id]
    if attempt.yielded:
        del state.yielding[attempt.id]
    if attempt.slots:
        _leave(state, attempt)
        state.changes.freed = True
    job, offer = attempt.job, attempt.offer
    if state.clusters.used_by:
        clusters.leaves(state, attempt)
    if job.spec.gpus in state.away:
        state.away[job.spec.gpus].pop(attempt.id, None)
        state.on_demand.pop(attempt.id, None)
    if attempt.lease:
        state.in_use[offer.id, 0] -= attempt.width
        if billed:
            saw(state, offer, state.at - attempt.promised_at, lost=job.lost == attempt.id)
        state.changes.closing.append((state.ledger.leases[attempt.lease], billed, leaves))
    for name in attempt.nodes:
        if name in state.nodes:
            _leave_node(state, state.nodes[name], attempt, leaves)
    for data_set in attempt.copies:
        waiting = state.owed.get(CopyData(data_set, offer.site), [])
        if attempt in waiting:
            waiting.remove(attempt)
    if attempt.id in state.followers:
        for follower in state.followers.pop(attempt.id):
            follower.after = without(follower.after, attempt.id)
            begin_if_ready(state, follower)
    if state.probing and state.probing.get(offer.id) == attempt.id:
        del state.probing[offer.id]


def _leave_node(state: State, node: Node, attempt: Attempt, leaves: bool) -> None:
    """Release the node when its last attempt has left."""
    money.leave(state, node.id, attempt)
    touch_node(state, node)
    del node.on[attempt.id]
    count_seats(state, node)
    node.leaves = node.leaves or (leaves and attempt.id == node.attempt)
    if node.phase == "busy" and all(state.attempts[other].phase == "promised" for other in node.on):
        move_node(state, node, "idle")
    if node.on:
        state.changes.review.append(node.id)
    else:
        node.idle_at = state.at
        state.changes.note_rare().idle.append(node)
        governed.rests(state, node)


def _leave(state: State, attempt: Attempt) -> None:
    """Free its standing GPUs, unless they are promised to somebody else."""
    slots, on_node = attempt.slots, state.on_node[attempt.offer.id]
    state.pools[attempt.offer.id].give(slots)
    for node, _ in slots:
        del on_node[node][attempt.id]
    attempt.slots = ()
    if state.policy.ordering == "fair":
        count_use(state, attempt.job, -attempt.width)


def _end(state: State, job: Job, phase: JobPhase) -> None:
    move_job(state, job, phase)
    job.ended_at = state.at
    if job.setbacks is not None:
        retries.drop_stale_retries(state)
    job.attempt = None  # each knew the other: without this neither would ever be freed but by the collector
    del state.jobs[job.id]
    state.demand.change(state.at, -job.spec.gpus)
    if state.suspended:
        state.suspended.pop(job.id, None)
    if state.approvals:
        state.approvals.pop(job.id, None)
    state.ended[phase] = state.ended.get(phase, 0) + 1
    if job.spec.cap is not None or job.spent or state.team_rules:
        money.forget_job(state, "job:" + job.id)


def saw(state: State, offer: Offer, ms: Millis, lost: bool) -> None:
    """A rented thing lived so long; only spot is preempted often enough to learn from."""
    if offer.term == "spot":
        losses = state.losses.get(offer.id)
        if losses is None:
            losses = state.losses[offer.id] = Losses()
        losses.saw(ms, lost)


def saw_capacity(state: State, offer: Offer) -> None:
    """Something was rented there: the offer is open, and jobs on dearer ones may move there."""
    if state.refusals:
        found_room(state, offer)
    if state.on_demand and offer.term == "spot":
        state.changes.note_rare().open_spot[offer.id] = None


def found_room(state: State, offer: Offer) -> None:
    state.closed.pop(offer.id, None)
    state.refusals.pop(offer.id, None)
    touch_offer(state, offer.id)
    state.probing.pop(offer.id, None)
    set_open(state)
