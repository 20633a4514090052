"""Whose turn it is. Lanes hold queued jobs in the policy's order; a pass looks at lane heads only."""

from collections.abc import Iterable

from penstock.core.model import Policy
from penstock.core.state import Lane, OrderKey


def turn(lanes: Iterable[Lane], policy: Policy) -> Lane | None:
    """The lane whose head may start now.

    With backfill: the first in order among those that fit. Without: the first in order, if it fits.
    """
    best: Lane | None = None
    best_key: OrderKey = 0
    backfill = policy.backfill
    for lane in lanes:
        heap = lane.heap
        if heap and (best is None or heap[0][0] < best_key) and (not backfill or lane.fits()):  # type: ignore[operator]  # one kind of key at a time
            best, best_key = lane, heap[0][0]
    return best if best is None or backfill or best.fits() else None
