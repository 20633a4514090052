"""The money of what already runs: settled when it is gone, renewed while there is room, drained when there is not."""

from penstock.core.decide import limits
from penstock.core.decide.choices import Choices
from penstock.core.decide.placement import move, wait_for_money
from penstock.core.fold.clusters import attempts_on
from penstock.core.fold.ledger import STOPS_BEFORE_MS, Lease, renew_at, sum_of
from penstock.core.fold.state import Attempt, Node, State
from penstock.core.ids import is_cluster
from penstock.core.model.events import (
    LeaseCalledBack,
    LeaseRenewed,
    LeaseShortened,
    OverrunFound,
    RenewalDenied,
    Settled,
    StopPromised,
    WaitPromised,
)
from penstock.core.model.reasons import CapBinds, Denial, LeaseEnds, LeaseNotRenewed, NodeTakenSoon
from penstock.core.units import NEVER, SECOND, Instant, Millis, Money, ceil_div


def settle(choices: Choices) -> None:
    """What the provider says is gone is charged for the last time, and the rest of its hold returned."""
    now, ledger, changes = choices.now, choices.state.ledger, choices.state.changes
    closing, changes.closing = changes.closing, []
    for lease, billed, leaves in closing:
        charged = ledger.closing(lease, now, leaves) if billed else ()
        choices.record(Settled(now, lease.hold.id, charged, sum_of(lease.parts) - sum_of(charged)))


def shorten(choices: Choices, confirmed: list[tuple[Lease, Instant]]) -> None:
    """What was called back has confirmed that it ends sooner: less is held for it."""
    ledger = choices.state.ledger
    for lease, deadline in confirmed:
        if ledger.leases.get(lease.hold.id) is not lease:  # it ended in the instant that it confirmed
            continue
        parts = ledger.shortened(lease, deadline)
        again = _again(choices.state, lease, choices.now, deadline)
        choices.record(
            LeaseShortened(at=choices.now, hold=lease.hold.id, parts=parts, deadline_at=deadline, renew_at=again)
        )


def renew(choices: Choices) -> None:
    """Leases with a quarter of their time left: extend, or say why not and drain before the end."""
    state, now = choices.state, choices.now
    renewals = state.renewals
    while renewals and renewals[0][0] <= now:
        lease = renewals[0][2]
        if not lease.hold.terms.renewable:
            _end_for_good(choices, lease)
            continue
        if is_cluster(lease.hold.id):
            _renew_cluster(choices, lease)
            continue
        most_ms = _needed_ms(state, lease, now) if state.class_rules else NEVER
        if now + most_ms <= lease.deadline_at:
            _renew_no_more(choices, lease)
            continue
        renewal = state.ledger.renewal(lease, now, state.policy.least_lease_ms, most_ms)
        if isinstance(renewal, tuple):
            deadline, parts = renewal
            charged = state.ledger.charge(lease, now)
            again = _again(state, lease, now, deadline) if deadline < now + most_ms else NEVER
            choices.record(
                LeaseRenewed(
                    at=now, hold=lease.hold.id, charged=charged, parts=parts, deadline_at=deadline, renew_at=again
                )
            )
            if state.team_rules:
                _drain_sharers(choices, lease)
        else:
            _deny(choices, lease, renewal)


def _renew_cluster(choices: Choices, lease: Lease) -> None:
    """For as long as its site lets a cluster live. Whoever is still there then stops in time, and goes on elsewhere."""
    state, now, node = choices.state, choices.now, choices.state.nodes[lease.hold.id]
    terms = state.clusters.terms.get(node.offer.site)
    left_ms = 0 if terms is None else node.asked_at + terms.most_ms - now
    if now + left_ms <= lease.deadline_at:
        _end_for_good(choices, lease)
        return
    renewal = state.ledger.renewal(lease, now, min(state.policy.least_lease_ms, left_ms), left_ms)
    if not isinstance(renewal, tuple):
        _deny(choices, lease, renewal)
        return
    deadline, parts = renewal
    charged, again = state.ledger.charge(lease, now), _again(state, lease, now, deadline)
    choices.record(
        LeaseRenewed(at=now, hold=lease.hold.id, charged=charged, parts=parts, deadline_at=deadline, renew_at=again)
    )


def _drain_sharers(choices: Choices, lease: Lease) -> None:
    """Jobs that share a node since before their team had a limit for one job: who cannot pay its part leaves."""
    state, bill = choices.state, choices.state.bills[lease.hold.id]
    gpus = sum([share.gpus for share in bill.shares.values()])
    for share in list(bill.shares.values()):
        job = share.attempt.job
        scope = "job:" + job.id
        cap, account = state.ledger.caps.get(scope), state.ledger.accounts.get((scope, ""))
        if cap is None or account is None or scope in lease.hold.scopes or not share.gpus:
            continue
        needed = ceil_div(lease.held * share.gpus, gpus)
        if account.held + account.spent + needed > cap:
            denied = CapBinds(
                scope=scope, period="", cap=cap, spent=account.spent, held=account.held, needed=needed, kept_free=0
            )
            _drain(choices, share.attempt, denied)


def _needed_ms(state: State, lease: Lease, now: Instant) -> Millis:
    """How long those on it may still run by the limits of their classes; NEVER: as long as it takes."""
    attempts = _attempts_on(state, lease)
    if not attempts:
        return NEVER
    most_ms = 0
    for attempt in attempts:
        left_ms = limits.left_to_run(state, attempt.job)
        if left_ms is None:
            return NEVER
        most_ms = max(most_ms, left_ms - (0 if attempt.started_at is None else now - attempt.started_at))
    return most_ms


def _renew_no_more(choices: Choices, lease: Lease) -> None:
    """It lasts as long as anybody on it may run: charge it, and ask no more."""
    ledger, now, deadline = choices.state.ledger, choices.now, lease.deadline_at
    charged = ledger.charge(lease, now)
    parts = ledger.cover_from(lease, now)
    choices.record(
        LeaseRenewed(at=now, hold=lease.hold.id, charged=charged, parts=parts, deadline_at=deadline, renew_at=NEVER)
    )


def _end_for_good(choices: Choices, lease: Lease) -> None:
    """Its node's deadline cannot be moved: whoever is still there stops in time, and goes on elsewhere."""
    _renew_no_more(choices, lease)
    for attempt in _attempts_on(choices.state, lease):
        if attempt.job.phase == "placed":
            because = LeaseEnds(attempt.offer.id, lease.deadline_at)
            choices.record(StopPromised(choices.now, attempt.id, "wait", yields=False, because=because))
            if attempt.job.queued:  # its node never came, so it waits already; jobs were placed before this
                choices.record(WaitPromised(choices.now, attempt.job.id, choices.now + SECOND, because))


def warn(choices: Choices, noticed: list[tuple[Node | Attempt, str]]) -> None:
    """Nodes that will be taken away: what runs there writes a checkpoint and stops, and is placed anew."""
    state = choices.state
    for subject, words in noticed:
        for attempt in attempts_on(state, subject) if isinstance(subject, Node) else [subject]:
            if attempt.phase in ("starting", "running") and attempt.job.phase == "placed":
                because = NodeTakenSoon(attempt.offer.id, words)
                choices.record(StopPromised(choices.now, attempt.id, "wait", yields=False, because=because))


def _again(state: State, lease: Lease, now: Instant, deadline: Instant) -> Instant:
    """When to renew it next. What was told to end may need one more lease to write its checkpoint; if telling it never
    works, its own deadline ends it."""
    node, attempt = state.nodes.get(lease.hold.id), state.attempts.get(lease.hold.id)
    ends = (node is not None and node.phase == "returning") or (attempt is not None and attempt.phase == "stopping")
    return NEVER if ends else renew_at(now, deadline)


def _deny(choices: Choices, lease: Lease, because: Denial) -> None:
    """Try again with half of what is left; with less than two minutes left, checkpoint and stop: that is paid for."""
    left = lease.deadline_at - choices.now
    last = left < STOPS_BEFORE_MS
    again = NEVER if last else choices.now + left // 2
    choices.record(RenewalDenied(choices.now, lease.hold.id, again, because))
    for attempt in _attempts_on(choices.state, lease) if last else ():
        if attempt.phase in ("starting", "running", "promised"):
            _drain(choices, attempt, because)


def _drain(choices: Choices, attempt: Attempt, denied: Denial) -> None:
    """Home, if the policy says so and there is room; otherwise its checkpoint is written and the job paused."""
    state, job = choices.state, attempt.job
    if job.phase != "placed":
        return
    if state.policy.exhausted == "move_home":
        because = LeaseNotRenewed(from_offer=attempt.offer.id, kept_ms=attempt.kept_ms, denied=denied)
        for offer in job.shape.standing:
            if move(choices, job, state.offers[offer], because):
                return
    choices.record(StopPromised(choices.now, attempt.id, "pause", yields=False, because=denied))
    if job.queued:  # it had not begun, so it waits already, and nobody asks again why
        wait_for_money(choices, job, NEVER, denied)


def call_back(choices: Choices) -> None:
    """A cap was lowered below what is committed: long leases are asked to end sooner, and nothing is renewed."""
    state, now = choices.state, choices.now
    short = now + state.policy.least_lease_ms
    for (scope, period), account in list(state.ledger.accounts.items()):
        if account.cap is None or account.held + account.spent <= account.cap:
            continue
        for lease in list(state.ledger.leases.values()):
            touches = scope in lease.hold.scopes and (
                not period or any(part.period == period for part in lease.parts)  # a job's cap is for its life
            )
            if touches and lease.wanted_at > short:
                if lease.hold.terms.renewable:
                    choices.record(LeaseCalledBack(now, lease.hold.id, short))
                elif lease.renew_at < NEVER:  # its deadline cannot be moved, so it is given back instead
                    _end_for_good(choices, lease)


def compare(choices: Choices, readings: list[tuple[Lease, Money]]) -> None:
    """The provider's meter against ours. More than was charged and is held cannot be; if it is, its scopes freeze."""
    for lease, metered in readings:
        over = metered - lease.charged - lease.held
        if over > 0:
            choices.record(OverrunFound(choices.now, lease.hold.id, over))


def _attempts_on(state: State, lease: Lease) -> list[Attempt]:
    node = state.nodes.get(lease.hold.id)
    if node is not None:
        return attempts_on(state, node)
    return [state.attempts[lease.hold.id]] if lease.hold.id in state.attempts else []
