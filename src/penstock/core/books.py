"""What the money's events do to the state: recorded amounts go into the books, and nothing is computed.

Part of `fold`, which calls these; `leases` makes the promises that they apply.
"""

from heapq import heappop, heappush

from penstock.core import events as e
from penstock.core.actions import SetDeadline
from penstock.core.ledger import Lease
from penstock.core.state import State

#: So many alarms are kept in mind; the journal has them all.
ALARMS_KEPT = 20


def lease_renewed(state: State, event: e.LeaseRenewed) -> None:
    lease = state.ledger.leases[event.hold]
    state.ledger.renew(lease, event.at, event.charged, event.parts, event.deadline_at, event.renew_at)
    lease.unconfirmed = True
    renew_later(state, lease)
    state.fresh.review.append(event.hold)
    state.fresh.actions.append(SetDeadline(event.hold, event.deadline_at))


def renewal_denied(state: State, event: e.RenewalDenied) -> None:
    lease = state.ledger.leases[event.hold]
    lease.denied, lease.renew_at = True, event.renew_at
    renew_later(state, lease)


def renew_later(state: State, lease: Lease) -> None:
    heappush(state.renewals, (lease.renew_at, lease.hold.id, lease))
    drop_stale_renewals(state)


def drop_stale_renewals(state: State) -> None:
    """Whoever changes a lease's `renew_at` calls this: the first note to renew is always one that counts."""
    renewals = state.renewals
    while renewals and renewals[0][2].renew_at != renewals[0][0]:
        heappop(renewals)


def lease_called_back(state: State, event: e.LeaseCalledBack) -> None:
    lease = state.ledger.leases[event.hold]
    lease.unconfirmed, lease.wanted_at = True, event.deadline_at
    state.fresh.actions.append(SetDeadline(event.hold, event.deadline_at))


def deadline_set(state: State, event: e.DeadlineSet) -> None:
    lease = state.ledger.leases.get(event.thing)
    if lease is None or not lease.unconfirmed or event.deadline_at != lease.wanted_at:
        return
    lease.unconfirmed = False
    if event.deadline_at < lease.deadline_at:
        state.fresh.also().shortened.append((lease, event.deadline_at))


def lease_shortened(state: State, event: e.LeaseShortened) -> None:
    lease = state.ledger.leases[event.hold]
    state.ledger.shorten(lease, event.parts, event.deadline_at, event.renew_at)
    _more_room(state, lease)
    renew_later(state, lease)


def settled(state: State, event: e.Settled) -> None:
    lease = state.ledger.leases[event.hold]
    state.ledger.settle(lease, event.charged)
    if state.short:
        _more_room(state, lease)
    drop_stale_renewals(state)
    job_scope = lease.hold.scopes[-1]
    if job_scope.startswith("job:") and job_scope[4:] not in state.jobs:
        forget_job(state, job_scope)


def forget_job(state: State, job_scope: str) -> None:
    """Once the job has ended and nothing is held for it any more."""
    if not any(job_scope in lease.hold.scopes for lease in state.ledger.leases.values()):
        state.ledger.forget_job(job_scope)


def _more_room(state: State, lease: Lease) -> None:
    for scope in lease.hold.scopes:
        if scope in state.short:
            state.fresh.also().room[scope] = None


def metered(state: State, event: e.Metered) -> None:
    """A reading changes nothing by itself; `leases.compare` holds it against what was charged and is held."""
    lease = state.ledger.leases.get(event.thing)
    if lease is not None:
        state.fresh.also().readings.append((lease, event.amount))


def overrun_found(state: State, event: e.OverrunFound) -> None:
    state.ledger.overrun += event.amount
    alarm(state, "overrun", f"{event.hold} was metered {event.amount} micro-units above its hold; its scopes freeze.")
    for scope in state.ledger.leases[event.hold].hold.scopes:
        state.ledger.frozen[scope] = None


def alarm(state: State, kind: str, text: str) -> None:
    state.alarms = [*state.alarms, (state.at, kind, text)][-ALARMS_KEPT:]
