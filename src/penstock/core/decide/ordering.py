"""Queue order: whose turn it is. Lanes hold queued jobs in the policy's order; a pass looks at lane heads only.

First come first served by job number, or by priority first. `fair`: by priority, then by the team's recent use of owned
GPUs, then by number; there each team has its own lanes.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

from penstock.core.decide import limits
from penstock.core.fold.fair_share import had
from penstock.core.fold.state import Job, Lane, OrderKey, State
from penstock.core.units import Instant

Key: TypeAlias = OrderKey | tuple[int, ...]


def turn(state: State, lanes: Iterable[Lane], now: Instant) -> Lane | None:
    """The lane whose head may start now.

    With backfill: the first in order among those that fit. Without: the first in order, if it fits.
    """
    best: Lane | None = None
    best_key: Key = 0
    backfill = state.policy.backfill
    fair = state.policy.ordering == "fair"
    for lane in lanes:
        keys = lane.keys
        if keys and not (lane.limited and limits.steps_aside(state, lane, now)):
            key = keys[0] if not fair else fair_key(state, lane, keys[0], now)
            if (best is None or key < best_key) and (not backfill or lane.fits()):  # type: ignore[operator]  # one kind of key at a time
                best, best_key = lane, key
    return best if best is None or backfill or best.fits() else None


def fits(state: State, lane: Lane, now: Instant) -> bool:
    """Whether the lane's head may start on standing GPUs now."""
    return limits.fits(state, lane, now) if lane.limited else lane.fits()


def fair_key(state: State, lane: Lane, key: OrderKey, now: Instant) -> Key:
    priority, number = key  # type: ignore[misc]  # the keys of `fair` are pairs
    return (priority, had(state.uses, lane.team, state.policy, now), number)


def ahead(state: State, job: Job, now: Instant) -> int:
    """How many jobs would go before it now, of those of its width that wait for the same standing GPUs."""
    lane = job.shape.lane
    assert lane is not None
    if state.policy.ordering != "fair":
        lanes = [other for other in state.lanes if other.starts is lane.starts] if lane.limited else [lane]
        return sum([_before(other, job.key) for other in lanes])
    priority, _ = job.key  # type: ignore[misc]  # the keys of `fair` are pairs
    mine, total = had(state.uses, lane.team, state.policy, now), 0
    for other in state.lanes:
        if other.starts is lane.starts:  # another team's, for the same
            theirs = had(state.uses, other.team, state.policy, now)
            total += _before(other, job.key if theirs == mine else (priority + (theirs < mine),))
    return total


def _before(lane: Lane, key: OrderKey) -> int:
    return bisect_left(lane.keys, key)
