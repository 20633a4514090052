"""Lookahead from declared run times: which node to pack a job on, and when a queued job can start. `placement` and
`waiting` call it.

It is for clusters whose jobs declare accurate run times (`packing="ends_alike"`, `estimator="declared"`). Without
declarations it uses estimates from history, and helps less.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Literal, TypeAlias

from penstock.core.decide import quotes
from penstock.core.decide.ordering import Key, fair_key
from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.state import Attempt, Job, Lane, State
from penstock.core.model.types import Policy
from penstock.core.units import PERMILLE, Instant, Millis, ceil_div

#: With more queued jobs than this, starts are not simulated: a decision must stay cheap.
LOOKED_AT: Final = 500

End: TypeAlias = tuple[Instant, int, str, Slots]  # when, of which job, where
Line: TypeAlias = tuple[Lane, list[tuple[Key, Job]]]  # those of a lane who wait, the first last


# --- on which node ---------------------------------------------------------------------------------------------------


def alike(state: State, offer: str, pool: Pool, width: int, run_ms: Millis) -> tuple[Slots, Millis]:
    """Slots on the node that is in use for least longer then, of those where the last ends soonest; and how long that
    one is in use anyway.

    So nodes come free as a whole. One that is empty stays so while another has room.
    """
    slots = pool.choose(width, "best_fit")
    rest = slots[-1][1]
    partly = pool.having[rest] & ~pool.having[pool.per_node]
    if rest == pool.per_node or not partly:
        return slots, 0
    busy = [(_last_end(state, offer, node), node) for node in range(pool.size) if partly >> node & 1]
    _, busy_ms, node = min((max(0, run_ms - ms), ms, node) for ms, node in busy)
    return (*slots[:-1], (node, rest)), busy_ms


def plain(policy: Policy) -> Literal["first_fit", "best_fit"]:
    """For moves, and where room was made: the nodes are as good as chosen."""
    return "best_fit" if policy.packing == "ends_alike" else policy.packing


def _last_end(state: State, offer: str, node: int) -> Millis:
    return max([left_ms(state, attempt) for attempt in state.on_node[offer][node].values()], default=0)


def left_ms(state: State, attempt: Attempt) -> Millis:
    """How long it is expected to stay where it is."""
    left = state.remaining(attempt.job, attempt.done_ms(state.at))
    return left if attempt.speed_permille == PERMILLE else ceil_div(left * PERMILLE, attempt.speed_permille)


# --- when it can start -----------------------------------------------------------------------------------------------


def soonest(state: State, job: Job, within_ms: Millis) -> Millis | None:
    """In how long the job starts, if all run as long as they say and nobody comes in between; None: no telling.

    A small simulation: running jobs end, and queued ones start in their turn. It looks no further than `within_ms`,
    and answers with the first end after that.
    """
    if state.waiting > LOOKED_AT:
        return None
    now = state.at
    ends = _ends(state)
    if ends and ends[0][0] > now + within_ms:
        return ends[0][0] - now
    pools = {offer: pool.scratch() for offer, pool in state.pools.items()}
    lines = _queue(state)
    while ends:
        at = ends[0][0]
        if at > now + within_ms:
            return at - now
        while ends and ends[0][0] == at:
            _, _, offer, slots = heappop(ends)
            pools[offer].give(slots)
        if _its_turn(state, job, at, pools, lines, ends):
            return at - now
    return None


def _ends(state: State) -> list[End]:
    """Of all that have standing GPUs, as a heap."""
    ends = [
        (state.at + left_ms(state, attempt), attempt.job.seq, offer, attempt.slots)
        for offer, nodes in state.on_node.items()
        for node, attempts in enumerate(nodes)
        for attempt in attempts.values()
        if attempt.slots and attempt.slots[0][0] == node  # one on several nodes counts once
    ]
    heapify(ends)
    return ends


def _queue(state: State) -> list[Line]:
    """All who wait, lane by lane; those after the job count, too, if they fit where it does not."""
    lines = []
    for lane in state.lanes:
        keys = [(_key(state, lane, job), job) for job in lane.jobs.values()]
        if keys:
            lines.append((lane, sorted(keys, key=lambda key: key[0], reverse=True)))
    return lines


def _key(state: State, lane: Lane, job: Job) -> Key:
    return fair_key(state, lane, job.key, state.at) if state.policy.ordering == "fair" else job.key


def _its_turn(state: State, job: Job, at: Instant, pools: dict[str, Pool], lines: list[Line], ends: list[End]) -> bool:
    """Those who fit then start in their order, until it is the job itself or nobody fits."""
    while True:
        first: Line | None = None
        for line in lines:
            lane, queue = line
            while queue and queue[-1][1].until_at < at and queue[-1][1] is not job:
                queue.pop()  # it will have left by then
            earlier = queue and (first is None or queue[-1][0] < first[1][-1][0])  # type: ignore[operator]
            if earlier and _where(lane, pools):
                first = line
        if first is None:
            return False
        lane, queue = first
        _, other = queue.pop()
        if other is job:
            return True
        offer = _where(lane, pools)
        slots = pools[offer].choose(lane.width, "best_fit")
        pools[offer].take(slots)
        heappush(ends, (at + _runs(state, other, offer), other.seq, offer, slots))


def _where(lane: Lane, pools: dict[str, Pool]) -> str:
    """The first standing offer that has room for one of the lane; empty if none has."""
    for offer, _ in lane.pools:
        if pools[offer].fits(lane.width):
            return offer
    return ""


def _runs(state: State, job: Job, offer: str) -> Millis:
    speed = quotes.rate_of(job.shape, state, state.offers[offer]).speed_permille
    return ceil_div(max(0, state.expect(job) - job.kept_ms) * PERMILLE, speed)
