"""`penstock pilot`: record which recurring job is burst first, with its baseline; later the same figures, and a
verdict. Reads what `penstock assess` reads; `start` writes one file.
"""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.assess_sources import SOURCES, check_currency, instant_of, joined_history, named, reads
from penstock.core.errors import BadInput
from penstock.policy.presets import DEFAULT_VALUE

if TYPE_CHECKING:
    from penstock.assess.history import MonthHistory
    from penstock.assess.pilot_follow import PilotOutcome, PilotRuns, PilotStart

MOST_NAMED = 10  #: recurring jobs in a sentence
FILE = click.option("--file", "path", default="pilot.json", show_default=True, metavar="FILE", help="The pilot's file.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("pilot")
def command() -> None:
    """Follow the job that is burst first: its baseline, and the same figures after."""


@command.command("start")
@reads
@click.option("--job", metavar="TEAM/NAME", help="The recurring job.  [default: the one that assess names]")
@click.option("--at", metavar="TIME", help="When the pilot begins.  [default: where the source ends]")
@click.option("--gpu-hour", metavar="AMOUNT", help="What an hour of an owned GPU costs.  [default: by model]")
@click.option("--rent", metavar="AMOUNT", help="The same of a rented GPU.  [default: our price table's median cloud]")
@click.option("--cost-of-delay", default=DEFAULT_VALUE, show_default=True, metavar="AMOUNT", help="For a run's hour.")
@click.option("--currency", default="USD", show_default=True, metavar="CODE")
@FILE
@JSON
def start(path: str, as_json: bool, **how: Any) -> None:
    """Record the pilot's job and its baseline in a file."""
    from penstock.assess.pilot_file import write_pilot
    from penstock.cli.terminal import print_json

    if not named(how):
        raise BadInput(f"Name a source of the baseline: {SOURCES}.")
    check_currency(how["currency"])
    begun = _begun(joined_history(how), how)
    write_pilot(path, begun)
    if as_json:
        print_json(begun)
        return
    _print(_told(begun, path))


@command.command("report")
@reads
@click.option("--job", metavar="TEAM/NAME", help="What the job is called here.  [default: as in the file]")
@FILE
@JSON
def report(path: str, as_json: bool, **how: Any) -> None:
    """Compare the runs since the start with the baseline, and say a verdict.

    Without a source it reads the journal of this machine's Penstock.
    """
    from penstock.assess.pilot_file import read_pilot
    from penstock.assess.pilot_follow import follow, runs_of
    from penstock.cli.terminal import print_json

    begun = read_pilot(path)
    if not named(how):
        how["journals"] = (_own_journal(),)
    history = joined_history(how)
    if history.calendar != begun.calendar:
        raise BadInput(f"One of {path} and this source has dates and the other counts from its own zero.")
    after = runs_of(history, how["job"] or begun.job, _sources(history), begun.started_at, None)
    outcome = follow(begun, after)
    if as_json:
        print_json(outcome)
    else:
        _print(outcome.says)
        _draw(outcome)


def _begun(history: "MonthHistory", how: dict[str, Any]) -> "PilotStart":
    from penstock.assess.owned import owned_model
    from penstock.assess.pilot_follow import PilotStart
    from penstock.assess.prices import amount_of

    at = instant_of("--at", how["at"])
    started_at = history.to_at if at is None else at
    job, before = _baseline(history, how["job"], started_at)
    own, rent = _prices(owned_model(history), how)
    return PilotStart(
        job=job,
        started_at=started_at,
        calendar=history.calendar,
        currency=how["currency"],
        own_gpu_hour=own,
        rent_gpu_hour=rent,
        cost_of_delay=amount_of("--cost-of-delay", how["cost_of_delay"]),
        before=before,
    )


def _baseline(history: "MonthHistory", job: str | None, started_at: int) -> "tuple[str, PilotRuns]":
    from penstock.assess.pilot import pilot_of
    from penstock.assess.pilot_follow import runs_of
    from penstock.assess.portable import portability_of

    if job is None:
        portability = portability_of(history, None)
        tied = portability.tied if portability else frozenset[str]()
        chosen = pilot_of(history, tied, 0, portability is not None)
        if chosen.pilot is None:
            raise BadInput(f"{chosen.why_none} Name one yourself with --job.")
        job = chosen.pilot.candidate.key
    before = runs_of(history, job, _sources(history), None, started_at)
    if not before.runs and not before.left_out:
        keys = sorted({past.key for past in history.jobs if past.key})
        known = ", ".join(keys[:MOST_NAMED]) + (f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else "")
        raise BadInput(f"There is no run of '{job}' before the start; recurring jobs are {known or 'not to be seen'}.")
    return job, before


def _prices(model: str, how: dict[str, Any]) -> tuple[int, int]:
    """Of an owned and of a rented GPU-hour."""
    from penstock.assess.gpus import UNKNOWN
    from penstock.assess.own_cost import default_cost
    from penstock.assess.prices import amount_of, quote

    given = [how["gpu_hour"], how["rent"]]
    if None in given and how["currency"] != "USD":
        raise BadInput(f"Our tables of prices are in US dollars; say --gpu-hour and --rent in {how['currency']}.")
    rent = quote(model or UNKNOWN)
    if how["rent"] is None and rent is None:
        raise BadInput(f"The price table has no {model}; say with --rent what a rented GPU costs.")
    own = default_cost(model).gpu_hour if given[0] is None else amount_of("--gpu-hour", given[0])
    return own, rent.on_demand if given[1] is None and rent else amount_of("--rent", given[1])


def _own_journal() -> str:
    import os

    from penstock.cli.client import home

    where = os.environ.get("PENSTOCK_JOURNAL") or str(home() / "journal.db")
    if "://" not in where and not os.path.exists(where):
        raise BadInput(f"There is no journal {where}; name a source: {SOURCES}.")
    return where


def _sources(history: "MonthHistory") -> str:
    return " and ".join(cover.source for cover in history.coverage)


# --- words and a table ------------------------------------------------------------------------------------------------


def _told(begun: "PilotStart", path: str) -> list[str]:
    from penstock.assess.pilot_follow import LEAST_RUNS
    from penstock.formatting import count, instant

    runs = len(begun.before.runs)
    lines = [f"The pilot is {begun.job}, from {instant(begun.started_at)} on. Its baseline has {count(runs, 'run')}."]
    lines += [f"Not counted: {number:,} {why}." for why, number in begun.before.left_out]
    if runs < LEAST_RUNS:
        lines.append(f"That is too few for a verdict: it takes {LEAST_RUNS} runs that ended on each side.")
    return [*lines, f"Written to {path}. Later: penstock pilot report --file {path}, with a source of the runs since."]


def _print(lines: "list[str] | tuple[str, ...]") -> None:
    from penstock.cli.output import safe

    click.echo("\n".join(safe(line) for line in lines))


def _draw(outcome: "PilotOutcome") -> None:
    from penstock.cli.output import table

    rows = []
    for label, figure in (
        ("wait, h", outcome.wait_h),
        ("time to model, h", outcome.to_model_h),
        (f"cost of a run, {outcome.currency}", outcome.cost),
        (f"with delay priced, {outcome.currency}", outcome.total),
    ):
        sides = [
            ["-", "-", "-"] if side is None else [side.runs, f"{side.mean:,.2f}", f"{side.p10:,.2f} to {side.p90:,.2f}"]
            for side in (figure.before, figure.after)
        ]
        ends = "-" if figure.low is None or figure.high is None else f"{figure.low:+,.2f} to {figure.high:+,.2f}"
        change = "-" if figure.change is None else f"{figure.change:+,.2f}"
        rows.append([label, *sides[0], *sides[1], change, ends])
    heads = ["figure", "runs", "before", "p10 to p90", "runs", "since", "p10 to p90", "change", "90 %"]
    click.echo()
    table("Each figure, by run", heads, rows, "")
