"""`penstock simulate`: cost and waits of a trace under a policy, at the sites of a file."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from penstock.cli.trace_options import reads_trace, simulates

if TYPE_CHECKING:
    from penstock.core.model.types import Policy
    from penstock.sim.scenario import Scenario


@click.command("simulate")
@click.argument("trace", required=False)
@reads_trace
@click.option("--nodes", type=click.IntRange(0), help="Number of owned nodes of 8 GPUs.")
@click.option(
    "--policy",
    "name",
    default="penstock",
    show_default=True,
    metavar="NAME|FILE",
    help="Policy: a name that `penstock compare --help` lists, or a policy file (.yaml).",
)
@click.option(
    "--cost-of-delay", metavar="AMOUNT", help="What an hour of delay costs, for one job.  [default: 20, or the file's]"
)
@click.option("--knob", metavar="X", help="The waiting budget of a baseline policy.  [default: 0.25]")
@click.option("--target-delay", metavar="TIME", help="Mean delay to aim at (15m): adjusts the cost of delay.")
@click.option("--target-spend", metavar="AMOUNT", help="Spend to aim at (50000/month): adjusts the cost of delay.")
@click.option("--pace", is_flag=True, help="Release each monthly cap evenly over its month.")
@simulates
@click.option("--sites", metavar="FILE", help="Sites file (offers, prices, caps, faults) instead of --nodes.")
@click.option("--spot", metavar="DIR", help="Recorded spot availability for l2 (spot_index.csv, spot_rle.csv).")
@click.option(
    "--budget", "budgets", multiple=True, metavar="TEAM=AMOUNT", help="A team's monthly cap (30 days); repeatable."
)
@click.option(
    "--journal", metavar="FILE", help="Write every decision to this journal, for `why`, `replay` and `redecide`."
)
@click.option("--jobs", "jobs_file", metavar="FILE", help="Write one line per job: row, start in ms, 1 if it burst.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(**options: Any) -> None:
    """Simulate a trace of jobs: waits, costs, GPU use.

    TRACE is a file of jobs that ran (CSV, sacct output, kubectl JSON), or use --generate.
    """
    from penstock.cli import terminal
    from penstock.sim.scenario import run

    scenario, chosen = _asked(options)
    chosen = replace(chosen, pace=options["pace"])
    if options["jobs_file"]:
        _write(options["jobs_file"], ())  # now: an hour's run must not end in "cannot write"
    with ExitStack() as stack:
        watchers: list[Callable[[Any, Any], None]] = []
        advance = stack.enter_context(terminal.progress(len(scenario.jobs), "jobs submitted"))
        watchers.append(progress_of(advance))
        if options["journal"]:
            from penstock.journal.sqlite import BulkJournal

            journal = stack.enter_context(BulkJournal(options["journal"], group=5_000))
            watchers.append(lambda step, _: journal.append(step))
        starts = _starts(watchers) if options["jobs_file"] else None
        report, engine = run(scenario, chosen, _all(watchers))
    if starts is not None:
        _write_starts(options["jobs_file"], scenario.jobs, starts)
    if options["as_json"]:
        terminal.print_json(report)
    else:
        _table(report, engine)


def _asked(options: dict[str, Any]) -> "tuple[Scenario, Policy]":
    """The jobs and sites, and the policy: of a file, or by its name."""
    from penstock.cli.scenario_options import file_and_scenario, is_policy_file, knob_from, policy_of_file
    from penstock.policy.presets import at_cost_of_delay, policy

    knob = knob_from(options["name"], options["cost_of_delay"], options["knob"])
    if not is_policy_file(options["name"]):
        _, scenario = file_and_scenario(options)
        return scenario, policy(options["name"], knob, scenario.jobs, **_targets(options))
    file, scenario = file_and_scenario(options, options["name"])
    return scenario, at_cost_of_delay(policy_of_file(file, options["name"]), knob, **_targets(options))


def _targets(options: dict[str, Any]) -> dict[str, int]:
    from penstock.config.scalars import Duration, scalar
    from penstock.core.errors import BadInput
    from penstock.core.units import money

    targets: dict[str, int] = {}
    if options["target_delay"]:
        try:
            targets["target_delay_ms"] = int(cast("Duration", scalar(Duration, options["target_delay"])))
        except ValueError as error:
            raise BadInput(f"--target-delay: {error}.") from None
    if options["target_spend"]:
        amount, slash, per = options["target_spend"].partition("/")
        if slash and per != "month":
            raise BadInput(f"--target-spend is an amount a month like 50000/month, not '{options['target_spend']}'.")
        targets["target_spend"] = money(amount)
    return targets


def progress_of(advance: Callable[[int], None]) -> Callable[[Any, Any], None]:
    """Advances a progress bar every 500 jobs."""
    seen = [0]

    def see(_: Any, engine: Any) -> None:
        if engine.state.seq - seen[0] >= 500:
            advance(engine.state.seq - seen[0])
            seen[0] = engine.state.seq

    return see


def _all(watchers: list[Callable[[Any, Any], None]]) -> Callable[[Any, Any], None]:
    def see(step: Any, engine: Any) -> None:
        for watch in watchers:
            watch(step, engine)

    return see


def _starts(watchers: list[Callable[[Any, Any], None]]) -> dict[str, tuple[int, bool]]:
    """Collects when each job first started, and whether it ever burst."""
    from penstock.core.model.events import StartPromised

    starts: dict[str, tuple[int, bool]] = {}

    def see(step: Any, _: Any) -> None:
        for event in step.outputs:
            if type(event) is StartPromised:
                at, rented = starts.get(event.job, (event.at, False))
                starts[event.job] = (at, rented or event.rented)

    watchers.append(see)
    return starts


def _write_starts(path: str, jobs: Any, starts: dict[str, tuple[int, bool]]) -> None:
    """Writes starts as the yardstick does: in milliseconds since the first submission."""
    zero = jobs[0].submit_at
    started = ((row, starts[job.id]) for row, job in enumerate(jobs) if job.id in starts)
    _write(path, (f"{row},{at - zero},{int(rented)}\n" for row, (at, rented) in started))


def _write(path: str, lines: Iterable[str]) -> None:
    from penstock.core.errors import BadInput

    try:
        with open(path, "w") as file:
            file.writelines(lines)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"Cannot write {path}: {getattr(error, 'strerror', None) or error}.") from None


def _table(report: Any, engine: Any) -> None:
    from penstock.cli import terminal
    from penstock.core.units import HOUR
    from penstock.formatting import count, duration, instant, money
    from penstock.policy.presets import BASELINES

    def cash(amount: float) -> str:
        return money(round(amount * 1_000_000), report.currency)

    def hours(value: float) -> str:
        return duration(round(value * HOUR))

    rows = [
        ("jobs succeeded", f"{report.jobs:,}"),
        ("GPU-hours of work", f"{report.gpu_hours:,.0f}"),
        ("owned GPUs in use", f"{report.utilisation:.1%}".replace("%", " %")),
        ("went to rented GPUs", f"{report.cloud_jobs:,} jobs, {report.cloud_gpu_hours:,.0f} GPU-h"),
        ("paid for rented GPUs", cash(report.cloud_cost)),
        ("mean wait", hours(report.mean_wait_h)),
        ("half wait less than", hours(report.p50_wait_h)),
        ("99 % wait less than", hours(report.p99_wait_h)),
        ("longest wait", hours(report.max_wait_h)),
        ("mean delay", hours(report.mean_delay_h)),
        ("longest delay", hours(report.max_delay_h)),
        ("paid while starting", f"{report.start_gpu_hours:,.0f} GPU-h"),
        ("done twice", f"{report.redone_gpu_hours:,.0f} GPU-h"),
        ("rented while owned stood idle", f"{report.rented_while_owned_idle_gpu_hours:,.0f} GPU-h"),
        ("owned work pushed past the end", f"{report.deferred_gpu_hours:,.0f} GPU-h"),
    ]
    if report.refused_jobs:
        rows.append(("refused", count(report.refused_jobs, "job")))
    if report.unfinished_jobs:
        rows.append(("never ran", f"{report.unfinished_jobs:,} jobs: a cap or a rule binds"))
    setting = f"knob {report.knob}" if report.policy in BASELINES else f"cost of delay {report.knob}"
    terminal.table(f"Policy {report.policy}, {setting}", ("", "measured"), rows)
    accounts = engine.state.ledger.accounts
    capped = [
        (scope, period, cash(a.cap / 1e6), cash(a.spent / 1e6), cash((a.cap - a.spent - a.held) / 1e6))
        for (scope, period), a in accounts.items()
        if a.cap is not None
    ]
    if capped:
        terminal.table("Caps", ("scope", "period", "cap", "spent", "left"), capped)
    if report.refused_by:
        refusals = [(row.rule or "wider than all that there is", row.where, row.jobs) for row in report.refused_by]
        terminal.table("Refused", ("because", "where", "jobs"), refusals)
    for short in report.short:
        print(
            f"Money of {short.scope} was short for {count(short.jobs, 'job')}, from {instant(short.first_at)} on: they "
            "waited for owned GPUs, for the next period, or until money was returned."
        )
    print(f"{report.jobs_per_cpu_s:,} jobs per CPU-second, {report.peak_rss_mb:,} MB at the peak.")
