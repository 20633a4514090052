"""`penstock policy diff`: the same jobs under two policy files, and what changes for whom."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.sim.analysis.outcomes import Outcomes, Story, Sums
    from penstock.sim.analysis.policy_diff import Changed, Estimates, PolicyDiff, Setting, Side

MOST_TEAMS: Final = 12  #: of the table; JSON has all
MOST_RULES: Final = 12
HOW: Final = {
    "refused": "Refused.",
    "stopped": "Stopped before its work was done.",
    "queued": "Still queued at the end.",
}
COLUMNS: Final = (
    *("team", "policy", "jobs", "cost", "mean wait", "p95 wait", "mean delay", "p95 delay"),
    *("refused", "stopped", "queued", "denied", "capped", "data moved"),
)


@click.command("diff")
@click.argument("old")
@click.argument("new")
@click.option("--journal", metavar="FILE", help="The jobs of this journal, with the run times that it knows.")
@click.option("--trace", metavar="FILE", help="The jobs of a trace: CSV, sacct output or kubectl JSON.")
@click.option("--generate", type=click.IntRange(1), metavar="JOBS", help="Generate this many jobs.")
@click.option("--format", "form", metavar="F", help="Trace format: penstock, csv, sacct or kubernetes.")
@click.option("--column", "columns", multiple=True, metavar="FIELD=NAME", help="For csv: which column; repeatable.")
@click.option("--sites", metavar="FILE", help="Sites file.  [default: the journal's sites, or --nodes]")
@click.option("--nodes", type=click.IntRange(0), metavar="N", help="Number of owned nodes of 8 GPUs.")
@click.option(
    "--costs",
    type=click.Choice(["l0", "l1", "l2"]),
    default="l1",
    show_default=True,
    help="Without sites: l0 GPU-hours; l1 instances and starts; l2 also spot, data, egress.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    help="Runs of each policy: more than one shows how far the answer rests on estimates.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(old: str, new: str, **options: Any) -> None:
    """Compare two policy files on the same jobs.

    OLD and NEW are policy files. The live engine decides every job under each: cost, waits, refusals and data moved,
    per team, and the jobs that fared most differently, each with both reasons.
    """
    from penstock.cli import terminal
    from penstock.sim.analysis.policy_diff import as_record, diff, variants_of

    file, setting = _setting(options, (old, new))
    sides = [_side(file, path) for path in (old, new)]
    runs = 2 * len(variants_of(options["seeds"], setting.knowledge))
    with terminal.progress(runs * len(setting.scenario.jobs), "jobs simulated") as advance:
        compared = diff(setting, *sides, seeds=options["seeds"], advance=advance)
    if options["as_json"]:
        terminal.print_json(as_record(compared))
    else:
        draw(compared)


def _setting(options: dict[str, Any], policies: tuple[str, str]) -> "tuple[SitesFile, Setting]":
    """The sites as they are without a policy file, and the jobs there."""
    from penstock.cli.scenario_options import file_and_scenario
    from penstock.core.errors import BadInput
    from penstock.sim.analysis.policy_diff import Setting

    if sum(bool(options[name]) for name in ("journal", "trace", "generate")) != 1:
        raise BadInput("Say which jobs: one of --journal FILE, --trace FILE or --generate JOBS.")
    if options["journal"]:
        return _recorded(options)
    file, scenario = file_and_scenario({**options, "knowledge": "e2"}, like=policies)
    # A policy file's data rules hold in place of the sites file's; those that the benchmark makes up stay.
    rules = () if options["sites"] else scenario.data_rules
    return file, Setting(replace(scenario, caps=(), data_rules=rules), knowledge="e2")


def _recorded(options: dict[str, Any]) -> "tuple[SitesFile, Setting]":
    from penstock.config import SitesFile, read_sites
    from penstock.core.errors import BadInput
    from penstock.journal.open import read
    from penstock.sim.analysis.journal_jobs import estimated_jobs, history
    from penstock.sim.analysis.policy_diff import Setting
    from penstock.sim.scenario import Scenario

    if options["nodes"] is not None:
        raise BadInput("--nodes is for a trace; a journal has its own sites, and --sites FILE names others.")
    month = history(read(options["journal"]), options["journal"])
    file = read_sites(options["sites"]) if options["sites"] else SitesFile(month.currency, month.sites, month.data)
    scenario = Scenario(
        jobs=estimated_jobs(month),
        sites=file.sites,
        zones={},
        data=file.data or month.data,
        currency=file.currency,
        seed=options["seed"],
    )
    return file, Setting(scenario, month)


def _side(file: "SitesFile", path: str) -> "Side":
    from penstock.cli.scenario_options import under_policy
    from penstock.live.config_facts import policy_of
    from penstock.sim.analysis.policy_diff import Side

    governed = under_policy(file, path)
    return Side(path, replace(policy_of(governed), name=path), governed.caps)


# --- for people -------------------------------------------------------------------------------------------------------


def draw(compared: "PolicyDiff") -> None:
    from penstock.cli.output import safe, table

    title = f"{compared.jobs:,} jobs under {safe(compared.old)} (old) and {safe(compared.new)} (new)"
    table(title, COLUMNS, list(_rows(compared)), "")
    _draw_rules(compared.old_outcomes, compared.new_outcomes)
    _draw_caps(compared.old_outcomes, compared.new_outcomes)
    click.echo()
    if compared.changed:
        click.echo(
            f"The {len(compared.changed)} jobs that fared most differently:"
            if len(compared.changed) > 1
            else "The job that fared differently:"
        )
    else:
        click.echo("No job fares differently.")
    for changed in compared.changed:
        _draw_job(changed, compared.currency)
    click.echo()
    for line in _about_estimates(compared.estimates, compared.currency):
        click.echo(line)
    for why, jobs in compared.left_out.items():
        click.echo(f"{jobs:,} jobs are left out: {why}.")
    click.echo(f"Simulated in {compared.seconds:,.0f} s.")


def _rows(compared: "PolicyDiff") -> Iterator[list[object]]:
    """Everybody first, then the teams whose rent changes most."""
    from penstock.sim.analysis.outcomes import Sums

    old, new, currency = compared.old_outcomes, compared.new_outcomes, compared.currency
    yield from _pair("all", old.everybody, new.everybody, currency)
    none = Sums()
    pairs = {team: (old.teams.get(team, none), new.teams.get(team, none)) for team in {**old.teams, **new.teams}}
    if len(pairs) == 1:
        return
    by_change = sorted(pairs, key=lambda team: -abs(pairs[team][1].cost - pairs[team][0].cost))
    for team in by_change[:MOST_TEAMS]:
        yield from _pair(team, *pairs[team], currency)
    if len(pairs) > MOST_TEAMS:
        yield [f"{len(pairs) - MOST_TEAMS} more teams: --json", *[""] * (len(COLUMNS) - 1)]


def _pair(team: str, old: "Sums", new: "Sums", currency: str) -> Iterator[list[object]]:
    yield [team, "old", *_cells(old, currency)]
    yield ["", "new", *_cells(new, currency)]


def _cells(sums: "Sums", currency: str) -> list[object]:
    times = (sums.mean_wait_h, sums.p95_wait_h, sums.mean_delay_h, sums.p95_delay_h)
    counts = (sums.refused, sums.stopped, sums.unfinished, sums.denied, sums.capped)
    return [sums.jobs, _cash(sums.cost, currency), *map(_hours, times), *counts, _size(sums.moved_bytes)]


def _draw_rules(old: "Outcomes", new: "Outcomes") -> None:
    """A rule that both files have is one row, with both places."""
    jobs: dict[str, list[int]] = {}
    places: dict[str, dict[str, None]] = {}
    for k, outcomes in enumerate((old, new)):
        for denied in outcomes.rules:
            jobs.setdefault(denied.rule, [0, 0])[k] += denied.jobs
            places.setdefault(denied.rule, {})[denied.where] = None
    counts = {(rule, ", ".join(places[rule])): both for rule, both in jobs.items()}
    _draw_counts("Jobs that a rule denied something", ("rule", "where"), counts, MOST_RULES)


def _draw_caps(old: "Outcomes", new: "Outcomes") -> None:
    counts = {(scope,): [old.caps.get(scope, 0), new.caps.get(scope, 0)] for scope in {**old.caps, **new.caps}}
    _draw_counts("Jobs that a cap held back", ("cap",), counts, MOST_RULES)


def _draw_counts(title: str, keys: tuple[str, ...], counts: dict[Any, list[int]], most: int) -> None:
    from penstock.cli.output import table

    if counts:
        click.echo()
        ordered = sorted(counts.items(), key=lambda pair: (-max(pair[1]), pair[0]))
        table(title, (*keys, "old", "new"), [(*key, *both) for key, both in ordered[:most]], "")
        if len(ordered) > most:
            click.echo(f"{len(ordered) - most} more: --json")


def _draw_job(changed: "Changed", currency: str) -> None:
    from penstock.cli.output import safe
    from penstock.formatting import count

    known = f", run time estimated: it was {changed.estimated}" if changed.estimated else ""
    about = f"{changed.team}, {count(changed.gpus, 'GPU')}, {_hours(changed.run_h)}{known}"
    click.echo(safe(f"- {changed.job} ({about})"))
    for name, story in (("old", changed.old), ("new", changed.new)):
        click.echo(safe(f"    {name}: {_told(story, currency)}"))


def _told(story: "Story", currency: str) -> str:
    if story.delay_h is None:
        how = HOW[story.outcome]
    else:
        how = f"Ends on {story.offer}, rent {_cash(story.cost, currency)}, delay {_hours(story.delay_h)}."
    return " ".join((how, *story.reasons))


def _about_estimates(estimates: "Estimates", currency: str) -> Iterator[str]:
    if estimates.jobs:
        kinds = ", ".join(f"{jobs:,} {kind}" for kind, jobs in estimates.by_kind.items())
        yield (
            f"Estimates: the run time of {estimates.jobs:,} jobs is not known ({kinds}). They are "
            f"{_percent(estimates.share_of_jobs)} of the jobs, {_percent(estimates.share_of_old_cost)} of the old "
            f"cost and {_percent(estimates.share_of_new_cost)} of the new."
        )
    else:
        yield "Estimates: every job's run time is known."
    if estimates.range is None:
        yield "One run of each policy; --seeds 5 also shows the range over other draws and other knowledge."
        return
    low, high = estimates.range.cost
    slow, slower = estimates.range.mean_delay_h
    yield (
        f"Over {estimates.runs} runs of each policy the cost changes by {_change(_cash(low, currency))} to "
        f"{_change(_cash(high, currency))}, the mean delay by {_change(_hours(slow))} to {_change(_hours(slower))}, "
        f"and refused jobs by {estimates.range.refused[0]:+,} to {estimates.range.refused[1]:+,}."
    )


def _change(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _cash(amount: float, currency: str) -> str:
    from penstock.core.units import MICRO
    from penstock.formatting import money

    return money(round(amount * MICRO), currency)


def _hours(hours: float) -> str:
    from penstock.core.units import HOUR
    from penstock.formatting import duration

    return duration(round(hours * HOUR))


def _size(size_bytes: int, units: Sequence[str] = ("B", "kB", "MB", "GB", "TB", "PB")) -> str:
    size, unit = float(size_bytes), 0
    while size >= 1000 and unit < len(units) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {units[unit]}" if unit and size < 100 else f"{size:,.0f} {units[unit]}"
