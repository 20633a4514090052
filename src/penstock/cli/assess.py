"""`penstock assess`: what a month of one's own says about use and waits, and what to do. Reads only, but for --html."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.assess_decision import decided, decides, is_asked
from penstock.cli.assess_decision import draw as draw_decision
from penstock.cli.clusters import reaches
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.assess.assessment import Assessment
    from penstock.assess.history import MonthHistory, SourceReading
    from penstock.assess.report import AssessReport

MOST_ROWS = 10  #: of a table; --json has them all
#: What --json has of the decision, if one is asked for.
DECISION = ("ways", "buy_or_rent", "portability", "pilot", "decision", "own_cost", "quote", "prices")


@click.command("assess")
@click.option("--csv", "tables", multiple=True, metavar="FILE", help="A table of jobs; repeatable.")
@click.option("--column", "columns", multiple=True, metavar="FIELD=NAME", help="For --csv: which column holds a field.")
@click.option("--sacct", multiple=True, metavar="FILE", help="What sacct --parsable2 printed; repeatable.")
@click.option("--journal", "journals", multiple=True, metavar="FILE", help="A journal of Penstock; repeatable.")
@click.option("--shadow", "seen", multiple=True, metavar="FILE", help="What shadow --keep wrote; repeatable.")
@reaches
@click.option("--prometheus", metavar="URL", help="A Prometheus server with kube-state-metrics and DCGM.")
@click.option("--prometheus-token", metavar="FILE", help="Bearer token.  [default: $PENSTOCK_PROMETHEUS_TOKEN]")
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=30,
    show_default=True,
    help="How far back the cluster and Prometheus are asked.",
)
@click.option("--from", "since", metavar="TIME", help="Leave out what lies before, like 2026-10-01T00:00:00Z.")
@click.option("--until", metavar="TIME", help="The same for its end, and where the days end.")
@click.option(
    "--time-zone", default="UTC", show_default=True, metavar="ZONE", help="Of times without a zone, and of days."
)
@click.option("--owned-gpus", type=click.IntRange(1, 1_000_000), metavar="N", help="How many GPUs are owned.")
@click.option("--gpu-hour", metavar="AMOUNT", help="What an hour of an owned GPU costs.  [default: by model]")
@click.option("--currency", default="USD", show_default=True, metavar="CODE")
@decides
@click.option("--redact", "hide", is_flag=True, help="Replace names by short hashes.")
@click.option("--demo", is_flag=True, help="Assess a generated month.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool, **how: Any) -> None:
    """Assess a month of your own: GPUs used, waits, demand; read only."""
    from penstock.assess.join import join
    from penstock.assess.prices import DOLLARS, report_currency
    from penstock.assess.report import assess
    from penstock.assess.sources.reading import zone_named
    from penstock.core.units import money

    price = money(how["gpu_hour"]) if how["gpu_hour"] is not None else None
    if price is not None and price < 0:
        raise BadInput(f"--gpu-hour {how['gpu_hour']}: an amount cannot be negative.")
    if not (how["currency"].isascii() and how["currency"].isupper() and len(how["currency"]) == 3):
        raise BadInput(f"--currency '{how['currency']}' is no currency; write it like EUR.")
    from_at, to_at = _instant("--from", how["since"]), _instant("--until", how["until"])
    if from_at is not None and to_at is not None and from_at >= to_at:
        raise BadInput(f"--from {how['since']} is not before --until {how['until']}.")
    joined = join(list(_readings(how)), from_at, to_at)
    history = _hidden(_owning(joined, how["owned_gpus"]), how["hide"])
    zone = zone_named(how["time_zone"])
    decision = decided(history, how, zone) if is_asked(how) else None
    to = DOLLARS if how["rate"] is None else report_currency(how["currency"], how["rate"])
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


def _readings(how: dict[str, Any]) -> "Iterator[SourceReading]":
    from penstock.assess.demo_month import demo_reading, generated_month
    from penstock.assess.sources.journal import read_journal
    from penstock.assess.sources.reading import zone_named
    from penstock.assess.sources.sacct import read_sacct
    from penstock.assess.sources.tables import read_table

    sources = ("tables", "sacct", "journals", "seen", "kubeconfig", "context", "prometheus")
    if how["demo"] == any(how[source] for source in sources):
        raise BadInput(
            "--demo assesses a generated month, and no other source with it."
            if how["demo"]
            else "Name a source: --csv, --sacct, --journal, --shadow, --kubeconfig or --prometheus; or try --demo."
        )
    zone = zone_named(how["time_zone"])
    if how["demo"]:
        yield demo_reading(generated_month())
    yield from (read_journal(where) for where in how["journals"])
    if how["kubeconfig"] or how["context"]:
        yield _of_cluster(how)
    if how["seen"]:
        from penstock.assess.sources.kubernetes import read_seen

        yield from (read_seen(path) for path in how["seen"])
    yield from (read_sacct(path, zone, bounded=bool(how["since"])) for path in how["sacct"])
    yield from (read_table(path, zone, _columns(how["columns"])) for path in how["tables"])
    if how["prometheus"]:
        yield _of_prometheus(how)


def _of_cluster(how: dict[str, Any]) -> "SourceReading":
    from penstock.assess.sources.kubernetes import read_cluster
    from penstock.cli.clusters import ask

    return ask(how, lambda cluster: read_cluster(cluster, how["namespace"], how["days"]))


def _of_prometheus(how: dict[str, Any]) -> "SourceReading":
    from time import time

    from penstock.assess.sources.prometheus import QUERIES, read_prometheus
    from penstock.assess.sources.promql import Prometheus, token_of
    from penstock.cli.terminal import progress
    from penstock.core.units import DAY, HOUR, SECOND

    to_at = _instant("--until", how["until"]) or int(time() * SECOND)
    span = how["days"] * DAY
    server = Prometheus(how["prometheus"], token_of(how["prometheus_token"]))
    try:
        with progress(QUERIES * span // HOUR, "hours of metrics read") as advance:
            return read_prometheus(server, to_at - span, to_at, lambda ms: advance(ms // HOUR))
    finally:
        server.close()


def _instant(option: str, text: str | None) -> int | None:
    from penstock.assess.sources.reading import from_text

    if not text:
        return None
    try:
        return from_text(text)
    except ValueError:
        raise BadInput(f"{option} '{text}' is no time with a zone; write it like 2026-11-01T00:00:00Z.") from None


def _columns(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise BadInput(f"--column {pair}: write it as FIELD=NAME, like submit=SubmitTime.")
    return {field: column for field, _, column in (pair.partition("=") for pair in pairs)}


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
    for title, label, found in (("By team", "team", waits.by_team), ("By width", "GPUs", waits.by_width)):
        rows = [
            [
                row.label or "-",
                row.jobs,
                row.waited,
                span(row.median_ms),
                span(row.p95_ms),
                f"{row.sum_ms / 3_600_000:,.0f} h",
            ]
            for row in found[:MOST_ROWS]
        ]
        if rows:
            table(f"{title}, waits", [label, "jobs", "waited", "median", "p95", "sum"], rows, "")
    click.echo()


def _demand(wanted: dict[str, tuple[float, float, int]], day: str) -> list[object]:
    mean, busiest, above = wanted.get(day, (0.0, 0.0, 0))
    return [f"{mean:,.1f}", f"{busiest:,.0f}", above]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
