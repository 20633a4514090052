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
@click.option("--up-to", default="", metavar="AMOUNT", help="The amount that you approve.  [default: it asks]")
@click.option("--yes", is_flag=True, help="Do not ask: approve whatever is asked for now.")
@talks
def approve(client: Client, what: str, reason: str, up_to: str, yes: bool, as_json: bool) -> None:
    """Approve that a job bursts, or a higher cap (team:NAME), and only the amount that you saw."""
    from penstock.core.errors import BadInput
    from penstock.core.units import money as typed

    amount = typed(up_to) if up_to else None
    if amount is not None and amount < 0:
        raise BadInput("--up-to is an amount, like 2500.")
    waiting = client.get("/v1/approvals")
    seen = _cap_seen(waiting, what, amount, yes) if _is_scope(what) else _amount_seen(waiting, what, amount, yes)
    _tell(client, what, as_json, {"approved": True, "reason": reason, **seen})


def _amount_seen(waiting: dict[str, Any], what: str, amount: int | None, yes: bool) -> dict[str, int]:
    """The most that the job may cost, or each job of an array."""
    requests = [job for job in waiting["jobs"] if what in (job["job"], job["job"].rpartition("/")[0])]
    asked = max((job["amount"] for job in requests), default=0)  # none: the server says why
    if amount is None and requests and not yes:
        each = " each" if len(requests) > 1 else ""
        which = f"{what} ({requests[0]['name']})" if requests[0]["name"] else what
        most = money(asked, waiting["currency"])
        click.confirm(
            f"{which} asks for up to {most}{each} at {requests[0]['offer']}. Approve it?", abort=True, err=True
        )
    return {"amount": asked if amount is None else amount}


def _cap_seen(waiting: dict[str, Any], what: str, amount: int | None, yes: bool) -> dict[str, int | None]:
    cap = next((cap for cap in waiting["caps"] if cap["scope"] == what), None)
    if cap is None:  # the server says so
        return {}
    says_all = amount is not None and cap["per_hour"] == cap["in_force_per_hour"]
    if not (yes or says_all):
        click.confirm(f"{cap['says']} Approve it?", abort=True, err=True)
    return {"per_month": cap["per_month"] if amount is None else amount, "per_hour": cap["per_hour"]}


@command.command("deny")
@click.argument("what", metavar="JOB|SCOPE")
@click.option("--reason", default="", help="Why; the job's owner sees it.")
@talks
def deny(client: Client, what: str, reason: str, as_json: bool) -> None:
    """Deny it: the job stays on owned GPUs, or is refused; the cap stays as it is."""
    _tell(client, what, as_json, {"approved": False, "reason": reason})


def _tell(client: Client, target: str, as_json: bool, decision: dict[str, Any]) -> None:
    if _is_scope(target):
        reply = client.post("/v1/budget/approval", {"scope": target, **decision})
    else:
        reply = client.post(job_path(target, "/approval"), decision)
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(reply)
    else:
        click.echo(f"{target}: {reply['says']}")


def _is_scope(target: str) -> bool:
    """No job's id has a colon."""
    return target == "org" or ":" in target
