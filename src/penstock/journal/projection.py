"""Projection: table rows for the jobs, attempts, nodes and money that a step changed in the state.

    state.watch()                               # once: from then on the fold notes each change
    step = engine.handle(*facts)                # or `fold_step`, for a step that was recorded
    changes = project(state, step)              # before the next step

There is no second state machine: `core.fold.apply` folds, and a row repeats what the state says. Only
caps, periods, tokens, the audit trail and the job that an event concerns are read from the events. After any history
the tables equal those of a rebuild from its steps (`tests/journal/test_projection.py`). `sequencer` and `writer` call
it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from penstock.core.fold import state as s
from penstock.core.fold.ledger import Lease
from penstock.core.ids import members
from penstock.core.model import events as e
from penstock.core.units import DAY, NEVER
from penstock.journal.audit import TOLD, audit_row
from penstock.journal.rows import AttemptRow, ClosedRow, JobRow, UsedRow
from penstock.journal.schema import AccountRow, Changes, CountRow, HappenedRow, HoldRow, NodeRow, PeriodRow, ScopeCapRow
from penstock.journal.tokens import revocation_row, token_row


def project(state: s.State, step: Any, changes: Changes | None = None) -> Changes:
    """What the state's latest step changes, live or replayed; added to the changes of earlier steps."""
    changes = Changes() if changes is None else changes
    touched = state.touched
    assert touched is not None, "this state was not told to note what changes"
    for job, before in touched.jobs.items():
        _put_job(changes, state, job, before)
    for attempt, phase in touched.attempts.items():
        changes.put(attempt_row(state, attempt))
        if attempt.phase == "over" != phase:
            _add_gpu_time(changes, attempt)
    for node in touched.nodes:
        if node.phase == "gone":
            changes.drop(NodeRow, _text(node.id))
        else:
            changes.put(node_row(node))
    for offer in touched.offers:
        _put_closed(changes, state, offer)
    _put_money(changes, state, touched)
    _put_happened(changes, state, step, touched)
    return changes


# --- jobs and attempts -----------------------------------------------------------------------------------------------


def _put_job(changes: Changes, state: s.State, job: s.Job, before: str) -> None:
    team, gpus = _text(job.spec.team), job.spec.gpus
    if job.phase != before:
        if before:
            changes.add(CountRow(before, team, -1, -gpus))
        changes.add(CountRow(job.phase, team, 1, gpus))
    if state.jobs.get(job.id, job) is job:  # otherwise it ended and its id was reused: the row is the new job's
        changes.put(job_row(job))


def job_row(job: s.Job) -> JobRow:
    spec = job.spec
    return JobRow(
        id=_text(job.id),
        number=job.seq,
        team=_text(spec.team),
        name=_text(spec.name),
        user=_text(spec.user),
        project=_text(spec.project),
        job_class=spec.job_class,
        priority=spec.priority,
        gpus=spec.gpus,
        work=spec.work,
        phase=job.phase,
        attempt=job.attempt.id if job.attempt else "",
        offer=job.offer,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        kept_ms=job.kept_ms,
        attempts=job.attempts,
        moves=job.moves,
        losses=job.losses,
        spent=job.spent,
        held=job.held,
        until_at=None if job.until_at >= NEVER else job.until_at,
        short_of=job.short_of,
        because=as_json(job.because) if job.because else "",
        origin_site=_text(spec.origin.site) if spec.origin else "",
        origin_uid=_text(spec.origin.uid) if spec.origin else "",
    )


def attempt_row(state: s.State, attempt: s.Attempt) -> AttemptRow:
    leases = state.ledger.leases
    paid = [leases[name] for name in (attempt.lease, *attempt.nodes) if name in leases]
    return AttemptRow(
        id=_text(attempt.id),
        number=attempt.seq,
        job=_text(attempt.job.id),
        team=_text(attempt.job.spec.team),
        offer=attempt.offer.id,
        site=attempt.offer.site,
        width=attempt.width,
        phase=attempt.phase,
        promised_at=attempt.promised_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        resume_ms=attempt.resume_ms,
        kept_ms=attempt.kept_ms,
        spent=attempt.spent,
        held=attempt.held,
        deadline_at=min((lease.deadline_at for lease in paid), default=None) if attempt.phase != "over" else None,
        because=as_json(attempt.because),
    )


def _add_gpu_time(changes: Changes, attempt: s.Attempt) -> None:
    """An attempt is over: book its GPU time, split by day."""
    start, end = attempt.started_at, attempt.ended_at
    while start is not None and end is not None and start < end:
        until = min(end, (start // DAY + 1) * DAY)
        used = UsedRow(start // DAY, attempt.offer.id, _text(attempt.job.spec.team), (until - start) * attempt.width, 0)
        changes.add(used)
        start = until


# --- nodes, offers and money -----------------------------------------------------------------------------------------


def node_row(node: s.Node) -> NodeRow:
    return NodeRow(
        id=_text(node.id),
        attempt=_text(node.attempt),
        offer=node.offer.id,
        gpus=node.gpus,
        phase=node.phase,
        asked_at=node.asked_at,
        on=_text(as_json(list(node.on))),
    )


def _put_closed(changes: Changes, state: s.State, offer: str) -> None:
    until_at = state.closed.get(offer)
    if until_at is None:
        changes.drop(ClosedRow, offer)
    else:
        changes.put(ClosedRow(offer, until_at, state.refusals[offer]))


def _put_money(changes: Changes, state: s.State, touched: s.Touched) -> None:
    ledger = state.ledger
    for lease in touched.leases:
        name = lease.hold.id
        if name in ledger.leases:
            changes.put(hold_row(lease, touched.bills[name]))
        else:
            changes.drop(HoldRow, _text(name))
    for scopes, period in touched.spend:
        for scope in scopes:
            if not scope.startswith("job:"):  # a job's own spend is in its row
                account = ledger.accounts[scope, period]
                changes.put(AccountRow(_text(scope), period, account.held, account.spent))
    for offer, team, amount in touched.charges:
        if amount:
            changes.add(UsedRow(state.at // DAY, offer, _text(team), 0, amount))


def hold_row(lease: Lease, bill: s.Bill) -> HoldRow:
    hold = lease.hold
    return HoldRow(
        id=_text(hold.id),
        attempt=_text(bill.owner.id if bill.owner is not None else ""),
        scopes=_text(as_json(hold.scopes)),
        parts=as_json([(part.period, part.amount) for part in lease.parts]),
        deadline_at=lease.deadline_at,
        beyond_ms=hold.terms.grace_ms + hold.terms.kill_ms,
    )


# --- what happened ---------------------------------------------------------------------------------------------------

#: Frequent events, obsolete with the next one; and those that the audit trail alone tells.
UNTOLD: Final = (
    e.Woke,
    e.Metered,
    e.DeadlineSet,
    e.ShapeJudged,
    e.TokenIssued,
    e.TokenRevoked,
    e.LogRead,
    e.ExecStarted,
    e.LeaveRequested,
    e.JournalRestored,
    e.DetailsErased,
)


def _put_happened(changes: Changes, state: s.State, step: Any, touched: s.Touched) -> None:
    new = {job.id for job, before in touched.jobs.items() if not before}
    known = {attempt.id: attempt for attempt in touched.attempts}
    for part, event in enumerate((*step.inputs, *step.outputs)):
        match event:
            case e.CapSet(scope=scope):
                _put_cap(changes, state, scope)
            case e.PeriodOpened():
                changes.put(PeriodRow(event.period, event.starts_at, event.ends_at))
            case e.TokenIssued():
                changes.put(token_row(step.number, part, event))
            case e.TokenRevoked():
                changes.put(revocation_row(step.number, part, event))
        if type(event) in TOLD:
            _put_audit(changes, step.number, part, event, state.policy.currency)
        for job in _concerned(state, event, new, known, touched.bills):
            changes.put(HappenedRow(step.number, part, _text(job), type(event).__name__))


def _put_audit(changes: Changes, number: int, part: int, event: Any, currency: str) -> None:
    row = audit_row(number, part, event, currency)
    if row is not None:
        reason, asked_by = _text(row.reason), _text(row.asked_by)
        changes.put(replace(row, who=_text(row.who), about=_text(row.about), reason=reason, asked_by=asked_by))


def _put_cap(changes: Changes, state: s.State, scope: str) -> None:
    per_period, per_hour = state.ledger.caps.get(scope), state.ledger.rate_caps.get(scope)
    if per_period is None and per_hour is None:
        changes.drop(ScopeCapRow, scope)
    else:
        changes.put(ScopeCapRow(scope, per_period, per_hour))


def _concerned(
    state: s.State, event: Any, new: set[str], known: dict[str, s.Attempt], bills: dict[str, s.Bill]
) -> Iterable[str]:
    """The jobs that this event concerns; `""`: all jobs; none: not worth a row."""
    kind = type(event)
    if kind in UNTOLD:
        return ()
    if kind is e.JobSubmitted:  # a repeated submission adds no job
        came = [job for job in members(event.job, event.spec.count) if job in new]
        new.difference_update(came)
        return came
    if hasattr(event, "job"):
        return (event.job,)
    if hasattr(event, "attempt"):
        attempt = state.attempts.get(event.attempt) or known.get(event.attempt)
        return (attempt.job.id,) if attempt else ()
    billed: str = getattr(event, "hold", "") or getattr(event, "node", "")
    bill = state.bills.get(billed) or bills.get(billed)
    return (bill.owner.job.id if bill is not None and bill.owner is not None else "",)


def as_json(content: object) -> str:
    return msgspec.json.encode(content).decode()


def _text(text: str) -> str:
    """PostgreSQL cannot store NUL."""
    return text.replace("\0", "\ufffd") if "\0" in text else text
