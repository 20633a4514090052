"""`penstock why`: one job's story, from a running Penstock or from a journal."""

from typing import TYPE_CHECKING

import click

from penstock.cli.client import Client, find_job, job_path
from penstock.cli.output import examples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.explain.story import StoryLine


@click.command("why", epilog=examples("why j7", "why vision/train", "why j7 --journal journal.db"))
@click.argument("job")
@click.option("--journal", metavar="FILE", help="Read this journal instead of asking a running Penstock.")
@click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(job: str, journal: str | None, url: str | None, as_json: bool) -> None:
    """Explain where a job runs or why it is queued, one line per decision."""
    if journal:
        _from_journal(job, journal, as_json)
    else:
        _from_api(Client(url), job, as_json)


def _from_api(client: Client, job: str, as_json: bool) -> None:
    from penstock.cli import terminal
    from penstock.cli.output import moment, safe

    lines = client.get(job_path(find_job(client, job), "/story"))["lines"]
    if as_json:
        terminal.print_json(lines)
        return
    for line in lines:
        click.echo(f"{moment(line['at']):>14}  {safe(line['text'])}")


def _from_journal(job: str, journal: str, as_json: bool) -> None:
    from difflib import get_close_matches

    from penstock.cli import terminal
    from penstock.core.errors import BadInput
    from penstock.explain.story import jobs_in
    from penstock.journal.open import lines_of, read

    lines = lines_of(journal, job)
    if not lines:
        near = get_close_matches(job, list(jobs_in(read(journal))), n=3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise BadInput(f"{journal} has no job '{job}'.{hint}")
    if as_json:
        terminal.print_json(lines)
        return
    print_story(lines)


def print_story(lines: "Iterable[StoryLine]") -> None:
    from penstock.formatting import instant

    for line in lines:
        click.echo(f"{instant(line.at):>14}  {line.text}")
