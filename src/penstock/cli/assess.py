"""`penstock assess`: what a month of one's own says about use and waits, and what to do. Reads only, but for --html."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.assess_decision import decided, decides, is_asked
from penstock.cli.assess_decision import draw as draw_decision
from penstock.cli.assess_sources import SOURCES, check_currency, joined_history, named, reads
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.assess.assessment import Assessment
    from penstock.assess.history import MonthHistory
    from penstock.assess.report import AssessReport

MOST_ROWS = 10  #: of a table; --json has them all
#: What --json has of the decision, if one is asked for.
DECISION = ("ways", "buy_or_rent", "portability", "pilot", "decision", "own_cost", "quote", "prices")


@click.command("assess")
@reads
@click.option("--owned-gpus", type=click.IntRange(1, 1_000_000), metavar="N", help="How many GPUs are owned.")
@click.option("--gpu-hour", metavar="AMOUNT", help="What an hour of an owned GPU costs.  [default: by model]")
@click.option("--currency", default="USD", show_default=True, metavar="CODE")
@decides
@click.option("--redact", "hide", is_flag=True, help="Replace names by short hashes.")
@click.option("--demo", is_flag=True, help="Assess a generated month.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool, **how: Any) -> None:
    """Assess a month of your own: GPUs used, waits, demand; read only."""
    from penstock.assess.demo_month import demo_reading, generated_month
    from penstock.assess.own_cost import own_cost
    from penstock.assess.owned import owned_model
    from penstock.assess.prices import DOLLARS, amount_of, report_currency
    from penstock.assess.report import assess
    from penstock.assess.sources.reading import zone_named

    price = amount_of("--gpu-hour", how["gpu_hour"]) if how["gpu_hour"] is not None else None
    check_currency(how["currency"])
    if how["demo"] == bool(named(how)):
        raise BadInput(
            "--demo assesses a generated month, and no other source with it."
            if how["demo"]
            else f"Name a source: {SOURCES}; or try --demo."
        )
    joined = joined_history(how, [demo_reading(generated_month())] if how["demo"] else [])
    history = _hidden(_owning(joined, how["owned_gpus"]), how["hide"])
    zone = zone_named(how["time_zone"])
    decision = decided(history, how, zone) if is_asked(how) else None
    to = DOLLARS if how["rate"] is None else report_currency(how["currency"], how["rate"])
    if price is None and how["own_cost"]:
        price = own_cost(owned_model(history), how["own_cost"], to).gpu_hour
    plain = partial(assess, history, gpu_hour=price, currency=how["currency"], zone=zone, to=to)
    report = plain() if decision is None else decision.report  # the same price of a GPU-hour on every page
    if as_json:
        _print_json(report, decision)
    else:
        _draw(report)
        if decision is not None:
            draw_decision(decision, how["html"])
        if not how["html"]:
            click.echo("Nothing was written anywhere.")


def _owning(history: "MonthHistory", gpus: int | None) -> "MonthHistory":
    from dataclasses import replace

    from penstock.assess.history import OwnedGpus

    if gpus is None:
        return history
    return replace(history, owned=(OwnedGpus(history.from_at, gpus),), owned_by="--owned-gpus")


def _hidden(history: "MonthHistory", hide: bool) -> "MonthHistory":
    from secrets import token_bytes

    from penstock.assess.redact import redact

    return redact(history, token_bytes(32)) if hide else history


def _print_json(report: "AssessReport", decision: "Assessment | None") -> None:
    from dataclasses import asdict

    from penstock.assess import sentences
    from penstock.cli.terminal import print_json

    says = {
        "not_seen": sentences.not_seen(report),
        "use": sentences.use(report),
        "waits": sentences.waits(report),
        "coming": sentences.coming(report),
    }
    more = {} if decision is None else {name: getattr(decision, name) for name in DECISION}
    print_json({**asdict(report), "says": says, **more})


# --- tables -----------------------------------------------------------------------------------------------------------


def _draw(report: "AssessReport") -> None:
    from penstock.assess import sentences

    _say("What could not be seen, and how sure the rest is", sentences.not_seen(report))
    _say("Use", sentences.use(report))
    _draw_use(report)
    _say("Waits", sentences.waits(report))
    _draw_waits(report)
    _say("What is coming", sentences.coming(report))
    _draw_coming(report)


def _say(title: str, lines: list[str]) -> None:
    from penstock.cli.output import safe

    click.echo("\n".join([title, *(f"  {safe(line)}" for line in lines), ""]))


def _draw_use(report: "AssessReport") -> None:
    from penstock.cli.output import money, table

    use = report.use
    rows = [[row.label or "-", f"{row.allocated:,.0f}", _percent(row.used_share)] for row in use.by_team[:MOST_ROWS]]
    table("By team, GPU-hours", ["team", "allocated", "used"], rows, "No GPU was allocated.")
    wanted = {day: (mean, busiest, above) for day, mean, busiest, above in report.waits.demand.by_day}
    days = [
        [row.label, f"{row.allocated:,.0f}", _percent(row.used_share), *_demand(wanted, row.label)]
        for row in use.by_day
    ]
    columns = ["day", "allocated", "used", "GPUs wanted", "in the busiest hour", "hours above owned"]
    table("By day: GPU-hours, and demand", columns, days, "")
    idle = [
        [row.job, row.team or "-", row.gpus, f"{row.idle_gpu_hours:,.0f}", money(row.cost, report.currency)]
        for row in use.idle[:MOST_ROWS]
    ]
    if idle:
        table("Idle allocations, the dearest", ["job", "team", "GPUs", "idle GPU-h", "cost"], idle, "")
    click.echo()


def _draw_waits(report: "AssessReport") -> None:
    from penstock.cli.output import span, table

    waits = report.waits
    for title, label, groups in (("By team", "team", waits.by_team), ("By width", "GPUs", waits.by_width)):
        rows = [
            [
                row.label or "-",
                row.jobs,
                row.waited,
                span(row.median_ms),
                span(row.p95_ms),
                f"{row.sum_ms / 3_600_000:,.0f} h",
            ]
            for row in groups[:MOST_ROWS]
        ]
        if rows:
            table(f"{title}, waits", [label, "jobs", "waited", "median", "p95", "sum"], rows, "")
    click.echo()


def _draw_coming(report: "AssessReport") -> None:
    from penstock.cli.output import table

    rows = [
        [
            row.label,
            f"{row.mean:,.0f}",
            f"{row.busiest:,.0f}",
            f"{row.busiest_p90:,.0f}",
            row.hours_above,
            row.hours_above_p90,
        ]
        for row in report.coming.by_day
    ]
    if rows:
        heads = ["day", "GPUs wanted", "busiest hour", "at P90", "hours above owned", "at P90"]
        table("By day, GPUs wanted", heads, rows, "")
        click.echo()


def _demand(wanted: dict[str, tuple[float, float, int]], day: str) -> list[object]:
    mean, busiest, above = wanted.get(day, (0.0, 0.0, 0))
    return [f"{mean:,.1f}", f"{busiest:,.0f}", above]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
