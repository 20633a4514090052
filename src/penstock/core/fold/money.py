"""Applies money's events to the state: recorded amounts go into the ledger, and nothing is computed.

Part of `apply`, which calls these; `leases` makes the promises that they apply.
"""

from heapq import heappop, heappush

from penstock.core.fold.ledger import Lease, Parts, sum_of
from penstock.core.fold.state import Attempt, Bill, BillShare, Job, State, Touched
from penstock.core.fold.transitions import touch_attempt, touch_job
from penstock.core.model import events as e
from penstock.core.model.actions import SetDeadline
from penstock.core.model.types import Hold
from penstock.core.units import Money

#: Alarms kept in the state; the journal has them all.
ALARMS_KEPT = 20


def open_lease(state: State, hold: Hold, owner: Attempt | None, gpus: int, offer: str = "") -> Lease:
    """Held for this attempt, which has so many GPUs of what is rented; or for nobody yet."""
    lease = state.ledger.open(hold)
    bill = state.bills[hold.id] = Bill(owner, gpus, hold.opened_at, offer)
    heappush(state.renewals, (hold.renew_at, hold.id, lease))
    _hold(state, lease, bill, sum_of(hold.parts))
    return lease


def bind_to_jobs(state: State) -> None:
    """Leases that were opened before their jobs had a cap count for it from now on. What several jobs share, or did,
    counts for none of them as a whole: each pays its part when it is charged.
    """
    ledger = state.ledger
    for lease in ledger.leases.values():
        bill = state.bills[lease.hold.id]
        if bill.owner is None:
            continue
        job = bill.owner.job
        scope = "job:" + job.id
        alone = all(share.attempt.job is job for share in bill.shares.values())
        alone = alone and lease.charged <= bill.owner.spent
        if alone and scope in ledger.caps and lease.hold.scopes == job.shape.scopes:
            ledger.bind(lease, scope)
            _hold(state, lease, bill, 0)


def join(state: State, hold: str, attempt: Attempt) -> None:
    """From now on it has a share in what this costs."""
    bill = state.bills[hold]
    bill.count(state.at)
    bill.shares[attempt.id] = BillShare(attempt, attempt.width)
    if bill.owner is None:  # a node that was warm: its payer has changed already
        bill.owner, lease = attempt, state.ledger.leases[hold]
        _hold(state, lease, bill, lease.held)


def leave(state: State, hold: str, attempt: Attempt) -> None:
    """It costs it no more; what it has used is charged with the next charge."""
    bill = state.bills[hold]
    bill.count(state.at)
    bill.shares[attempt.id].gpus = 0


def _hold(state: State, lease: Lease, bill: Bill, more: Money) -> None:
    """From now on so much more is held, or less."""
    owner = bill.owner
    if owner is not None:
        owner.held += more
        owner.job.held += more
    if state.touched is not None:
        state.touched.leases[lease], state.touched.bills[lease.hold.id] = None, bill
        _touch_spend(state.touched, lease, lease.parts)
        sharing = [share.attempt for share in bill.shares.values()]
        for attempt in sharing if owner is None else (owner, *sharing):
            touch_attempt(state, attempt)
            touch_job(state, attempt.job)


def _replace_hold(state: State, lease: Lease, bill: Bill, before: Parts) -> None:
    """The lease has other parts than before, perhaps in another period."""
    _hold(state, lease, bill, lease.held - sum_of(before))
    if state.touched is not None:
        _touch_spend(state.touched, lease, before)


def _charge(state: State, lease: Lease, bill: Bill, charged: Parts) -> None:
    """A recorded amount, split by the GPUs that each attempt had since the last one, and for how long."""
    owner, total = bill.owner, sum_of(charged)
    if state.touched is not None:
        state.touched.charges.append((bill.offer, _team_of(lease, owner), total))
        _touch_spend(state.touched, lease, charged)
    if owner is None:
        bill.counted_to = state.at
    elif len(bill.shares) == 1 and owner.id in bill.shares:  # nearly always: nobody shares it
        bill.shares[owner.id].gpu_ms, bill.counted_to = 0, state.at
        _pay(state, lease, owner, total)
    else:
        _split(state, lease, bill, owner, total)


def _team_of(lease: Lease, owner: Attempt | None) -> str:
    """Whose charge it is; of a warm node, the team whose budget pays, if it is a team's."""
    if owner is not None:
        return owner.job.spec.team
    return team_of(lease.hold.scopes)


def team_of(scopes: tuple[str, ...]) -> str:
    """Whose budget it is, if it is a team's."""
    return next((scope.removeprefix("team:") for scope in scopes if scope.startswith("team:")), "")


def _split(state: State, lease: Lease, bill: Bill, owner: Attempt, total: Money) -> None:
    bill.count(state.at)
    left, whole = total, sum([share.gpu_ms for share in bill.shares.values()])
    for share in list(bill.shares.values()):
        if share.gpu_ms:
            amount = total * share.gpu_ms // whole
            left -= amount
            _pay(state, lease, share.attempt, amount)
        share.gpu_ms = 0
        if not share.gpus:  # it has left, and paid
            del bill.shares[share.attempt.id]
    _pay(state, lease, owner, left)  # what rounding leaves


def _touch_spend(touched: Touched, lease: Lease, parts: Parts) -> None:
    for part in parts:
        touched.spend[lease.hold.scopes, part.period] = None


def _pay(state: State, lease: Lease, attempt: Attempt, amount: Money) -> None:
    attempt.spent += amount
    attempt.job.spent += amount
    if state.team_rules:
        _count_share(state, lease, attempt.job, amount)
    if state.touched is not None:
        touch_attempt(state, attempt)
        touch_job(state, attempt.job)


def _count_share(state: State, lease: Lease, job: Job, amount: Money) -> None:
    """Of a lease that counts for no job as a whole."""
    account = state.ledger.accounts.get(("job:" + job.id, ""))
    if account is not None and lease.hold.scopes == job.shape.scopes:
        account.spent += amount


def lease_renewed(state: State, event: e.LeaseRenewed) -> None:
    lease = state.ledger.leases[event.hold]
    bill, before = state.bills[event.hold], lease.parts
    state.ledger.renew(lease, event.at, event.charged, event.parts, event.deadline_at, event.renew_at)
    _charge(state, lease, bill, event.charged)
    _replace_hold(state, lease, bill, before)
    lease.unconfirmed = True
    renew_later(state, lease)
    state.changes.review.append(event.hold)
    state.changes.actions.append(SetDeadline(event.hold, event.deadline_at))


def change_payer(state: State, event: e.PayerChanged, offer: str) -> None:
    """Those before are charged, and their hold returned; the hold of those after is open. Nobody owns it yet: a job
    does when its attempt joins the node.
    """
    lease, bill = state.ledger.leases[event.node], state.bills[event.node]
    before = lease.parts
    _charge(state, lease, bill, event.charged)
    _hold(state, lease, bill, -sum_of(before))
    state.ledger.hand_over(lease, event.at, event.charged, event.hold)
    bill = state.bills[event.node] = Bill(None, 0, event.at, offer)
    _hold(state, lease, bill, 0)
    if event.hold.terms.renewable:
        lease.unconfirmed = True
        state.changes.actions.append(SetDeadline(event.node, event.hold.deadline_at))
    renew_later(state, lease)


def renewal_denied(state: State, event: e.RenewalDenied) -> None:
    lease = state.ledger.leases[event.hold]
    lease.denied, lease.renew_at = True, event.renew_at
    renew_later(state, lease)


def renew_later(state: State, lease: Lease) -> None:
    heappush(state.renewals, (lease.renew_at, lease.hold.id, lease))
    drop_stale_renewals(state)


def drop_stale_renewals(state: State) -> None:
    """Call after each change of a lease's `renew_at`: the heap's first entry must always be valid."""
    renewals = state.renewals
    while renewals and renewals[0][2].renew_at != renewals[0][0]:
        heappop(renewals)


def lease_called_back(state: State, event: e.LeaseCalledBack) -> None:
    lease = state.ledger.leases[event.hold]
    lease.unconfirmed, lease.wanted_at = True, event.deadline_at
    state.changes.actions.append(SetDeadline(event.hold, event.deadline_at))


def deadline_set(state: State, event: e.DeadlineSet) -> None:
    lease = state.ledger.leases.get(event.thing)
    if lease is None or not lease.unconfirmed or event.deadline_at != lease.wanted_at:
        return
    lease.unconfirmed = False
    if event.deadline_at < lease.deadline_at:
        state.changes.note_rare().shortened.append((lease, event.deadline_at))


def lease_shortened(state: State, event: e.LeaseShortened) -> None:
    lease = state.ledger.leases[event.hold]
    before = lease.parts
    state.ledger.shorten(lease, event.parts, event.deadline_at, event.renew_at)
    _replace_hold(state, lease, state.bills[event.hold], before)
    _more_room(state, lease)
    renew_later(state, lease)


def settled(state: State, event: e.Settled) -> None:
    lease = state.ledger.leases[event.hold]
    bill = state.bills.pop(event.hold)
    state.ledger.settle(lease, event.charged)
    _charge(state, lease, bill, event.charged)
    _hold(state, lease, bill, -sum_of(lease.parts))
    if state.short:
        _more_room(state, lease)
    drop_stale_renewals(state)
    job_scope = lease.hold.scopes[-1]
    if job_scope.startswith("job:") and job_scope[4:] not in state.jobs:
        forget_job(state, job_scope)


def forget_job(state: State, job_scope: str) -> None:
    """Once the job has ended and nothing is held for it any more."""
    ledger = state.ledger
    known = job_scope in ledger.caps or (job_scope, "") in ledger.accounts
    if known and not any(job_scope in lease.hold.scopes for lease in state.ledger.leases.values()):
        state.ledger.forget_job(job_scope)


def _more_room(state: State, lease: Lease) -> None:
    for scope in lease.hold.scopes:
        if scope in state.short:
            state.changes.note_rare().room[scope] = None


def metered(state: State, event: e.Metered) -> None:
    """A reading changes nothing by itself; `leases.compare` holds it against what was charged and is held."""
    lease = state.ledger.leases.get(event.thing)
    if lease is not None:
        state.changes.note_rare().readings.append((lease, event.amount))


def overrun_found(state: State, event: e.OverrunFound) -> None:
    state.ledger.overrun += event.amount
    alarm(state, "overrun", f"{event.hold} was metered {event.amount} micro-units above its hold; its scopes freeze.")
    for scope in state.ledger.leases[event.hold].hold.scopes:
        state.ledger.frozen[scope] = None


def alarm(state: State, kind: str, text: str) -> None:
    state.alarms = [*state.alarms, (state.at, kind, text)][-ALARMS_KEPT:]
