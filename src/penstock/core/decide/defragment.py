"""Defragmentation: moves a few small jobs together so that a wide job fits on free owned GPUs. `cycle` calls it.

The beneficiary is the job that would save most: a queued one, or one that pays rent. It is worth it if the saving
exceeds the moves' cost: for every moved job its restart and lost work, at half the cost of delay and at the price of
the GPUs that idle meanwhile.
"""

from collections.abc import Iterator

from penstock.core.decide import limits, moves, placement, quotes
from penstock.core.decide.choices import Choices
from penstock.core.fold.pool import Pool
from penstock.core.fold.state import Attempt, Job, State
from penstock.core.model.reasons import MovesTogether
from penstock.core.units import HOUR, Instant, Money
from penstock.core.values import value

#: How many beneficiaries are tried each time, the greatest saving first.
TRIED = 2


@value
class Beneficiary:
    """A job that would fit into the free GPUs if they were not fragmented."""

    gain: Money
    job: Job
    attempt: Attempt | None  # its rented attempt; None: it is queued


@value
class Relocation:
    """A move of one job between two standing nodes."""

    attempt: Attempt
    to_node: int


def defragment(choices: Choices) -> None:
    state = choices.state
    for offer_id, pool in state.pools.items():
        if pool.free_gpus < 2 or not pool.open:
            continue
        wishes = sorted(_wishes(state, offer_id, pool, choices.now), key=lambda wish: (-wish.gain, wish.job.seq))
        for wish in wishes[:TRIED]:
            if _grant(choices, offer_id, pool, wish):
                break


def _wishes(state: State, offer_id: str, pool: Pool, now: Instant) -> Iterator[Beneficiary]:
    for lane in state.lanes:
        job = lane.head()
        if job is None or (lane.limited and limits.hinder(state, job, now)):
            continue
        if job.shape.barred:  # not every node with room is one for it
            continue
        if _unfit(pool, lane.width) and offer_id in job.shape.standing and job.shape.rented:
            offers = quotes.for_job(state, job, state.expect(job), now)
            if offers:
                yield Beneficiary(offers[0].cost, job, None)
    for width, away in state.away.items():
        if away and _unfit(pool, width):
            attempt = next(iter(away.values()))
            shape = attempt.job.shape
            may_come = offer_id in shape.standing and not shape.barred
            pays = moves.pays_to_come(state, attempt, now) if may_come else None
            if pays is not None:
                yield Beneficiary(pays.saves - pays.move_worth, attempt.job, attempt)


def _unfit(pool: Pool, width: int) -> bool:
    return 1 < width <= pool.free_gpus and not pool.fits(width)


def _grant(choices: Choices, offer_id: str, pool: Pool, wish: Beneficiary) -> bool:
    state = choices.state
    width = wish.job.spec.gpus
    shifts = (
        _one_shift(choices, offer_id, pool, width)
        if width < pool.per_node
        else _whole_nodes(choices, offer_id, pool, width)
    )
    costs = sum(_cost(state, shift.attempt, choices.now) for shift in shifts)
    if not shifts or costs >= wish.gain:
        return False
    offer = state.offers[offer_id]
    because = MovesTogether(wish.job.id, width, wish.gain, costs)
    for shift in shifts:
        slots = ((shift.to_node, shift.attempt.width),)
        placement.move_standing(choices, shift.attempt.job, offer, slots, because)
    after = tuple(shift.attempt.id for shift in shifts)
    if not pool.fits(width):
        return False
    if wish.attempt is None:
        return placement.start_standing(choices, wish.job, after)
    home = moves.pays_to_come(state, wish.attempt, choices.now)
    return home is not None and placement.move(choices, wish.job, offer, home, after)


def _cost(state: State, attempt: Attempt, now: Instant) -> Money:
    """The cost of moving it: half of its own delay, and its GPUs' idle time at the rented price."""
    job = attempt.job
    value_per_hour = quotes.worth_of(state, job) // 2
    rented = job.shape.rented
    price = quotes.rate_of(job.shape, state, state.offers[rented[0]]).price_per_hour if rented else 0
    return (value_per_hour + price) * moves.move_ms(attempt, now) // HOUR


def _movable(state: State, attempt: Attempt, now: Instant) -> bool:
    job = attempt.job
    on_one_node = len(attempt.slots) == 1 and attempt.phase in ("starting", "running") and job.next is None
    # A policy that came later may forbid to start it there again, and not every node may suit it.
    allowed = attempt.offer.id in job.shape.standing and not job.shape.barred
    return on_one_node and allowed and placement.may_move(state, job, now)


def _one_shift(choices: Choices, offer_id: str, pool: Pool, width: int) -> list[Relocation]:
    """The cheapest single job whose move frees this width; nodes with most free GPUs first."""
    state, now = choices.state, choices.now
    for free in range(width - 1, 0, -1):
        exactly = pool.having[free] & ~pool.having[free + 1]
        best: tuple[Money, int, Relocation] | None = None
        for node in _nodes(exactly):
            for attempt in state.on_node[offer_id][node].values():
                gpus = attempt.width
                if not width - free <= gpus < width or not _movable(state, attempt, now):
                    continue
                hole = _tightest(pool.free, gpus, 1 << node, pool.usable)
                option = (_cost(state, attempt, now), attempt.job.seq, Relocation(attempt, hole)) if hole >= 0 else None
                if option is not None and (best is None or option[:2] < best[:2]):
                    best = option
        if best is not None:
            return [best[2]]
    return []


def _whole_nodes(choices: Choices, offer_id: str, pool: Pool, width: int) -> list[Relocation]:
    """Empty the nodes with most free GPUs, one by one, into the tightest gaps elsewhere, until the job fits."""
    state, now = choices.state, choices.now
    whole, rest = divmod(width, pool.per_node)
    free = pool.free.copy()
    emptied = pool.having[pool.per_node]
    wanted = whole + (1 if rest else 0)  # slightly more than needed where part of a node would do
    shifts: list[Relocation] = []
    for level in range(pool.per_node - 1, 0, -1):
        for node in _nodes(pool.having[level] & ~pool.having[level + 1]):
            if emptied.bit_count() >= wanted:
                return shifts
            if free[node] != level or node in pool.others:
                continue
            moved = _empty(state, offer_id, node, free, emptied | 1 << node, pool.usable, now)
            if moved is not None:
                shifts += moved
                free[node] = pool.per_node
                emptied |= 1 << node
    return shifts if emptied.bit_count() >= wanted else []


def _empty(
    state: State, offer_id: str, node: int, free: list[int], closed: int, up: int, now: Instant
) -> list[Relocation] | None:
    """Where all jobs of the node would go, largest first; `free` changes only if all of them fit."""
    attempts = sorted(state.on_node[offer_id][node].values(), key=lambda attempt: (-attempt.width, attempt.job.seq))
    shifts: list[Relocation] = []
    taken: list[tuple[int, int]] = []
    for attempt in attempts:
        hole = _tightest(free, attempt.width, closed, up) if _movable(state, attempt, now) else -1
        if hole < 0:
            for other, gpus in taken:
                free[other] += gpus
            return None
        free[hole] -= attempt.width
        taken.append((hole, attempt.width))
        shifts.append(Relocation(attempt, hole))
    return shifts


def _tightest(free: list[int], gpus: int, closed: int, up: int) -> int:
    """The node with the least left over; -1 if none fits. Nodes in `closed` are being emptied."""
    best, best_free = -1, 1 << 30
    for node, left in enumerate(free):
        if gpus <= left < best_free and up >> node & 1 and not closed >> node & 1:
            best, best_free = node, left
            if left == gpus:
                break
    return best


def _nodes(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
