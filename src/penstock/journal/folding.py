"""Folds recorded steps, and names the one that cannot be folded. A start, `replay`, `journal rebuild` and `journal
restore` read a journal this way.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.core.fold.apply import fold_step
from penstock.core.fold.state import State
from penstock.core.model.lifecycle import Broken

WAY_OUT: Final = "Penstock does not go on from it; docs/journal.md says what to do (A step that is refused)."


def fold_row(state: State, row: Any, where: str) -> None:
    """Raises `BadInput` if the row breaks a promise, or cannot follow those before."""
    try:
        fold_step(state, row.at, row.inputs, row.outputs)
    except Broken as broken:  # where a promise is applied, the state refuses what must never be
        raise BadInput(f"{where}: step {row.number} breaks a promise: {broken}. {WAY_OUT}") from broken
    except Exception as error:  # events that never followed each other raise whatever they like
        words = f"{type(error).__name__}: {error}"
        raise BadInput(f"{where}: step {row.number} does not follow from those before ({words}). {WAY_OUT}") from error


def fold_all(rows: Iterable[Any], where: str) -> Iterator[tuple[Any, State]]:
    """Each row with the state after it."""
    state = State()
    state.watch()
    for row in rows:
        fold_row(state, row, where)
        yield row, state
