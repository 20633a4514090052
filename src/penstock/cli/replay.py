"""`penstock replay`: folds a journal and prints the state."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penstock.journal.journal import Row


@click.command("replay")
@click.argument("file")
@click.option("--check", is_flag=True, help="Also check every step against the caps, and every invariant of the state.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: str, check: bool, as_json: bool) -> None:
    """Rebuild the state from a journal and verify its hash chain."""
    from penstock.cli import terminal
    from penstock.journal.cap_check import check_all, last_state
    from penstock.journal.open import read
    from penstock.journal.states import job_state

    counted = {"steps": 0, "events": 0}

    def rows() -> "Iterator[Row]":
        for row in read(file):
            counted["steps"] += 1
            counted["events"] += len(row.inputs) + len(row.outputs)
            yield row

    state = (check_all if check else last_state)(rows(), file)
    held, until = state.ledger.exposure()
    answer = {
        **counted,
        "at": state.at,
        "jobs_now": len(state.jobs),
        "ended": {job_state(phase): count for phase, count in state.ended.items()},
        "spent": sum(a.spent for (scope, _), a in state.ledger.accounts.items() if scope == "org"),
        "exposure": held,
        "exposed_until": until,
        "chain": "whole",
        "invariants": "hold" if check else "not asked",
        "digest": state.digest(),
    }
    if as_json:
        terminal.print_json(answer)
    else:
        terminal.table(f"Replay of {file}", ("", "found"), _rows(answer, state.policy.currency))


def _rows(answer: "dict[str, Any]", currency: str) -> "list[tuple[str, str]]":
    """As people read them: money, instants and counts in words."""
    from penstock.formatting import exact_money, instant

    said = {
        "at": instant(answer["at"]),
        "ended": ", ".join(f"{number:,} {state}" for state, number in answer["ended"].items()) or "none",
        "spent": exact_money(answer["spent"], currency),
        "exposure": exact_money(answer["exposure"], currency),
        "exposed_until": instant(answer["exposed_until"]) if answer["exposure"] else "-",
    }
    words = {name: f"{figure:,}" for name, figure in answer.items() if isinstance(figure, int)} | said
    return [(name.replace("_", " "), words.get(name, str(figure))) for name, figure in answer.items()]
