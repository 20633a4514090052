"""Money in the tables: held, charged, settled, by job, attempt, scope and day. `project` calls these, an event each."""

from collections.abc import Iterable

from penstock.core import events as e
from penstock.core.lifecycle import ENDED
from penstock.core.model import Hold as HeldMoney
from penstock.core.model import Part
from penstock.core.units import DAY, Instant
from penstock.journal import lines as t
from penstock.journal.tables import Tables, as_json, as_list


def hold(tables: Tables, hold: HeldMoney, attempt: t.Attempt) -> None:
    beyond = hold.terms.grace_ms + hold.terms.kill_ms
    line = t.Hold(hold.id, attempt.id, as_json(hold.scopes), "[]", hold.deadline_at, beyond)
    tables.holds[hold.id] = line
    attempt.holds += 1
    tables.job_of(attempt).holds += 1
    _held(tables, line, hold.parts, hold.deadline_at)


def lease_renewed(tables: Tables, event: e.LeaseRenewed) -> None:
    hold = tables.holds[event.hold]
    _charge(tables, hold, event.charged, event.at)
    _held(tables, hold, event.parts, event.deadline_at)


def lease_shortened(tables: Tables, event: e.LeaseShortened) -> None:
    _held(tables, tables.holds[event.hold], event.parts, event.deadline_at)


def settled(tables: Tables, event: e.Settled) -> None:
    hold = tables.holds.pop(event.hold)
    attempt = tables.attempts[hold.attempt]
    job = tables.job_of(attempt)
    _charge(tables, hold, event.charged, event.at)
    _held(tables, hold, (), hold.deadline_at)
    attempt.holds -= 1
    job.holds -= 1
    tables.over += [line for line in (attempt, job) if line.holds == 0 and line.phase in ("over", *ENDED)]
    tables.changes.drop(hold)


def _held(tables: Tables, hold: t.Hold, parts: Iterable[Part], deadline_at: Instant) -> None:
    """From now on these amounts are held, in place of what was."""
    before: list[tuple[str, int]] = [(period, amount) for period, amount in as_list(hold.parts)]
    now = [(part.period, part.amount) for part in parts]
    attempt = tables.attempts[hold.attempt]
    job = tables.job_of(attempt)
    more = sum(amount for _, amount in now) - sum(amount for _, amount in before)
    attempt.held += more
    job.held += more
    for sign, amounts in ((-1, before), (1, now)):
        for scope, period, amount in _accounts(hold, amounts):
            tables.changes.add(t.Spend(scope, period, sign * amount, 0))
    hold.parts, hold.deadline_at = as_json(now), deadline_at
    if attempt.phase != "over":
        attempt.deadline_at = deadline_at
    for line in (hold, attempt, job):
        tables.changes.put(line)


def _charge(tables: Tables, hold: t.Hold, charged: tuple[Part, ...], at: Instant) -> None:
    attempt = tables.attempts[hold.attempt]
    total = sum(part.amount for part in charged)
    attempt.spent += total
    tables.job_of(attempt).spent += total
    for scope, period, amount in _accounts(hold, [(part.period, part.amount) for part in charged]):
        tables.changes.add(t.Spend(scope, period, 0, amount))
    tables.changes.add(t.Used(at // DAY, attempt.offer, attempt.team, 0, total))


def _accounts(hold: t.Hold, amounts: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str, int]]:
    """A job's own money is on the job."""
    scopes = [scope for scope in as_list(hold.scopes) if not scope.startswith("job:")]
    return [(scope, period, amount) for period, amount in amounts for scope in scopes]
