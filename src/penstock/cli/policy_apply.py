"""`penstock policy apply`, `history`, `show` and `rollback`: the policy of a running Penstock."""

from typing import Any, Final

import click

from penstock.cli.client import Client, Failed, talks
from penstock.cli.output import answer, listed, moment, table

MOST_SHOWN: Final = 20  #: stranded jobs


@click.command("apply")
@click.argument("file")
@click.option("--reason", default="", help="Why; recorded with the change.")
@click.option("--yes", is_flag=True, help="Also if running jobs would not be allowed where they are.")
@talks
def apply(client: Client, file: str, reason: str, yes: bool, as_json: bool) -> None:
    """Apply a policy file to the running Penstock: all of it, or nothing."""
    _apply(client, {"text": text_of(file), "name": file, "reason": reason}, yes, as_json)


def text_of(file: str) -> str:
    """A file that the server shall read."""
    from penstock.config.document import read_bytes

    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise Failed(f"{file} is not UTF-8 text.") from None


@click.command("rollback")
@click.argument("revision", type=click.IntRange(1))
@click.option("--reason", default="", help="Why; recorded with the change.")
@click.option("--yes", is_flag=True, help="Also if running jobs would not be allowed where they are.")
@talks
def rollback(client: Client, revision: int, reason: str, yes: bool, as_json: bool) -> None:
    """Apply the file of an earlier revision again."""
    earlier = _found(client, revision)
    why = reason or f"rolled back to revision {revision}"
    _apply(client, {"text": earlier["text"], "name": f"revision {revision}", "reason": why}, yes, as_json)


@click.command("history")
@listed
@talks
def history(client: Client, as_json: bool, output: str) -> None:
    """List the policies that were in force, newest first."""
    answered = client.get("/v1/policy/history")

    def draw(_: bool) -> None:
        rows = [
            [
                row["revision"],
                moment(row["at"]),
                row["by"] or "a start or a file",
                row["digest"][:12] or "-",
                row["reason"],
            ]
            for row in answered["revisions"]
        ]
        table("Policies", ["revision", "since", "by", "file", "reason"], rows, "No policy yet.")

    answer(answered, "json" if as_json else output, draw)


@click.command("show")
@click.argument("revision", type=click.IntRange(1), required=False)
@talks
def show(client: Client, revision: int | None, as_json: bool) -> None:
    """Print the file of a revision; without one, of the policy in force."""
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(client.get(f"/v1/policy/revisions/{revision or 0}"))
    else:
        click.echo(_found(client, revision or 0)["text"], nl=False)


def _found(client: Client, revision: int) -> Any:
    row = client.get(f"/v1/policy/revisions/{revision}")
    if not row["text"]:
        raise Failed(
            f"Revision {row['revision']} came from a sites file without a policy file; there is no text of it."
        )
    return row


def applied(client: Client, path: str, body: dict[str, Any], yes: bool) -> Any:
    """What came of a policy or sites file. Unless `yes`, whoever would strand running jobs is asked first."""
    reply = client.post(path, {**body, "yes": yes})
    if reply["stranded"] and not reply["changed"] and not yes:
        for job in reply["stranded"][:MOST_SHOWN]:
            where = f" ({job['where']})" if job["where"] else ""
            click.echo(f"{job['job']} of {job['team']} on {job['offer']}: {job['rule']}{where}", err=True)
        click.confirm(f"{reply['says']} Apply it?", abort=True, err=True)
        reply = client.post(path, {**body, "yes": True})
    return reply


def _apply(client: Client, body: dict[str, Any], yes: bool, as_json: bool) -> None:
    reply = applied(client, "/v1/policy", body, yes)
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(reply)
        return
    click.echo(reply["says"])
    for words in reply["raised"]:
        click.echo(f"Notice: {words}", err=True)
