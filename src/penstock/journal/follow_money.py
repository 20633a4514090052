"""Money in the tables: held, charged, settled, by job, attempt, scope and day. `project` calls these, an event each."""

from collections.abc import Iterable

from penstock.core import events as e
from penstock.core.lifecycle import ENDED
from penstock.core.model import Hold as HeldMoney
from penstock.core.model import Part
from penstock.core.units import DAY, Instant
from penstock.journal import lines as t
from penstock.journal.tables import Tables, as_json, as_list


def hold(tables: Tables, hold: HeldMoney, attempt: t.Attempt, gpus: int) -> None:
    beyond = hold.terms.grace_ms + hold.terms.kill_ms
    shares = as_json([(attempt.id, gpus, 0)])
    line = t.Hold(hold.id, attempt.id, as_json(hold.scopes), "[]", hold.deadline_at, beyond, shares, hold.opened_at)
    tables.holds[hold.id] = line
    _count(tables, attempt, 1)
    _held(tables, line, hold.parts, hold.deadline_at)


def join(tables: Tables, node: str, attempt: t.Attempt, at: Instant) -> None:
    """From now on it has a share in what the node costs."""
    hold = tables.holds[node]
    hold.shares = as_json([*_shares(hold, at), (attempt.id, attempt.width, 0)])
    attempt.deadline_at = hold.deadline_at
    _count(tables, attempt, 1)
    tables.changes.put(hold)


def leave(tables: Tables, node: str, attempt: t.Attempt, at: Instant) -> None:
    """It costs it no more; what it has used is charged with the next charge."""
    hold = tables.holds[node]
    hold.shares = as_json([(name, 0 if name == attempt.id else gpus, used) for name, gpus, used in _shares(hold, at)])
    tables.changes.put(hold)


def _shares(hold: t.Hold, at: Instant) -> list[tuple[str, int, int]]:
    """Counted up to now."""
    ms, hold.counted_to = at - hold.counted_to, at
    return [(name, gpus, used + gpus * ms) for name, gpus, used in as_list(hold.shares)]


def _count(tables: Tables, attempt: t.Attempt, by: int) -> None:
    """It has so many holds more to pay for, or fewer; with none left and over it can no longer change."""
    job = tables.job_of(attempt)
    attempt.holds += by
    job.holds += by
    tables.over += [line for line in (attempt, job) if line.holds == 0 and line.phase in ("over", *ENDED)]
    tables.changes.put(attempt)
    tables.changes.put(job)


def lease_renewed(tables: Tables, event: e.LeaseRenewed) -> None:
    hold = tables.holds[event.hold]
    _charge(tables, hold, event.charged, event.at)
    _held(tables, hold, event.parts, event.deadline_at)


def lease_shortened(tables: Tables, event: e.LeaseShortened) -> None:
    _held(tables, tables.holds[event.hold], event.parts, event.deadline_at)


def settled(tables: Tables, event: e.Settled) -> None:
    hold = tables.holds.pop(event.hold)
    _charge(tables, hold, event.charged, event.at)
    _held(tables, hold, (), hold.deadline_at)
    for name in dict.fromkeys([hold.attempt, *(name for name, _, _ in as_list(hold.shares))]):
        _count(tables, tables.attempts[name], -1)
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
    for other in [tables.attempts[name] for name, _, _ in as_list(hold.shares)]:
        if other.phase != "over":
            other.deadline_at = deadline_at
            tables.changes.put(other)
    for line in (hold, attempt, job):
        tables.changes.put(line)


def _charge(tables: Tables, hold: t.Hold, charged: tuple[Part, ...], at: Instant) -> None:
    attempt, shares = tables.attempts[hold.attempt], _shares(hold, at)
    total = sum(part.amount for part in charged)
    for name, amount in _split(hold.attempt, shares, total):
        payer = tables.attempts[name]
        payer.spent += amount
        tables.job_of(payer).spent += amount
        tables.changes.put(payer)
        tables.changes.put(tables.job_of(payer))
    for name in [name for name, gpus, _ in shares if not gpus and name != hold.attempt]:  # it has left, and paid
        _count(tables, tables.attempts[name], -1)
    hold.shares = as_json([(name, gpus, 0) for name, gpus, _ in shares if gpus])
    for scope, period, amount in _accounts(hold, [(part.period, part.amount) for part in charged]):
        tables.changes.add(t.Spend(scope, period, 0, amount))
    tables.changes.add(t.Used(at // DAY, attempt.offer, attempt.team, 0, total))


def _split(owner: str, shares: list[tuple[str, int, int]], total: int) -> list[tuple[str, int]]:
    """By the GPUs that each had since the last charge, and how long; what rounding leaves is for whose node it is."""
    whole = sum(used for _, _, used in shares)
    amounts = [(name, total * used // whole) for name, _, used in shares if used]
    return [*amounts, (owner, total - sum(amount for _, amount in amounts))]


def _accounts(hold: t.Hold, amounts: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str, int]]:
    """A job's own money is on the job."""
    scopes = [scope for scope in as_list(hold.scopes) if not scope.startswith("job:")]
    return [(scope, period, amount) for period, amount in amounts for scope in scopes]
