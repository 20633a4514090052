"""`penstock compare`: which policy costs least for how much delay, and how far is that from the best possible?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.trace_options import reads_trace, simulates

if TYPE_CHECKING:
    from penstock.sim.analysis.compare import Case, Compared, FilePolicy

POLICIES = "nowait,constant,compute,compute-q30,power,penstock-no-moves,penstock"
ASKED = "penstock-known, where run times are known, if asked"
SETTINGS = ("knobs", "costs_of_delay")
FILES = ("compare.json", "compare.html", "compare.svg", "compare.png")


@click.command("compare")
@click.argument("traces", nargs=-1, metavar="[TRACE]...")
@reads_trace
@click.option("--nodes", type=click.IntRange(0), metavar="N", help="Number of owned nodes of 8 GPUs.")
@click.option(
    "--load", type=float, metavar="X", help="Instead of --nodes: demand / owned capacity.  [default if generated: 1]"
)
@click.option(
    "--policies",
    metavar="A,B,...",
    help=f"Policies to compare, with nowait as the baseline; {ASKED}.  [default: {POLICIES}]",
)
@click.option(
    "--policy",
    "policy_files",
    multiple=True,
    metavar="FILE",
    help="A policy file to compare, too, at its own cost of delay; repeatable.",
)
@click.option("--knobs", metavar="X,Y,...", help="Waiting budgets to try.  [default: 0.02,0.05,0.1,0.25,0.5,1]")
@click.option(
    "--cost-of-delay",
    "costs_of_delay",
    metavar="X,Y,...",
    help="For penstock: what an hour of delay costs, to try.  [default: 640,220,80,28,10,3]",
)
@simulates
@click.option("--sites", metavar="FILE", help="Sites file (offers, prices, faults) instead of --nodes.")
@click.option("--spot", metavar="DIR", help="Recorded spot availability for l2 (spot_index.csv, spot_rle.csv).")
@click.option("--out", default="penstock-compare", show_default=True, metavar="DIR", help="Output folder.")
@click.option("--no-bound", is_flag=True, help="Skip the lower bound, which needs the extra `compare`.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Number of processes.  [default: one per CPU]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(**options: Any) -> None:
    """Compare policies on the same jobs, side by side.

    Each policy runs over its one setting: the cost of delay for penstock's own, for the others a waiting budget, the
    mean patience as a share of the mean run time. DIR gets compare.html, .svg, .png (with the extra `plots`) and
    .json; with several traces one folder for each.
    """
    import os
    import time

    from penstock.cli import terminal
    from penstock.extras import install
    from penstock.sim.analysis.compare import can_bound, lines_for, lines_of, measure, tasks_of

    policies = (options["policies"] or POLICIES).split(",")
    lines = lines_for(policies, *((options[key] or "").split(",") if options[key] else () for key in SETTINGS))
    cases = _cases(options)
    files = [_file_policy(path, cases[0], options) for path in options["policy_files"]]
    costs_of_delay = (options["costs_of_delay"] or "").split(",") if options["costs_of_delay"] else ()
    lines += [line for file in files for line in lines_of(file, costs_of_delay)]
    folders = _folders(options["out"], [case.name for case in cases])
    with_bound = not options["no_bound"] and can_bound()
    began = time.perf_counter()
    with terminal.progress(len(list(tasks_of(len(cases), lines, with_bound))), "points measured") as advance:
        workers = options["workers"] or os.cpu_count() or 1
        comparisons = measure(cases, lines, files=files, workers=workers, with_bound=with_bound, advance=advance)
    run = run_facts(workers, time.perf_counter() - began)
    written = [write(compared, folder, run) for compared, folder in zip(comparisons, folders, strict=True)]
    if options["as_json"]:
        terminal.print_json({"out": options["out"], "traces": [record(compared, run) for compared in comparisons]})
    else:
        _tell(comparisons, written)
    if not with_bound and not options["no_bound"]:
        click.echo(f"The lower bound is left out: it needs numpy. Install it: {install('compare')}", err=True)


def write(compared: "Compared", folder: Path, run: dict[str, Any]) -> list[Path]:
    """Writes numbers, page and picture; the PNG only with the extra `plots`."""
    import msgspec

    from penstock.core.errors import BadInput
    from penstock.sim.analysis.compare import pictured
    from penstock.sim.charts import comparison

    drawing = pictured(compared, _foot(compared, run))
    drawn = comparison.svg(drawing)
    numbers = msgspec.json.format(msgspec.json.encode(record(compared, run)), indent=2) + b"\n"
    contents = (numbers, comparison.page(drawing).encode(), drawn.encode(), comparison.png(drawn))
    made = [(folder / name, content) for name, content in zip(FILES, contents, strict=True) if content is not None]
    try:
        (folder / FILES[-1]).unlink(missing_ok=True)  # an older run's picture must not stand beside today's numbers
        for path, content in made:
            path.write_bytes(content)
    except OSError as error:
        raise BadInput(f"Cannot write to {folder}: {error.strerror}.") from None
    return [path for path, _ in made]


def record(compared: "Compared", run: dict[str, Any]) -> dict[str, Any]:
    from penstock.sim.analysis.compare import as_record

    return as_record(compared) | run


def print_table(results: Sequence["Compared"]) -> None:
    """One table for all traces; the trace is named where there are several."""
    from penstock.cli import terminal
    from penstock.sim.analysis.compare import COLUMNS, row

    several = len(results) > 1
    heads = ["trace"] * several + [column.head[:1].lower() + column.head[1:] for column in COLUMNS]
    rows = [
        [compared.case.name] * several + [row(compared, point)[column.key] for column in COLUMNS]
        for compared in results
        for point in compared.points
    ]
    terminal.table(_heading(results), heads, rows)


def folder_for(path: Path) -> Path:
    """Creates the output folder if needed. Call it before a long run, so that a refusal costs no work."""
    import os

    from penstock.core.errors import BadInput

    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"Cannot write to {path}: {why}. Name another folder with --out.") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadInput(f"Cannot write to {path}: Permission denied. Name another folder with --out.")
    return path


def _cases(options: dict[str, Any]) -> list["Case"]:
    from penstock.cli.scenario_options import scenario_from
    from penstock.core.errors import BadInput
    from penstock.sim.analysis.compare import Case, owned_gpus
    from penstock.sim.scenario import GPUS_PER_NODE

    traces = options["traces"]
    if bool(traces) == bool(options["generate"]):
        raise BadInput("Name one or more traces of jobs, or make some up with --generate JOBS.")
    cases = []
    for name, trace in zip(_names(traces) or ["generated"], traces or [""], strict=True):
        scenario = scenario_from({**options, "trace": trace})
        nodes = owned_gpus(scenario) // GPUS_PER_NODE
        cases.append(Case(name, scenario, nodes, options["costs"], options["knowledge"]))
    return cases


def _file_policy(path: str, case: "Case", options: dict[str, Any]) -> "FilePolicy":
    """A policy file, as it goes with the sites that all cases have."""
    from penstock.cli.scenario_options import policy_of_file, under_policy
    from penstock.config import SitesFile, read_sites
    from penstock.sim.analysis.compare import FilePolicy

    scenario = case.scenario
    sites = options["sites"]
    file = under_policy(read_sites(sites) if sites else SitesFile(scenario.currency, scenario.sites), path)
    return FilePolicy(policy_of_file(file, path), file.caps, file.data_rules)


def _names(traces: Sequence[str]) -> list[str]:
    """Names of traces, for titles and folders: file names without their extensions, made unique."""
    import re

    names: list[str] = []
    for trace in traces:
        stem = "standard-input" if trace == "-" else Path(trace).name.partition(".")[0]
        plain = re.sub(r"[^\w-]+", "-", stem).strip("-") or "trace"
        same = sum(name == plain or name.startswith(f"{plain}-") for name in names)
        names.append(f"{plain}-{same + 1}" if plain in names else plain)
    return names


def _folders(out: str, names: Sequence[str]) -> list[Path]:
    base = folder_for(Path(out))
    return [base] if len(names) == 1 else [folder_for(base / name) for name in names]


def run_facts(workers: int, seconds: float) -> dict[str, Any]:
    import platform

    from penstock import __version__
    from penstock.core.engine import VERSION

    return {
        "version": __version__,
        "engine_version": VERSION,
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}",
        "workers": workers,
        "seconds": round(seconds, 1),
    }


def _foot(compared: "Compared", run: dict[str, Any]) -> str:
    return (
        f"Simulated by Penstock {run['version']} (engine {run['engine_version']}), {run['interpreter']}, "
        f"seed {compared.case.scenario.seed}, {run['seconds']:.0f} s."
    )


def _heading(compared: Sequence["Compared"]) -> str:
    from penstock.sim.analysis.compare import owned_gpus

    if len(compared) > 1:
        return "Cost against delay"
    case = compared[0].case
    return f"{case.name}: {len(case.scenario.jobs):,} jobs, {owned_gpus(case.scenario):,} owned GPUs"


def _tell(results: Sequence["Compared"], written: Sequence[Sequence[Path]]) -> None:
    from penstock.sim.analysis.compare import lede

    print_table(results)
    for compared, paths in zip(results, written, strict=True):
        click.echo()
        click.echo(f"{compared.case.name}: " * (len(results) > 1) + lede(compared))
        click.echo(f"Written: {', '.join(map(str, paths))}")
