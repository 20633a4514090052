"""`penstock why`: one job's story."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.journal.story import Line


@click.command("why")
@click.argument("job")
@click.option("--journal", required=True, metavar="FILE", help="A journal that `penstock simulate --journal` wrote.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def command(job: str, journal: str, as_json: bool) -> None:
    """Say why a job is where it is, from a journal."""
    from difflib import get_close_matches

    from penstock.cli import show
    from penstock.core.errors import BadInput
    from penstock.journal.open import lines_of, read
    from penstock.journal.story import jobs_in

    lines = lines_of(journal, job)
    if not lines:
        near = get_close_matches(job, list(jobs_in(read(journal))), n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise BadInput(f"{journal} knows no job '{job}'.{hint}")
    if as_json:
        show.print_json(lines)
        return
    print_story(lines)


def print_story(lines: "Iterable[Line]") -> None:
    from penstock.journal.words import instant

    for line in lines:
        click.echo(f"{instant(line.at):>14}  {line.text}")
