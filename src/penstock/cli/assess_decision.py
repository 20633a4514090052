"""Options and output of `penstock assess` for the decision: ways, buy or rent, pilot, go or no-go. `assess` calls it.

The month is replayed several times, so this happens only if somebody asks: with --html, or with --decide.
"""

from collections.abc import Callable
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.assess.assessment import Assessment, DecisionOptions
    from penstock.assess.history import MonthHistory

F = TypeVar("F", bound=Callable[..., Any])
OPTIONS = (
    click.option("--decide", is_flag=True, help="Replay the month in several ways, and say go or no-go."),
    click.option("--html", metavar="FILE", help="The same, and write the whole report as one page."),
    click.option("--sites", metavar="FILE", help="Sites file: what could be rented.  [default: our price table]"),
    click.option("--cloud", default="", metavar="NAME", help="Of the price table.  [default: the median cloud]"),
    click.option("--rate", metavar="X", help="How many of --currency a US dollar is, for the price table."),
    click.option("--own-cost", multiple=True, metavar="KEY=VALUE",
                 help="Of an owned GPU: price, life, watts, pue, kwh, space, people, hour; repeatable."),
    click.option("--cost-of-delay", default="20", show_default=True, metavar="AMOUNT", help="For one job and hour."),
    click.option("--cap", metavar="AMOUNT", help="On rent, in 30 days.  [default: a fifth of what is owned costs]"),
    click.option("--buy", type=click.IntRange(1, 1_000_000), metavar="N", help="GPUs to buy.  [default: a fifth more]"),
    click.option("--grid", type=click.IntRange(0, 5_000), metavar="G", help="Grams of CO2 for a kWh at home."),
    click.option("--cloud-grid", type=click.IntRange(0, 5_000), metavar="G", help="The same where you rent."),
)  # fmt: skip


def decides(command: F) -> F:
    """Adds the options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def is_asked(how: dict[str, Any]) -> bool:
    return bool(how["decide"] or how["html"])


def decided(history: "MonthHistory", how: dict[str, Any], zone: tzinfo) -> "Assessment":
    """The whole assessment; writes the page if somebody wants one."""
    from penstock.assess.assessment import assess, work
    from penstock.cli.terminal import progress

    if how["html"]:
        _write(how["html"], "", "a")  # now: minutes of replays must not end in "cannot write"
    options = _options(how)
    with progress(work(history), "jobs replayed") as advance:
        assessment = assess(history, options, advance, zone)
    if how["html"]:
        from penstock.assess.page import page

        _write(how["html"], page(assessment, made_up=how["demo"]))
    return assessment


def draw(assessment: "Assessment", path: str | None) -> None:
    from penstock.assess.sections import ReportWords, buy_words, pilot_words, savings_words
    from penstock.cli.output import safe, table

    say, cost = ReportWords(assessment), float(assessment.ways.setting.cost_of_delay)
    rows = [
        [
            way.label,
            say.money(way.measured.money),
            say.money(way.measured.rent),
            say.hours(way.measured.mean_delay_h),
            say.hours(way.measured.p95_delay_h),
            say.money(way.total(cost)),
        ]
        for way in assessment.ways.ways
    ]
    heads = ["way", "money", "rent", "mean delay", "95 % within", "with delay priced"]
    table("Ways, each replayed on this month", heads, rows, "")
    for line in (savings_words(assessment, say), *assessment.ways.left_out, *assessment.ways.notes):
        click.echo(f"  {line}")
    for title, lines in (("Buy or rent", buy_words(assessment, say)), ("Pilot", pilot_words(assessment, say))):
        click.echo("\n".join(["", title, *(f"  {safe(line)}" for line in lines)]))
    click.echo()
    click.echo(" ".join(assessment.decision.says))
    click.echo(f"The whole report is in {path}." if path else "Write the whole report with --html FILE.")


def _options(how: dict[str, Any]) -> "DecisionOptions":
    from dataclasses import replace

    from penstock.assess.assessment import DecisionOptions
    from penstock.assess.prices import report_currency

    costs = tuple(how["own_cost"]) + ((f"hour={how['gpu_hour']}",) if how["gpu_hour"] is not None else ())
    options = DecisionOptions(
        own_cost=costs,
        cloud=how["cloud"],
        cost_of_delay=how["cost_of_delay"],
        cap=how["cap"],
        buy=how["buy"],
        grid=how["grid"],
        cloud_grid=how["cloud_grid"],
    )
    if not how["sites"]:
        return replace(options, currency=report_currency(how["currency"], how["rate"]))
    if how["cloud"]:
        raise BadInput("--sites says what is rented; leave out --cloud.")
    from secrets import token_bytes

    from penstock.assess.portable import burst_report_of
    from penstock.assess.redact import redact_sites
    from penstock.config import read_sites
    from penstock.core.model.types import STANDING

    file = read_sites(how["sites"])
    rented = tuple(site for site in file.sites if any(offer.term not in STANDING for offer in site.offers))
    currency = report_currency(file.currency, how["rate"])
    if how["hide"]:  # no manifest is left that the file's maps could judge
        return replace(options, currency=currency, rented=redact_sites(rented, token_bytes(32)))
    return replace(options, currency=currency, rented=rented, burst_report=burst_report_of(file))


def _write(path: str, text: str, mode: str = "w") -> None:
    try:
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"Cannot write {path}: {getattr(error, 'strerror', None) or error}.") from None
