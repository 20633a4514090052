"""`apply`: what an event does to the state. Called once for every fact and every promise, live and in replay alike.

It reads nothing but the event and the state, decides nothing, and computes no money. Facts that come twice or too
late (an end after a loss, an answer to something that is gone) change nothing: drivers may repeat themselves.
`queue`, `attempts`, `sites` and `money` handle their kinds of events; the table is at the end.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.core.fold import clusters, governed, money, retries, warm
from penstock.core.fold.attempts import (
    attempt_checkpointed,
    attempt_ended,
    attempt_lost,
    attempt_placed,
    attempt_progressed,
    attempt_refused,
    attempt_started,
    attempt_stopped,
    attempt_stuck,
    begin_if_ready,
    cancel_requested,
    job_failed,
    job_refused,
    move_requested,
    resume_requested,
    start_promised,
    stop_promised,
    suspend_requested,
)
from penstock.core.fold.queue import (
    approval_answered,
    approval_asked,
    ask_all,
    count_use,
    job_submitted,
    judge_anew,
    keep_approvals,
    regroup,
    reserve_promised,
    shape_judged,
    wait_promised,
)
from penstock.core.fold.runtimes import ESTIMATORS
from penstock.core.fold.sites import (
    guarantee_changed,
    leave_requested,
    node_gone,
    node_lost,
    node_notice,
    node_ready,
    node_refused,
    nodes_seen,
    nodes_unsuited,
    offer_closed,
    offer_opened,
    release_promised,
    site_back,
    site_joined,
    site_lost,
    site_removed,
)
from penstock.core.fold.state import Aim, RareChanges, State, Touched, without
from penstock.core.model import events as e
from penstock.core.model.actions import CopyData
from penstock.core.units import Instant, Money


def apply(state: State, event: e.Event) -> None:
    state.at = event.at
    APPLY[type(event)](state, event)


def begin_step(state: State, at: Instant) -> None:
    """Forget what the last step changed. Replay does the same at each row, so both know the same."""
    changes = state.changes
    changes.freed = False
    if changes.actions:  # most steps changed only one or two of these
        changes.actions = []
    if changes.arrived:
        changes.arrived = []
    if changes.closing:
        changes.closing = []
    if changes.review:
        changes.review = []
    if changes.rare.noted:
        changes.rare = RareChanges()
    if state.touched is not None:
        state.touched = Touched()
    state.steps += 1
    if state.short and state.ledger.crossed(state.at, at):  # a new month has new room
        state.changes.note_rare().room.update(dict.fromkeys(state.short))
    if state.governed:
        governed.pass_time(state, at)
    state.at = at
    if state.retries and state.retries[0][0] <= at:
        retries.reopen(state, at)


def fold_step(state: State, at: Instant, inputs: Iterable[e.Event], outputs: Iterable[e.Event]) -> None:
    """A recorded step. Nothing is decided: what was promised is a fact."""
    begin_step(state, at)
    for event in inputs:
        apply(state, event)
    for event in outputs:
        apply(state, event)


# --- what people decide ----------------------------------------------------------------------------------------------


def policy_set(state: State, event: e.PolicySet) -> None:
    if event.policy.estimator != state.policy.estimator:  # another way to learn starts from nothing
        state.history = ESTIMATORS[event.policy.estimator]()
    if state.approvals:
        keep_approvals(state, state.policy.governance, event.policy.governance)
    fair_already = state.policy.ordering == "fair"
    other_shapes = event.policy.governance.shaped_by != state.policy.governance.shaped_by
    state.policy, state.revision = event.policy, event.revision
    if event.policy.ordering == "fair" and not fair_already:
        state.uses = {}
        for attempt in state.attempts.values():
            if attempt.slots:
                count_use(state, attempt.job, attempt.width)
    waiting = event.policy.waiting
    state.value_per_hour = waiting.value_per_hour
    state.aim = Aim(event.at)
    if waiting.target_delay_ms or waiting.target_spend:
        state.aim.next_at = event.at + waiting.look_every_ms
    governed.govern(state)
    if other_shapes:
        regroup(state)
    judge_anew(state)
    warm.judge_again(state)


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
    """Decide all queued jobs again: their patience may have run out meanwhile."""
    state.paused = False
    state.changes.freed = True
    ask_all(state, [job for job in state.jobs.values() if job.queued])


def period_opened(state: State, event: e.PeriodOpened) -> None:
    state.ledger.open_period(event.starts_at, event.ends_at, event.period)
    state.changes.note_rare().room.update(dict.fromkeys(state.short))
    warm.ask_again(state)
    clusters.ask_again(state)


def cap_set(state: State, event: e.CapSet) -> None:
    before, rate_before = state.ledger.caps.get(event.scope), state.ledger.rate_caps.get(event.scope)
    state.ledger.set_cap(event.scope, event.per_period, event.per_hour)
    state.raises.pop(event.scope, None)  # granted, or overtaken
    if event.from_file:
        state.ledger.file_caps[event.scope] = (event.per_period, event.per_hour)
    if _is_above(event.per_period, before) or _is_above(event.per_hour, rate_before):
        state.changes.note_rare().room[event.scope] = None
        warm.ask_again(state)
        clusters.ask_again(state)
    if event.per_period is not None and (before is None or event.per_period < before):
        state.changes.note_rare().stale = True


def _is_above(cap: Money | None, before: Money | None) -> bool:
    """None: no cap at all."""
    return before is not None and (cap is None or cap > before)


def cap_raise_asked(state: State, event: e.CapRaiseAsked) -> None:
    state.raises[event.scope] = event


def cap_raise_denied(state: State, event: e.CapRaiseDenied) -> None:
    state.raises.pop(event.scope, None)


# --- data ------------------------------------------------------------------------------------------------------------


def data_set_registered(state: State, event: e.DataSetRegistered) -> None:
    state.data[event.data_set.id] = event.data_set
    for shape in state.shape_list:
        if event.data_set.id in shape.spec.data and shape.judged:
            judge_anew(state)
            return


def replica_landed(state: State, event: e.ReplicaLanded) -> None:
    state.replicas[event.data_set, event.site] = event.expires_at
    waited = state.owed.pop(CopyData(event.data_set, event.site), [])
    if waited and event.data_set in state.data:
        state.line.saw(state.data[event.data_set].size_bytes, event.at - waited[0].promised_at)
    for attempt in waited:
        attempt.copies = without(attempt.copies, event.data_set)
        begin_if_ready(state, attempt)


# --- time, and what a person must look at -----------------------------------------------------------------------------


def clock_jumped(state: State, event: e.ClockJumped) -> None:
    way = "ahead" if event.by_ms > 0 else "back"
    money.alarm(state, "clock", f"The wall clock jumped {abs(event.by_ms) // 1000} s {way}.")


def event_quarantined(state: State, event: e.EventQuarantined) -> None:
    money.alarm(state, "quarantine", f"{event.what} {event.about} was set aside: {event.error}")


def attempt_queued(state: State, event: e.AttemptQueued) -> None:
    """Said for people: it is starting as before, and its money is held as before."""


def audited(state: State, event: e.Event) -> None:
    """Said for the audit: tokens, reads and commands decide nothing about jobs."""


def journal_restored(state: State, event: e.JournalRestored) -> None:
    """What the missing steps began may still run, by ids that nothing else may get."""
    state.skipped.append((state.numbered + 1, state.numbered + event.skipped))
    state.numbered += event.skipped
    state.warm.numbered += event.skipped
    state.clusters.numbered += event.skipped
    missing = "what may have followed it"
    if event.missing:
        missing = f"{event.missing:,} {'step' if event.missing == 1 else 'steps'} that followed it"
    what = f", with {event.says}" if event.says else ""
    money.alarm(state, "journal", f"A person let the journal go on from step {event.step} without {missing}{what}.")


def woke(state: State, event: e.Woke) -> None:
    """Only `at` moves."""


APPLY: Final[dict[type, Callable[[State, Any], None]]] = {
    e.ApprovalAnswered: approval_answered,
    e.ApprovalAsked: approval_asked,
    e.AttemptCheckpointed: attempt_checkpointed,
    e.AttemptEnded: attempt_ended,
    e.AttemptLost: attempt_lost,
    e.AttemptProgressed: attempt_progressed,
    e.AttemptQueued: attempt_queued,
    e.AttemptRefused: attempt_refused,
    e.AttemptStarted: attempt_started,
    e.AttemptStopped: attempt_stopped,
    e.AttemptStuck: attempt_stuck,
    e.CancelRequested: cancel_requested,
    e.SuspendRequested: suspend_requested,
    e.ResumeRequested: resume_requested,
    e.CapRaiseAsked: cap_raise_asked,
    e.CapRaiseDenied: cap_raise_denied,
    e.CapSet: cap_set,
    e.ClockJumped: clock_jumped,
    e.ClusterAsked: clusters.cluster_asked,
    e.ClusterDismissed: clusters.cluster_dismissed,
    e.ClusterPromised: clusters.cluster_promised,
    e.ClusterShort: clusters.cluster_short,
    e.DataSetRegistered: data_set_registered,
    e.DemandForecast: warm.demand_forecast,
    e.DeadlineSet: money.deadline_set,
    e.DetailsErased: audited,
    e.EventQuarantined: event_quarantined,
    e.ExecStarted: audited,
    e.GuaranteeChanged: guarantee_changed,
    e.HoursOpened: governed.hours_opened,
    e.JobFailed: job_failed,
    e.JobRefused: job_refused,
    e.JobSubmitted: job_submitted,
    e.JournalRestored: journal_restored,
    e.LeaseCalledBack: money.lease_called_back,
    e.LeaseRenewed: money.lease_renewed,
    e.LeaseShortened: money.lease_shortened,
    e.LeaveRequested: leave_requested,
    e.LogRead: audited,
    e.Metered: money.metered,
    e.MoveRequested: move_requested,
    e.NodeGone: node_gone,
    e.NodeLost: node_lost,
    e.NodeNotice: node_notice,
    e.NodeReady: node_ready,
    e.NodeRefused: node_refused,
    e.NodesSeen: nodes_seen,
    e.NodesUnsuited: nodes_unsuited,
    e.NodesChanged: retries.nodes_changed,
    e.AttemptPlaced: attempt_placed,
    e.OfferClosed: offer_closed,
    e.OfferOpened: offer_opened,
    e.OverrunFound: money.overrun_found,
    e.Paused: paused,
    e.PayerChanged: warm.payer_changed,
    e.PeriodOpened: period_opened,
    e.PolicySet: policy_set,
    e.ReleasePromised: release_promised,
    e.RenewalDenied: money.renewal_denied,
    e.ReplicaLanded: replica_landed,
    e.ReservePromised: reserve_promised,
    e.Resumed: resumed,
    e.RetryPromised: retries.retry_promised,
    e.Settled: money.settled,
    e.ShapeJudged: shape_judged,
    e.SiteBack: site_back,
    e.SiteJoined: site_joined,
    e.SiteLost: site_lost,
    e.SiteRemoved: site_removed,
    e.StartPromised: start_promised,
    e.StopPromised: stop_promised,
    e.TokenIssued: audited,
    e.TokenRevoked: audited,
    e.ValueSet: value_set,
    e.WaitPromised: wait_promised,
    e.WarmPromised: warm.warm_promised,
    e.WarmShort: warm.warm_short,
    e.Woke: woke,
}
