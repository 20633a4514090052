"""`penstock audit`: lists who did what and which requests were denied, and erases what is personal about somebody."""

import shlex
from typing import Any

import click

from penstock.cli.client import Client, talks
from penstock.cli.output import moment, print_json, table


@click.group("audit")
def command() -> None:
    """Show who did what, and erase addresses and words."""


@command.command("list")
@click.option("--who", default="", help="Only of this token or user, by its id.")
@click.option("--did", default="", help="Only this, like cancel, cap, exec or 'log read'.")
@click.option("--about", default="", help="Only about this job, attempt, token or scope.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 500), help="At most so many.")
@talks
def list_all(client: Client, who: str, did: str, about: str, limit: int, as_json: bool) -> None:
    """Show who did what, newest first."""
    trail = client.get("/v1/audit", who=who, did=did, about=about, limit=limit)
    if as_json:
        print_json(trail)
        return
    rows = [
        [moment(entry["at"]), _who(entry), entry["did"], entry["about"], _change(entry), _why(entry),
         entry["address"] or "-", shlex.join(entry["words"])]
        for entry in trail["entries"]
    ]  # fmt: skip
    columns = ["at", "who", "did", "about", "change", "why", "from", "words"]
    table("Audit trail", columns, rows, "Nobody did anything like that.")


def _who(entry: dict[str, Any]) -> str:
    return f"{entry['who']} ({entry['name']})" if entry["name"] else entry["who"] or "penstock"


def _change(entry: dict[str, Any]) -> str:
    """The state before and after, as `before -> after`; only one of them if there is no other."""
    return " -> ".join(state for state in (entry["before"], entry["after"]) if state)


def _why(entry: dict[str, Any]) -> str:
    """Their reason, and who asked for what took two."""
    asked = entry["asked_by_name"] or entry["asked_by"]
    return ", ".join(part for part in (entry["reason"], f"asked by {asked}" if asked else "") if part) or "-"


@command.command("denials")
@talks
def denials(client: Client, as_json: bool) -> None:
    """Show denied requests, by address or token."""
    listing = client.get("/v1/audit/denials")
    if as_json:
        print_json(listing)
        return
    rows = [
        [
            line["source"],
            line["requests"],
            moment(line["first_at"]),
            moment(line["last_at"]),
            line["asked"],
            line["why"],
        ]
        for line in listing["denied"]
    ]
    table("Denied requests", ["from", "requests", "first", "last", "asked last", "why"], rows, "None was denied.")


@command.command("erase")
@click.argument("who")
@talks
def erase(client: Client, who: str, as_json: bool) -> None:
    """Erase the name, addresses and words recorded about a token or an address; what was done stays."""
    reply = client.post("/v1/audit/erase", {"who": who})
    if as_json:
        print_json(reply)
    else:
        click.echo(f"Erased of {who}: {reply['details']} details, {reply['denials']} lines of denied requests.")
