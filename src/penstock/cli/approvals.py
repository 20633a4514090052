"""`penstock approvals`: what waits for a person, and their answers."""

from typing import Any

import click

from penstock.cli.client import Client, job_path, talks
from penstock.cli.output import answer, listed, moment, money, span, table


@click.group("approvals")
def command() -> None:
    """List what waits for a person; approve or deny it."""


@command.command("ls")
@listed
@talks
def list_all(client: Client, as_json: bool, output: str) -> None:
    """List open requests: jobs that may burst only with approval, and caps that somebody wants raised."""
    waiting = client.get("/v1/approvals")

    def draw(wide: bool) -> None:
        currency = waiting["currency"]
        columns = ["job", "name", "asked by", "up to", "offer", "answers", "before", "instead"]
        columns += ["team", "rule"] if wide else []
        rows = [_row(job, currency, wide) for job in waiting["jobs"]]
        table("Approvals", columns, rows, "No job waits for approval.")
        caps = [
            [cap["scope"], cap["by_name"] or cap["by"] or "a file", cap["says"], cap["reason"] or "-"]
            for cap in waiting["caps"]
        ]
        if caps:
            table("Higher caps", ["scope", "asked by", "what", "why"], caps, "")

    answer(waiting, "json" if as_json else output, draw)


def _row(job: dict[str, Any], currency: str, wide: bool) -> list[object]:
    rule = f"{job['rule']} ({job['source']})" if job["source"] else job["rule"]
    ways = [f"{way['offer']}: {money(way['cost'], currency)} in {span(way['delay_ms'])}" for way in job["cheaper"]]
    row = [
        job["job"],
        job["name"] or "-",
        job["user_name"] or job["user"] or "-",
        money(job["amount"], currency),
        job["offer"],
        job["role"].removeprefix("role:"),
        moment(job["until_at"]),
        "; ".join(ways) or "-",
    ]
    return row + ([job["team"], rule] if wide else [])


@command.command("approve")
@click.argument("what", metavar="JOB|SCOPE")
@click.option("--reason", default="", help="Why; recorded with the answer.")
@click.option(
    "--up-to", default="", metavar="AMOUNT", help="Approve less than what was asked for.  [default: all of it]"
)
@talks
def approve(client: Client, what: str, reason: str, up_to: str, as_json: bool) -> None:
    """Approve that a job bursts, or a higher cap (team:NAME)."""
    from penstock.core.errors import BadInput
    from penstock.core.units import money as typed

    if up_to and (_is_scope(what) or typed(up_to) < 0):
        raise BadInput("--up-to is an amount, like 2500, and for a job; a cap is approved as it was asked for.")
    _tell(client, what, as_json, approved=True, reason=reason, amount=typed(up_to) if up_to else None)


@command.command("deny")
@click.argument("what", metavar="JOB|SCOPE")
@click.option("--reason", default="", help="Why; the job's owner sees it.")
@talks
def deny(client: Client, what: str, reason: str, as_json: bool) -> None:
    """Deny it: the job stays on owned GPUs, or is refused; the cap stays as it is."""
    _tell(client, what, as_json, approved=False, reason=reason, amount=None)


def _tell(client: Client, target: str, as_json: bool, *, approved: bool, reason: str, amount: int | None) -> None:
    decision: dict[str, Any] = {"approved": approved, "reason": reason}
    if _is_scope(target):
        reply = client.post("/v1/budget/approval", {"scope": target, **decision})
    else:
        reply = client.post(job_path(target, "/approval"), {**decision, "amount": amount})
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(reply)
    else:
        click.echo(f"{target}: {reply['says']}")


def _is_scope(target: str) -> bool:
    """No job's id has a colon."""
    return target == "org" or ":" in target
