"""`python -m bench.claims`: the field's headline claims on recorded traces, through the live engine (docs/claims.md).

    python -m bench.claims [--row NAME] [--days 21] [--fast] [--json] [--traces philly,pai] [--compiled] [--write]
                            [--resume FILE]

`--days` takes so many days from the middle of each trace, `--fast` four. `--write` keeps the result in
bench/claims.json and makes the tables of docs/claims.md from it. `--resume FILE` keeps each run there, so that a
command that was stopped goes on.
"""

import argparse
import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import compiled
from bench.claims_rows import BY_NAME, OWNED, OWNED_CHEAP, OWNED_DEAR, ROWS, Row, verdict
from bench.claims_runs import FAST_DAYS, TRACES, Load, Runner, loads, spot_shares

ROOT: Final = Path(__file__).resolve().parents[1]
STORED: Final = ROOT / "bench" / "claims.json"
PAGE: Final = ROOT / "docs" / "claims.md"
FIGURES: Final = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[\w -]+) -->\n).*?(?P<end><!-- end of figures -->)", re.DOTALL
)
MOST_DAYS: Final = 3_650
OWNED_PRICES: Final = (OWNED_CHEAP, OWNED, OWNED_DEAR)
BY_PRICE: Final = ("peak", "split")  #: rows whose verdict may follow the price of an owned GPU-hour
PRICED: Final = "H100"  #: the GPU model whose spot prices are shown beside the row about spot


def main(words: Sequence[str] | None = None) -> int:
    args = parsed(words)
    if args.compiled:
        return compiled.again("bench.claims", sys.argv[1:] if words is None else words)
    chosen = [BY_NAME[args.row]] if args.row else list(ROWS)
    try:
        runner = Runner(lambda line: print(line, file=sys.stderr, flush=True), args.resume and Path(args.resume))
    except (OSError, ValueError, TypeError) as error:
        print(f"{args.resume} does not hold runs of this command ({error}); name another file.", file=sys.stderr)
        return 2
    result = measured(runner, chosen, loads(args.traces, args.days), args.days)
    if args.write:
        keep(result)
    print(json.dumps(result, indent=1) if args.json else as_text(result))
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.claims", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", choices=list(BY_NAME), help="one claim [default: all]")
    parser.add_argument("--days", type=float, help="so many days from the middle of each trace [default: all]")
    parser.add_argument("--fast", action="store_const", dest="days", const=FAST_DAYS, help="as --days 4")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--traces", default=",".join(TRACES), help="names, with commas [default: all]")
    parser.add_argument("--compiled", action="store_true", help="the engine as `make wheel` ships it")
    parser.add_argument("--write", action="store_true", help="keep the result, and write the tables of docs/claims.md")
    parser.add_argument("--resume", metavar="FILE", help="keep each run there, and do none again that it has")
    args = parser.parse_args(words)
    args.traces = args.traces.split(",")
    if unknown := [name for name in args.traces if name not in TRACES]:
        parser.error(f"there is no trace {', '.join(unknown)}; there are {', '.join(TRACES)}")
    if args.days is not None and not 1 <= args.days <= MOST_DAYS:
        parser.error(f"--days is 1 to {MOST_DAYS}, not {args.days:g}")
    if args.write and (args.row or args.days == FAST_DAYS or args.traces != list(TRACES)):
        parser.error("--write keeps a whole run: all rows, all traces, not --fast")
    return args


def measured(runner: Runner, chosen: Sequence[Row], chosen_loads: Sequence[Load], days: float | None) -> dict[str, Any]:
    """Every figure of every row and load. The loads go one by one, so that rows share runs."""
    rows: dict[str, dict[str, dict[str, float]]] = {row.name: {} for row in chosen}
    for load in chosen_loads:
        for row in chosen:
            figures = row.measure(runner, load)
            rows[row.name][load.name] = {what: round(number, 2) for what, number in figures.items()}
            print(f"{load.name}: {row.name} done", file=sys.stderr, flush=True)
    sizes = {load.name: len(load.jobs) for load in chosen_loads}
    runs = [run for (name, jobs, _), run in runner.done.items() if sizes.get(name) == jobs]
    return {
        "python": platform.python_version(),
        "days": days,
        "jobs": sizes,
        "runs": len(runs),
        "unfinished_jobs": sum(run.unfinished for run in runs),
        f"spot_by_on_demand_{PRICED}": {cloud: round(n, 2) for cloud, n in (spot_shares(PRICED) or {}).items()},
        "rows": rows,
    }


def as_text(result: Mapping[str, Any]) -> str:
    return "\n\n".join(_text_of(BY_NAME[name], by_load) for name, by_load in result["rows"].items())


def _text_of(row: Row, by_load: Mapping[str, Mapping[str, float]]) -> str:
    wide = max(len(what) for figures in by_load.values() for what in figures)
    lines = [f"{row.name}: {row.claim}: {verdict(row, by_load)}", f"{'':<{wide}}" + _cells(by_load)]
    lines += [
        f"{what:<{wide}}" + "".join(f"{shown(what, figures[what]):>14}" for figures in by_load.values())
        for what in next(iter(by_load.values()))
    ]
    return "\n".join(lines)


def _cells(names: Mapping[str, object]) -> str:
    return "".join(f"{name:>14}" for name in names)


# --- the page --------------------------------------------------------------------------------------------------------


def keep(result: Mapping[str, Any]) -> None:
    STORED.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    PAGE.write_text(with_figures(PAGE.read_text("utf-8"), result), "utf-8")


def with_figures(page: str, result: Mapping[str, Any]) -> str:
    """The page with what this result has to say, between each pair of marks."""
    return FIGURES.sub(lambda mark: f"{mark['begin']}{figures_of(mark['name'], result)}{mark['end']}", page)


def figures_of(name: str, result: Mapping[str, Any]) -> str:
    if name == "summary":
        return summary(result)
    if name == "jobs":
        jobs = ", ".join(f"{trace} {count:,}" for trace, count in result["jobs"].items())
        part = f"{result['days']:g} days from the middle of each trace" if result["days"] else "the whole traces"
        return f"Measured on {part}, in {result['runs']} runs of the engine. Jobs: {jobs}.\n"
    if name == "owned prices":
        return owned_prices(result)
    if name == "spot prices":
        shares = result[f"spot_by_on_demand_{PRICED}"]
        listed = ", ".join(f"{cloud} {share:.2f}" for cloud, share in shares.items()) or "not at hand"
        return f"The median of spot by on-demand price of {PRICED} nodes, by cloud: {listed}.\n"
    return section(BY_NAME[name], result["rows"][name], result["days"])


def summary(result: Mapping[str, Any]) -> str:
    lines = ["| row | claim | measured, over traces | verdict |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        by_load = result["rows"][row.name]
        lines.append(f"| [{row.name}](#{row.name}) | {row.claim} | {spread(by_load)} | {verdict(row, by_load)} |")
    return "\n".join(lines) + "\n"


def spread(by_load: Mapping[str, Mapping[str, float]]) -> str:
    """The first figure, from the least to the most."""
    heads = sorted(next(iter(figures.values())) for figures in by_load.values())
    return f"{heads[0]:.1f} to {heads[-1]:.1f} %" if len(heads) > 1 else f"{heads[0]:.1f} %"


def owned_prices(result: Mapping[str, Any]) -> str:
    """The verdict of a row for each price of an owned GPU-hour."""
    lines = [f"| row | {' | '.join(f'at ${price:.2f}' for price in OWNED_PRICES)} |"]
    lines.append(f"| --- |{' --- |' * len(OWNED_PRICES)}")
    for name in BY_PRICE:
        row, by_load = BY_NAME[name], result["rows"][name]
        cells = []
        for price in OWNED_PRICES:
            heads = {load: {"": at_price(figures, price)} for load, figures in by_load.items()}
            cells.append(f"{verdict(row, heads)} ({spread(heads)})")
        lines.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def at_price(figures: Mapping[str, float], price: float) -> float:
    """The first figure is at the price that all rows take."""
    if price == OWNED:
        return next(iter(figures.values()))
    return next(number for what, number in figures.items() if what.startswith(f"At ${price:.2f} an owned GPU-hour"))


def section(row: Row, by_load: Mapping[str, Mapping[str, float]], days: float | None) -> str:
    lines = [f"Claim: **{row.claim}**. It {verdict(row, by_load)}.", ""]
    lines += [f"    {command(row, days)}", ""]
    lines += [f"| | {' | '.join(by_load)} |", f"| --- |{' --: |' * len(by_load)}"]
    lines += [
        f"| {what} | {' | '.join(shown(what, figures[what]) for figures in by_load.values())} |"
        for what in next(iter(by_load.values()))
    ]
    return "\n".join(lines) + "\n"


def command(row: Row, days: float | None) -> str:
    return f"python -m bench.claims --row {row.name}" + (f" --days {days:g}" if days else "")


def shown(what: str, number: float) -> str:
    """Hours with two digits, percents with one, nodes with none."""
    if what.startswith("Nodes"):
        return f"{number:.0f}"
    return f"{number:.2f}" if " h" in what[-25:] and not what.endswith("%") else f"{number:.1f}"


if __name__ == "__main__":
    sys.exit(main())
