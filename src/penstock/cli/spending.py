"""`penstock budget`, `exposure` and `costs`: what may be spent, what could be, and what was."""

from typing import Any

import click

from penstock.cli.client import Client, Failed, talks
from penstock.cli.output import answer, examples, listed, moment, money, table


@click.command(
    "budget",
    epilog=examples(
        "budget --period 2026-10", "budget --set team:vision=5000 --per-hour team:vision=40 --reason 'for October'"
    ),
)
@click.option(
    "--set", "caps", multiple=True, metavar="SCOPE=AMOUNT", help="Set a monthly cap, like team:vision=5000; repeatable."
)
@click.option("--per-hour", multiple=True, metavar="SCOPE=AMOUNT", help="Set a cap on spending per hour; repeatable.")
@click.option("--unset", multiple=True, metavar="SCOPE", help="Remove a scope's caps; repeatable.")
@click.option("--reason", default="", help="Why; recorded, and shown to whoever must approve a higher cap.")
@click.option("--period", default="", help="Month to show, like 2026-11.  [default: this month]")
@listed
@talks
def budget(
    client: Client,
    caps: tuple[str, ...],
    per_hour: tuple[str, ...],
    unset: tuple[str, ...],
    reason: str,
    period: str,
    as_json: bool,
    output: str,
) -> None:
    """Show budgets: caps, spent and held money; or set caps."""
    for cap in _caps(client, caps, per_hour, unset):
        click.echo(_set(client, cap, reason)["says"], err=True)
    budget_now = client.get("/v1/budget", period=period)

    def draw(wide: bool) -> None:
        currency = budget_now["currency"]
        columns = ["scope", "cap", "spent", "held", "free"]
        more = ["cap an hour", "running an hour"]
        rows = [
            [scope["scope"], *(money(scope[key], currency) for key in ("cap", "spent", "held", "free"))]
            + ([money(scope[key], currency) for key in ("cap_per_hour", "running_per_hour")] if wide else [])
            for scope in budget_now["scopes"]
        ]
        for scope in budget_now["scopes"]:
            if scope["waiting"]:
                click.echo(_waiting(scope, currency))
        none = f"Nothing was spent or held in {period}." if period else "No caps, and nothing spent."
        table(f"Budget {budget_now['period']}", columns + (more if wide else []), rows, none)

    answer(budget_now, "json" if as_json else output, draw)


def _waiting(scope: dict[str, Any], currency: str) -> str:
    """Which of its two caps binds, a job's own `why` says."""
    month = "" if scope["free"] is None else f", of which {money(scope['free'], currency)} is free this month"
    hour = scope["cap_per_hour"]
    rate = "" if hour is None else f"; {money(scope['running_per_hour'], currency)} of {money(hour, currency)} an hour"
    jobs = f"{scope['waiting']:,} {'job waits' if scope['waiting'] == 1 else 'jobs wait'}"
    return f"{jobs} for money of {scope['scope']}{month}{rate}."


def _set(client: Client, cap: dict[str, Any], reason: str) -> Any:
    """Who may not set caps may ask for a higher one of their own team; another person approves it."""
    try:
        return client.put("/v1/budget", {**cap, "reason": reason})
    except Failed as refused:
        if refused.status != 403:
            raise
        return client.post("/v1/budget/raise", {**cap, "reason": reason})


def _caps(
    client: Client, caps: tuple[str, ...], per_hour: tuple[str, ...], unset: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One request for each scope. Setting one kind of cap keeps the scope's other cap."""
    wishes: dict[str, dict[str, Any]] = {
        scope: {"scope": scope, "per_month": None, "per_hour": None}
        for scope in (*unset, *map(_scope, caps + per_hour))
    }
    if caps or per_hour:
        for row in client.get("/v1/budget")["scopes"]:
            if row["scope"] in wishes and row["scope"] not in unset:
                wishes[row["scope"]] |= {"per_month": row["cap"], "per_hour": row["cap_per_hour"]}
    for key, given in (("per_month", caps), ("per_hour", per_hour)):
        for text in given:
            wishes[_scope(text)][key] = _amount(text)
    return list(wishes.values())


def _scope(text: str) -> str:
    return text.partition("=")[0]


def _amount(text: str) -> int:
    from penstock.core.errors import BadInput
    from penstock.core.units import money as typed

    _, equals, amount = text.partition("=")
    if not equals or typed(amount) < 0:
        raise BadInput(f"A cap is SCOPE=AMOUNT, like team:vision=5000 or org=20000, not '{text}'.")
    return typed(amount)


@click.command("exposure")
@listed
@talks
def exposure(client: Client, as_json: bool, output: str) -> None:
    """Show the most that would still be spent if Penstock died now."""
    exposed = client.get("/v1/exposure")

    def draw(_: bool) -> None:
        currency = exposed["currency"]
        most, until = money(exposed["most"], currency), exposed["until_at"]
        last = f", the last of it at {moment(until)}" if until else ""
        click.echo(f"If Penstock died now, at most {most} more would be spent{last}.")
        if exposed["soft"]:
            click.echo(f"{money(exposed['soft'], currency)} of it has soft caps: nothing there ends without Penstock.")
        for name in ("teams", "sites"):
            rows = [
                [row["name"] or "(no team)", money(row["most"], currency), moment(row["until_at"])]
                for row in exposed[name]
            ]
            if rows:
                table(name.capitalize(), [name[:-1], "at most", "until"], rows, "")

    answer(exposed, "json" if as_json else output, draw)


@click.command("costs")
@click.option("--days", default=31, show_default=True, type=click.IntRange(1, 3660), help="Number of days back.")
@click.option("--team", default="", help="Only this team.")
@listed
@talks
def costs(client: Client, days: int, team: str, as_json: bool, output: str) -> None:
    """Show GPU hours and costs by day, offer and team."""
    listing = client.get("/v1/costs", days=days, team=team)

    def draw(_: bool) -> None:
        columns = ["day", "offer", "term", "team", "GPU-hours", "cost"]
        rows = [
            [row["day"], row["offer"], row["term"], row["team"], f"{row['gpu_ms'] / 3_600_000:,.2f}",
             money(row["spent"], listing["currency"])]
            for row in listing["rows"]
        ]  # fmt: skip
        total = money(listing["spent"], listing["currency"])
        table(f"Costs of {days} days: {total}", columns, rows, "Nothing was used.")

    answer(listing, "json" if as_json else output, draw)
