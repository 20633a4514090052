"""`penstock sites` and `penstock offers`: where jobs can run, what is free there, and what it costs."""

from typing import Any

import click

from penstock.cli.client import Client, talks
from penstock.cli.output import answer, listed, moment, money, span, table


@click.command("sites")
@listed
@talks
def sites(client: Client, as_json: bool, output: str) -> None:
    """List sites and how many of their GPUs are busy, starting, idle or lost."""
    listing = client.get("/v1/sites")

    def draw(wide: bool) -> None:
        columns = ["site", "offer", "term", "GPU", "GPUs", "busy", "starting", "idle", "lost", "now"]
        more = ["location", "operator", "law", "free by node"]
        rows = [
            _site_row(site, offer) + ([site["location"], site["operator"], site["law"], offer["free"]] if wide else [])
            for site in listing["sites"]
            for offer in site["offers"]
        ]
        table("Sites", columns + (more if wide else []), rows, "No sites.")

    answer(listing, "json" if as_json else output, draw)


def _site_row(site: dict[str, Any], offer: dict[str, Any]) -> list[object]:
    return [
        site["id"], offer["id"].partition("/")[2], offer["term"], offer["gpu_model"],
        "any" if offer["gpus"] is None else offer["gpus"], offer["busy"], offer["starting"], offer["idle"],
        offer["lost"],
        _now(site["reachable"] and not site.get("says"), offer),
    ]  # fmt: skip


def _now(reachable: bool, offer: dict[str, Any]) -> str:
    if not reachable:
        return "does not answer"
    if offer.get("closed"):
        return f"closed by {offer['closed']}"
    if not offer["closed_until_at"]:
        return "open"
    why = f": {offer['says']}" if offer.get("says") else ""
    return f"closed until {moment(offer['closed_until_at'])}{why}"


@click.command("offers")
@listed
@talks
def offers(client: Client, as_json: bool, output: str) -> None:
    """List offers: prices, start times, preemption rates, and whether caps hold there."""
    listing = client.get("/v1/offers")

    def draw(wide: bool) -> None:
        columns = ["offer", "term", "GPU", "GPUs/node", "a node's hour", "at most", "decides with", "start"]
        columns += ["a node lasts", "caps"]
        more = ["node", "nodes", "sold by"]
        rows = [
            _offer_row(offer, size, listing["currency"]) + (_more(offer, size) if wide else [])
            for offer in listing["offers"]
            for size in offer["sizes"]
        ]
        table("Offers", columns + (more if wide else []), rows, "No offers.")

    answer(listing, "json" if as_json else output, draw)


def _offer_row(offer: dict[str, Any], size: dict[str, Any], currency: str) -> list[object]:
    return [
        offer["id"], offer["term"], offer["gpu_model"], size["gpus"], money(size["price_per_hour"], currency),
        money(size["most_per_hour"], currency), money(_decisive(offer, size), currency), span(offer["start_ms"]),
        _lasts(offer["loss_ppm_per_hour"]), offer["guarantee"],
    ]  # fmt: skip


def _decisive(offer: dict[str, Any], size: dict[str, Any]) -> int:
    """What is paid for anyway counts only with what one more busy hour costs."""
    return int(size["marginal_per_hour" if offer["term"] in ("owned", "reserved") else "price_per_hour"])


def _lasts(loss_ppm_per_hour: int) -> str:
    """The mean time until a node is reclaimed."""
    return span(1_000_000 * 3_600_000 // loss_ppm_per_hour) if loss_ppm_per_hour else "-"


def _more(offer: dict[str, Any], size: dict[str, Any]) -> list[object]:
    count = "any" if size["count"] is None else size["count"]
    return [size["name"], count, offer["sold_by"]]
