"""`penstock journal`: inspects a journal, verifies it, rebuilds its tables."""

import click


@click.group("journal")
def command() -> None:
    """Inspect a journal, verify it, or rebuild its tables."""


@command.command("info")
@click.argument("where", envvar="PENSTOCK_JOURNAL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(where: str, as_json: bool) -> None:
    """Show a journal's installation, length and writer."""
    from dataclasses import asdict

    from penstock.cli import terminal
    from penstock.journal.verify import about

    found = about(where)
    if as_json:
        terminal.print_json(found)
    else:
        rows = [
            (name.replace("_", " "), "none" if text in (None, "") else text) for name, text in asdict(found).items()
        ]
        terminal.table(f"Journal {where}", ("", "found"), rows)


@command.command("verify")
@click.argument("where", envvar="PENSTOCK_JOURNAL")
@click.option("--expect", metavar="NUMBER:HASH", default="", help="The head that `journal info` printed earlier.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(where: str, expect: str, as_json: bool) -> None:
    """Verify the hash chain, and that no row is missing."""
    from penstock.cli import terminal
    from penstock.journal import verify as checks

    steps, head = checks.verify(where, expect)
    if as_json:
        terminal.print_json(
            {"steps": steps, "head": head, "chain": "whole", "expected": "found" if expect else "not asked"}
        )
    else:
        click.echo(f"Whole: {steps:,} steps, the last is {head}.")


@command.command("rebuild")
@click.argument("where", envvar="PENSTOCK_JOURNAL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rebuild(where: str, as_json: bool) -> None:
    """Rebuild the tables for lists and pages from the steps."""
    import time
    from contextlib import closing

    from penstock.cli import terminal
    from penstock.core.errors import BadInput
    from penstock.journal.journal import Held
    from penstock.journal.open import open_journal, reachable

    with reachable(), closing(open_journal(where, create=False)) as journal:
        try:
            epoch = journal.take("penstock journal rebuild", int(time.time() * 1000), LEASE_MS)
        except Held as error:
            raise BadInput(str(error)) from None
        steps = journal.rebuild()
        journal.release(epoch)
    if as_json:
        terminal.print_json({"steps": steps})
    else:
        click.echo(f"The tables of {where} are made anew from {steps:,} steps.")


#: Short, so that nobody waits if we are killed: while we work, our transaction keeps others out.
LEASE_MS = 10_000
