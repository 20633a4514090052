"""`penstock replay`: folds a journal and prints the state."""

import click


@click.command("replay")
@click.argument("file")
@click.option("--check", is_flag=True, help="Also check every invariant of the resulting state.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: str, check: bool, as_json: bool) -> None:
    """Rebuild the state from a journal and verify its hash chain."""
    from penstock.cli import terminal
    from penstock.core.engine import replay
    from penstock.core.errors import BadInput
    from penstock.core.fold import invariants
    from penstock.journal.open import read
    from penstock.journal.states import job_state

    counted = {"steps": 0, "events": 0}

    def rows() -> object:
        for row in read(file):
            counted["steps"] += 1
            counted["events"] += len(row.inputs) + len(row.outputs)
            yield row.at, row.inputs, row.outputs

    state = replay(rows()).state  # type: ignore[arg-type]  # a generator of rows
    if check:
        try:
            invariants.check(state)
        except AssertionError as broken:
            raise BadInput(f"{file}: the state it describes is broken: {broken}.") from None
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
        terminal.table(
            f"Replay of {file}", ("", "found"), [(name.replace("_", " "), found) for name, found in answer.items()]
        )
