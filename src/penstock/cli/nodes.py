"""`penstock nodes`: what is rented now, by whom, why, until when, and at what cost."""

from typing import Any

import click

from penstock.cli.client import Client, talks
from penstock.cli.output import answer, listed, moment, money, table


@click.command("nodes")
@click.option("--all", "everything", is_flag=True, help="Attempts that a site bills by themselves, too.")
@listed
@talks
def command(client: Client, everything: bool, as_json: bool, output: str) -> None:
    """List rented nodes: for whom, until when, and what they cost."""
    listing = client.get("/v1/nodes", **({"all": "true"} if everything else {}))

    def draw(wide: bool) -> None:
        columns = ["node", "offer", "GPUs", "state", "team", "used by", "since", "ends at", "spent", "at most"]
        more = ["price/h", "renewed", "why"]
        currency = listing["currency"]
        rows = [_row(node, currency) + (_more(node, currency) if wide else []) for node in listing["nodes"]]
        table("Rented", columns + (more if wide else []), rows, "Nothing is rented.")

    answer(listing, "json" if as_json else output, draw)


def _row(node: dict[str, Any], currency: str) -> list[object]:
    unused = "nobody; warm" if node["warm"] else f"nobody; rented for {node['attempt']}"
    unused = unused if node["warm"] or node["attempt"] else "nobody; a cluster"
    used_by = ", ".join(node["on"]) or unused
    return [
        node["id"], node["offer"], node["gpus"], node["phase"], node["team"], used_by, moment(node["asked_at"]),
        moment(node["deadline_at"]), money(node["spent"], currency), money(node["spent"] + node["held"], currency),
    ]  # fmt: skip


def _more(node: dict[str, Any], currency: str) -> list[object]:
    why = node["because"]["says"] if node["because"] else ""
    return [money(node["price_per_hour"], currency), "yes" if node["renewable"] else "no: one lease for life", why]
