"""Backfill: jobs start on nodes reserved for another job, which does not start later because of them. `cycle` calls it.

The reserved start is when the job fits on its nodes, by what is expected of those that were there before it reserved
them. A backfill must end before that by its declared run time, or by what 19 of 20 such jobs did not exceed. A job
whose run time is unknown may start if it can be sent back to the queue, and the policy moves jobs for a wider one. GPUs
of the nodes that the job does not need are for everybody.

Backfills do not count for the reserved start. So one never makes room for the next: when those that were there before
have ended, nobody else is let in, and the job starts once the backfills that are there have ended or were sent back.
"""

from typing import Final, Literal

from penstock.core.decide import lookahead, quotes, ranks, reservations
from penstock.core.decide.choices import Choices, promise_start
from penstock.core.decide.ordering import fair_key
from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.state import Attempt, Job, Lane, State
from penstock.core.model.events import StopPromised
from penstock.core.model.reasons import Backfills, GivesWay
from penstock.core.model.types import Offer
from penstock.core.units import NEVER, PERMILLE, Instant, Millis, ceil_div
from penstock.core.values import value

#: How many jobs of a lane are considered when GPUs come free, the first in order: a decision must stay cheap.
LOOKED_AT: Final = 16


@value
class Opening:
    """A reservation, and when it can be honoured."""

    job: Job
    offer: Offer
    pool: Pool
    nodes: tuple[int, ...]
    start_at: Instant  # not before that; now, if nothing is known of those that keep the job from its nodes
    blocked: bool  # by those that were there before; otherwise only backfills keep it from starting

    @property
    def free_gpus(self) -> int:
        return sum([self.pool.free[node] for node in self.nodes])


def backfill(choices: Choices, arrived: list[Job]) -> None:
    """Start queued jobs on reserved nodes where they are in nobody's way, in the queue's order."""
    state = choices.state
    for job in list(state.reserved.values()) if state.policy.backfill else ():
        assert job.reserved is not None
        offer_id, nodes = job.reserved
        pool = state.pools[offer_id]
        if not pool.open or not any(pool.free[node] for node in nodes):
            continue
        opening = Opening(
            job=job,
            offer=state.offers[offer_id],
            pool=pool,
            nodes=nodes,
            start_at=start_at(state, job),
            blocked=_is_blocked(state, job),
        )
        for candidate in _candidates(state, opening, None if state.changes.freed else arrived, choices.now):
            _start(choices, candidate, opening)


def _candidates(state: State, opening: Opening, arrived: list[Job] | None, now: Instant) -> list[Job]:
    """Queued jobs that may fit, in the queue's order. If no GPU was freed, only arrivals can have anything new."""
    most, offer = opening.free_gpus + opening.pool.free_gpus, opening.offer.id
    lanes = [
        lane for lane in state.lanes if lane.keys and lane.width <= most and offer in [name for name, _ in lane.pools]
    ]
    if arrived is None:
        entries = [(lane, job) for lane in lanes for job in lane.first(LOOKED_AT)]
    else:  # who arrived twice in this step is one candidate
        entries = [
            (lane, job) for job in dict.fromkeys(arrived) if (lane := job.shape.lane) is not None and lane in lanes
        ]
    waiting = [(lane, job) for lane, job in entries if job.queued and job.reserved is None]
    waiting.sort(key=lambda entry: _key(state, entry[0], entry[1], now))
    return [job for _, job in waiting]


def _key(state: State, lane: Lane, job: Job, now: Instant) -> tuple[int, ...]:
    key = fair_key(state, lane, job.key, now) if state.policy.ordering == "fair" else job.key
    return key if isinstance(key, tuple) else (key,)


def _start(choices: Choices, job: Job, opening: Opening) -> None:
    state, now, offer = choices.state, choices.now, opening.offer
    if state.governed and reservations.kept_from(choices, job, offer.id):
        return
    width, speed = job.spec.gpus, quotes.rate_of(job.shape, state, offer).speed_permille
    run_ms, learned = _run_ms(state, job)
    ends_by = 0 if run_ms is None else now + _before_ms(state, job, offer, now) + ceil_div(run_ms * PERMILLE, speed)
    way = _way(state, opening, job, ends_by)
    slots = _beside(state, opening, job) if way == "beside" else _on_any(state, opening, job)
    if slots:
        because = Backfills(
            waited_ms=now - job.submitted_at,
            free_gpus=opening.free_gpus,
            reserved_for=opening.job.id,
            start_at=opening.start_at,
            way=way,
            ends_by=ends_by,
            learned=learned and ends_by > 0,
        )
        until = {"ends": ends_by, "gives_way": now, "beside": NEVER}[way]
        choices.record(promise_start(choices, job, offer, because, width, speed, (), slots, ends_by=until))


def _way(state: State, opening: Opening, job: Job, ends_by: Instant) -> Literal["ends", "gives_way", "beside"]:
    """How it would be in nobody's way. Where its run time or the reserved start is unknown, it must be one that can be
    sent back.
    """
    known = ends_by > 0 and opening.start_at > state.at
    if known and ends_by <= opening.start_at:
        return "ends"
    return "gives_way" if not known and opening.blocked and _gives_way(state, job, opening.job) else "beside"


def _run_ms(state: State, job: Job) -> tuple[Millis | None, bool]:
    """How long it still runs, at its least width and speed 1, and whether that is learned; None: unknown."""
    expected_ms = job.spec.expected_run_ms if job.told_ms is None else job.told_ms
    if expected_ms is not None and expected_ms > job.kept_ms:
        return expected_ms - job.kept_ms, False
    return state.history.nearly_all(job.spec, job.kept_ms), True


def _before_ms(state: State, job: Job, offer: Offer, now: Instant) -> Millis:
    """What comes before its run: the site's start, its data's copy, its restart."""
    copy_ms = quotes.copying_ms(state, job, offer, now) if job.spec.data else 0
    return max(offer.start_ms, copy_ms) + (job.spec.restart_ms if job.attempts else 0)


def _gives_way(state: State, job: Job, reserved: Job) -> bool:
    """Whether it may be sent back to the queue for that one: it can resume, the policy moves jobs for a wider one, and
    it could not take the nodes back.
    """
    policy, spec = state.policy, job.spec
    survives = spec.interruptible and spec.checkpoint_every_ms is not None
    return (policy.defragment or policy.preempt) and survives and not ranks.outranks(state, job, reserved)


def _on_any(state: State, opening: Opening, job: Job) -> Slots:
    """Slots on any of the nodes, with what else is free."""
    width = job.spec.gpus
    if opening.free_gpus + opening.pool.free_gpus < width:  # since others started in this step
        return ()
    scratch = opening.pool.without(job.shape.barred.get(opening.offer.id, 0))
    for node in opening.nodes:
        scratch.let_go(node)
    return scratch.choose(width, lookahead.plain(state.policy)) if scratch.fits(width) else ()


def _beside(state: State, opening: Opening, job: Job) -> Slots:
    """Slots on one node that the reserved job does not need, however long they are taken."""
    pool, width, barred = opening.pool, job.spec.gpus, job.shape.barred.get(opening.offer.id, 0)
    rest = opening.job.spec.gpus % pool.per_node
    suit = [node for node in opening.nodes if not barred >> node & 1]
    for node in suit if rest else ():  # otherwise it needs its nodes whole
        elsewhere = [other for other in opening.nodes if other != node and _stays(state, opening, other, 0)]
        to_spare = pool.per_node - rest
        if not elsewhere and pool.free[node] >= width and _stays(state, opening, node, to_spare) + width <= to_spare:
            return ((node, width),)
    return ()


def _stays(state: State, opening: Opening, node: int, to_spare: int) -> int:
    """GPUs of the node that are in use at the reserved start, or may be: of backfills beside the job, and of those that
    were there before; of these, only those that are expected to stay, if some must end for the job to fit.
    """
    attempts, others = state.on_node[opening.offer.id][node].values(), opening.pool.others.get(node, 0)
    before = [(max(1, _left_ms(state, other)), _gpus_on(other, node)) for other in attempts if not other.ends_by]
    beside = sum([_gpus_on(other, node) for other in attempts if other.ends_by == NEVER])
    if others + sum([gpus for _, gpus in before]) > to_spare:
        before = [(left_ms, gpus) for left_ms, gpus in before if state.at + left_ms > opening.start_at]
    return others + beside + sum([gpus for _, gpus in before])


def _gpus_on(attempt: Attempt, node: int) -> int:
    return sum([gpus for number, gpus in attempt.slots if number == node])


# --- the reserved start ----------------------------------------------------------------------------------------------


def start_at(state: State, job: Job) -> Instant:
    """The soonest that the job fits on its reserved nodes, by what is expected of those there that are no backfills;
    NEVER: while others have GPUs there, it does not.
    """
    assert job.reserved is not None
    offer_id, nodes = job.reserved
    pool = state.pools[offer_id]
    rest = job.spec.gpus % pool.per_node
    whole = [_free_at(state, offer_id, pool, node, pool.per_node) for node in nodes]
    if not rest:
        return max(whole)
    parts = [_free_at(state, offer_id, pool, node, rest) for node in nodes]
    return min([max([part, *whole[:k], *whole[k + 1 :]]) for k, part in enumerate(parts)])


def _is_blocked(state: State, job: Job) -> bool:
    """Whether those there that are no backfills keep it from its nodes, however soon they may end."""
    assert job.reserved is not None
    offer_id, nodes = job.reserved
    pool = state.pools[offer_id]
    rest = job.spec.gpus % pool.per_node
    short = [free for node in nodes if (free := _free_on(pool, node, _before(state, offer_id, node))) < pool.per_node]
    return len(short) > 1 or (len(short) == 1 and not 0 < rest <= short[0])


def _before(state: State, offer_id: str, node: int) -> list[Attempt]:
    """Who is on the node and no backfill."""
    return [other for other in state.on_node[offer_id][node].values() if other.ends_by in (0, NEVER)]


def _free_on(pool: Pool, node: int, attempts: list[Attempt]) -> int:
    return pool.per_node - pool.others.get(node, 0) - sum([_gpus_on(attempt, node) for attempt in attempts])


def _free_at(state: State, offer_id: str, pool: Pool, node: int, wanted: int) -> Instant:
    attempts = _before(state, offer_id, node)
    free, at = _free_on(pool, node, attempts), state.at
    if free >= wanted:
        return at
    for left_ms, gpus in sorted((_left_ms(state, attempt), _gpus_on(attempt, node)) for attempt in attempts):
        free, at = free + gpus, state.at + left_ms
        if free >= wanted:
            break
    return at if free >= wanted else NEVER


def _left_ms(state: State, attempt: Attempt) -> Millis:
    """How long it is expected to stay; 0 if nothing is known: not declared or over, and too few such jobs ended."""
    job, done_ms = attempt.job, attempt.done_ms(state.at)
    expected_ms = job.spec.expected_run_ms if job.told_ms is None else job.told_ms
    if (expected_ms is None or expected_ms <= done_ms) and state.history.nearly_all(job.spec, done_ms) is None:
        return 0
    return lookahead.left_ms(state, attempt)


# --- backfills that are in the way -----------------------------------------------------------------------------------


def call_back(choices: Choices) -> None:
    """Reserved jobs that could start but for backfills: send those back that should have ended by now, if the policy
    lets jobs be moved for a wider one.
    """
    state = choices.state
    for job in list(state.reserved.values()):
        assert job.reserved is not None
        late = [attempt for attempt in _in_the_way(state, job) if attempt.ends_by <= choices.now]
        going = _fewest(state, job, late) if late else []
        if not going or (state.governed and reservations.kept_from(choices, job, job.reserved[0])):
            continue
        for attempt in going:
            known = attempt.ends_by if attempt.ends_by > attempt.promised_at else 0
            because = GivesWay(job.id, job.spec.gpus, known)
            choices.record(StopPromised(choices.now, attempt.id, "wait", yields=True, because=because))
        reservations.start_on_its_nodes(choices, job)


def _in_the_way(state: State, job: Job) -> list[Attempt]:
    """Backfills on its nodes that may be sent back."""
    assert job.reserved is not None
    offer_id, nodes = job.reserved
    attempts = {attempt.id: attempt for node in nodes for attempt in state.on_node[offer_id][node].values()}
    return [
        attempt
        for attempt in attempts.values()
        if 0 < attempt.ends_by < NEVER and attempt.job.phase == "placed" and _gives_way(state, attempt.job, job)
    ]


def _fewest(state: State, job: Job, late: list[Attempt]) -> list[Attempt]:
    """Of these, those that must go so that the job fits on its nodes, the latest started first; none if it does not."""
    assert job.reserved is not None
    offer_id, nodes = job.reserved
    pool, going = state.pools[offer_id], sorted(late, key=lambda attempt: -attempt.seq)
    scratch = pool.scratch()
    for attempt in going:
        scratch.give(attempt.slots)
    if not pool.open or not scratch.slots_on(nodes, job.spec.gpus):
        return []
    for attempt in reversed(going.copy()):
        scratch.take(attempt.slots)
        if scratch.slots_on(nodes, job.spec.gpus):
            going.remove(attempt)
        else:
            scratch.give(attempt.slots)
    return going


def next_at(state: State) -> Instant:
    """When a backfill will be late that keeps a reserved job from its nodes."""
    soonest = NEVER
    for job in state.reserved.values():
        ways = [attempt for attempt in _in_the_way(state, job) if attempt.ends_by > state.at]
        if ways and not _is_blocked(state, job):
            soonest = min([soonest, *[attempt.ends_by for attempt in ways]])
    return soonest
