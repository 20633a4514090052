"""`penstock journal`: inspects a journal, verifies it, rebuilds its tables, and lets a restored backup go on."""

import click


@click.group("journal")
def command() -> None:
    """Inspect a journal, verify it, rebuild its tables, or restore a backup."""


@command.command("info")
@click.argument("where", envvar="PENSTOCK_JOURNAL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(where: str, as_json: bool) -> None:
    """Show a journal's installation, length and writer."""
    from dataclasses import asdict

    from penstock.cli import terminal
    from penstock.journal.verify import about

    facts = about(where)
    if as_json:
        terminal.print_json(facts)
    else:
        rows = [
            (name.replace("_", " "), "none" if text in (None, "") else text) for name, text in asdict(facts).items()
        ]
        terminal.table(f"Journal {where}", ("", "found"), rows)


@command.command("verify")
@click.argument("where", envvar="PENSTOCK_JOURNAL")
@click.option("--expect", metavar="NUMBER:HASH", default="", help="The head that `journal info` printed earlier.")
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="FILE",
    help="Heads that `penstock up --anchor` wrote, or a site's claim.json.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(where: str, expect: str, anchors: tuple[str, ...], as_json: bool) -> None:
    """Verify the hash chain, and that tables, blobs and snapshots are what it says."""
    from dataclasses import asdict

    from penstock.cli import terminal
    from penstock.formatting import count
    from penstock.journal import verify as checks
    from penstock.journal.contents import verify_contents
    from penstock.live import snapshot

    steps, head = checks.verify(where, expect)
    anchored = sum(checks.compare_anchors(where, file) for file in anchors)
    contents = verify_contents(where, snapshot.schema(), snapshot.restored)
    if as_json:
        expected = "found" if expect else "not asked"
        report = {"steps": steps, "head": head, "chain": "whole", "expected": expected, "anchors": anchored}
        terminal.print_json({**report, **asdict(contents)})
    else:
        click.echo(f"Whole: {steps:,} steps, the last is {head}.")
        if anchors:
            click.echo(f"It has all that was anchored: {count(anchored, 'head')}.")
        if contents.rows:
            beside = f"{count(contents.blobs, 'blob')} and {count(contents.snapshots, 'snapshot')}"
            click.echo(f"Beside it, as the steps say: {contents.rows:,} rows of tables, {beside}.")


@command.command("rebuild")
@click.argument("where", envvar="PENSTOCK_JOURNAL")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rebuild(where: str, as_json: bool) -> None:
    """Rebuild the tables for lists and pages from the steps."""
    import time
    from contextlib import closing

    from penstock.cli import terminal
    from penstock.core.errors import BadInput
    from penstock.journal.journal import Fenced, Held
    from penstock.journal.open import open_journal, reachable

    with reachable(), closing(open_journal(where, create=False)) as journal:
        try:
            epoch = journal.take("penstock journal rebuild", int(time.time() * 1000), LEASE_MS)
            steps = journal.rebuild(epoch)
            journal.release(epoch)
        except (Held, Fenced) as error:
            raise BadInput(str(error)) from None
    if as_json:
        terminal.print_json({"steps": steps})
    else:
        click.echo(f"The tables of {where} are made anew from {steps:,} steps.")


@command.command("restore")
@click.argument("where")
@click.option("--from", "backup", metavar="FILE", default="", help="Backup to put at WHERE first; SQLite only.")
@click.option("--anchor", "anchors", multiple=True, metavar="FILE", help="Note the restore here, after its anchors.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restore(where: str, backup: str, anchors: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Let a backup or a copy of a journal go on as the installation's only one.

    Sites refuse a copy of the journal that they know. After this the next `penstock up` on WHERE takes them over,
    whatever happened since the backup. A control plane that still runs on another copy then ends; jobs are not stopped.
    """
    from penstock.cli import terminal
    from penstock.journal import restore as restores

    source = backup or where
    steps, last_at = restores.last_of(source)
    if not yes:
        click.confirm(restores.question(source, where, steps, last_at), abort=True, err=True)
    aside = restores.put_in_place(backup, where) if backup else ""
    restores.restore(where, anchors)
    if as_json:
        terminal.print_json({"journal": where, "steps": steps, "aside": aside})
    else:
        kept = f" The journal that was there is {aside} now." if aside else ""
        click.echo(f"{where} goes on from step {steps:,}: start it with `penstock up`.{kept}")


#: Short, so that nobody waits if we are killed: while we work, our transaction keeps others out.
LEASE_MS = 10_000
