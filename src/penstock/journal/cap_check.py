"""Checks the promises of every recorded step, the caps first. `penstock replay --check` calls it.

A cap may be lowered below what is committed, and a provider's bill may exceed its hold. Otherwise nothing that a scope
holds and has spent grows beyond its cap, and its hourly rate does not either: a step in which it does was not decided
by this engine. What a scope had is known before it has a cap: what ran when a cap was first set broke no promise.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.core.fold import invariants
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.units import MICRO, Money
from penstock.journal.folding import fold_all

CHECKED_STEPS: Final = 500  #: all invariants are checked after so many steps, and after the last: it takes a while


def last_state(rows: Iterable[Any], where: str) -> State:
    """The state after the last row."""
    state = State()
    for _, state in fold_all(rows, where):  # noqa: B007 - the last one
        pass
    return state


def check_all(rows: Iterable[Any], where: str) -> State:
    """The state after the last row. Raises `BadInput` that names the first step which breaks a promise."""
    state, caps = State(), CapCheck()
    for row, state in fold_all(rows, where):
        broken = next(caps.broken_by(state, row), "")
        if broken:
            raise BadInput(f"{where}: step {row.number} breaks a cap: {broken}.")
        if row.number % CHECKED_STEPS == 0:
            _check(state, where)
    _check(state, where)
    return state


def _check(state: State, where: str) -> None:
    try:
        invariants.check(state)
    except AssertionError as broken:
        raise BadInput(f"{where}: the state after step {state.steps} is broken: {broken}.") from None


class CapCheck:
    """What each scope had before the step, with a cap or without one, to see what grew."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, str], Money] = {}
        self.rates: dict[str, Money] = {}

    def broken_by(self, state: State, row: Any) -> Iterator[str]:
        """The caps that this step broke, in words."""
        overrun = any(isinstance(event, e.Metered | e.OverrunFound) for event in (*row.inputs, *row.outputs))
        ledger, spends = state.ledger, () if state.touched is None else tuple(state.touched.spend)
        for scopes, period in spends:
            for scope in scopes:
                key = (scope, "" if scope.startswith("job:") else period)
                account = ledger.accounts.get(key)
                if account is None:  # of a job that has ended
                    self.totals.pop(key, None)
                    continue
                total, before = account.held + account.spent, self.totals.get(key, 0)
                self.totals[key] = total
                if account.cap is not None and before < total > account.cap and not overrun:
                    yield f"{scope} has {_units(total)} held and spent, and may have {_units(account.cap)}"
        for scope in dict.fromkeys(scope for scopes, _ in spends for scope in scopes):
            rate, before = ledger.rates.get(scope, 0), self.rates.get(scope, 0)
            self.rates[scope] = rate
            cap = ledger.rate_caps.get(scope)
            if cap is not None and before < rate > cap:
                yield f"{scope} may spend {_units(rate)} an hour, and its cap is {_units(cap)}"


def _units(amount: Money) -> str:
    return f"{amount / MICRO:,.2f}"
