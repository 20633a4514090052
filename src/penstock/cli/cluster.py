"""`penstock cluster up|ls|down`: clusters that are made when they are needed, and go afterwards."""

import time
from typing import Any

import click

from penstock.cli.client import Client, Failed, talks
from penstock.cli.output import answer, listed, moment, money, table

POLL_SECONDS = 2.0
MOST_HOURS = 744.0


@click.group("cluster")
def command() -> None:
    """Have a site's transient cluster up, list them, or send one away."""


@command.command("ls")
@listed
@talks
def ls(client: Client, as_json: bool, output: str) -> None:
    """List sites whose clusters come and go, and what is up."""
    listing = client.get("/v1/clusters")

    def draw(wide: bool) -> None:
        columns = ["site", "cluster", "state", "used by", "since", "ends at", "budget", "price/h", "spent", "at most"]
        more = ["wanted until", "closed until", "ends without us", "why"]
        currency = listing["currency"]
        rows = [_row(cluster, currency) + (_more(cluster) if wide else []) for cluster in listing["clusters"]]
        table("Transient clusters", columns + (more if wide else []), rows, "No site has a transient cluster.")

    answer(listing, "json" if as_json else output, draw)


def _row(cluster: dict[str, Any], currency: str) -> list[object]:
    asked, ends = cluster["asked_at"], cluster["deadline_at"]
    return [
        cluster["site"], cluster["cluster"], cluster["state"], ", ".join(cluster["used_by"]),
        moment(asked) if asked else "", moment(ends) if ends else "", cluster["budget"],
        money(cluster["price_per_hour"], currency), *_paid(cluster, currency),
    ]  # fmt: skip


def _paid(cluster: dict[str, Any], currency: str) -> tuple[str, str]:
    """Spent, and at most; a team whose budget does not pay for it sees neither."""
    if cluster["spent"] is None:
        return "-", "-"
    return money(cluster["spent"], currency), money(cluster["spent"] + cluster["held"], currency)


def _more(cluster: dict[str, Any]) -> list[object]:
    wanted, closed = cluster["wanted_until"], cluster["closed_until"]
    ends = "no: caps are soft" if cluster["soft"] else "yes"
    why = cluster["because"]["says"] if cluster["because"] else ""
    return [moment(wanted) if wanted else "", moment(closed) if closed else "", ends, why]


@command.command("up")
@click.argument("site")
@click.option("--for", "hours", default="2h", show_default=True, help="How long it is wanted, like 90m, 2h or 3d.")
@click.option("--wait", is_flag=True, help="Return when it is up.")
@talks
def up(client: Client, site: str, hours: str, wait: bool, as_json: bool) -> None:
    """Have the cluster of a site up, whether jobs need it or not."""
    reply = client.post(f"/v1/clusters/{site}/up", {"hours": _hours(hours)})
    while wait and reply["state"] == "starting":
        time.sleep(POLL_SECONDS)
        reply = next(cluster for cluster in client.get("/v1/clusters")["clusters"] if cluster["site"] == site)
    if not reply["cluster"] and not as_json:
        why = reply["because"]["says"] if reply["because"] else "its provider refused, or starts are paused"
        raise Failed(f"{site}: it is wanted until {moment(reply['wanted_until'])}, and there is none yet: {why}")
    _tell(reply, as_json, f"{reply['cluster']} is {reply['state']}, wanted until {moment(reply['wanted_until'] or 0)}.")


@command.command("down")
@click.argument("site")
@talks
def down(client: Client, site: str, as_json: bool) -> None:
    """Let the cluster of a site go: nothing starts there any more, and it goes after its last attempt."""
    reply = client.post(f"/v1/clusters/{site}/down")
    rest = f"; it goes after {', '.join(reply['used_by'])}" if reply["used_by"] else ""
    text = f"{reply['cluster']} is {reply['state']}{rest}." if reply["cluster"] else f"{site} has no cluster."
    _tell(reply, as_json, text)


def _hours(text: str) -> float:
    """`90m`, `2h`, `3d`."""
    from penstock.config.scalars import Duration, scalar
    from penstock.core.units import HOUR

    try:
        wanted = scalar(Duration, text)
    except ValueError as error:
        raise click.UsageError(f"--for: {error}.") from None
    assert isinstance(wanted, int)  # in milliseconds
    hours: float = wanted / HOUR
    if not 0 < hours <= MOST_HOURS:
        raise click.UsageError("--for: a cluster is wanted for at most 31d.")
    return hours


def _tell(reply: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(reply)
    else:
        click.echo(text)
