"""`python -m bench.forecast`: which forecast of GPUs wanted by hour is the simplest good one, on recorded traces?

    python -m bench.forecast [--fast] [--json] [--traces philly,pai] [--write]

From two weeks on, every twelve hours, each forecaster says P10, P50 and P90 of the demand 1 to 72 hours ahead, by what
was known then. Pinball loss is in percent of the mean demand; coverage is how often the demand was at most the P90.
Kept is the simplest whose loss at P90 (geometric mean over traces) is within 3 % of the best. `--write` keeps a whole
run in bench/forecast.json and makes the tables of docs/forecast.md from it. Models of statsforecast are compared where
it is installed (`pip install statsforecast`).
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.claims_runs import TRACES, demand_by_hour, loads
from bench.forecasters import FIT_FROM_H, FORECASTERS, WEEK_H, Forecaster
from bench.library_forecasts import LIBRARY, MODELS, LibraryModel, installed, library_hours
from penstock.forecast.demand import HourAhead, with_spread

ROOT: Final = Path(__file__).resolve().parents[1]
STORED: Final = ROOT / "bench" / "forecast.json"
PAGE: Final = ROOT / "docs" / "forecast.md"
TABLES: Final = re.compile(r"(?<=<!-- forecasts -->\n).*?(?=<!-- end of forecasts -->)", re.DOTALL)
AHEAD: Final = (1, 3, 6, 12, 24, 48, 72)
EVERY_H: Final = 12
WITHIN: Final = 1.03
SHARES: Final = {"p50": 0.5, "p90": 0.9}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.forecast", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true", help="a forecast every two days instead of every twelve hours")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--traces", default=",".join(TRACES), help="names, with commas [default: all]")
    parser.add_argument(
        "--write", action="store_true", help="keep the result, and write the tables of docs/forecast.md"
    )
    args = parser.parse_args(words)
    names = args.traces.split(",")
    if unknown := [name for name in names if name not in TRACES]:
        parser.error(f"there is no trace {', '.join(unknown)}; there are {', '.join(TRACES)}")
    if args.write and (args.fast or names != list(TRACES)):
        parser.error("--write keeps a whole run: all traces, not --fast")
    if not installed():
        print(f"{LIBRARY} is not installed, so its models are left out.", file=sys.stderr)
    if args.write and not installed():
        parser.error(f"--write keeps a whole run: `pip install {LIBRARY}` first")
    histories = {load.name: demand_by_hour(load.jobs) for load in loads(names, days=None)}
    result = compared(histories, every=4 * EVERY_H if args.fast else EVERY_H)
    if args.write:
        STORED.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        PAGE.write_text(TABLES.sub(lambda _: tables(result), PAGE.read_text("utf-8")), "utf-8")
    print(json.dumps(result, indent=1) if args.json else tables(result).strip())
    return 0


def compared(histories: Mapping[str, Sequence[float]], every: int) -> dict[str, Any]:
    library = installed()
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for forecaster in (*FORECASTERS, *(MODELS if library else ())):
        rows[forecaster.name] = {}
        for name, history in histories.items():
            rows[forecaster.name][name] = scored(history, forecaster, every)
            print(f"{forecaster.name} on {name} done", file=sys.stderr, flush=True)
    hours = {name: len(history) for name, history in histories.items()}
    return {"hours": hours, "library": library, "rows": rows, "kept": kept(rows)}


def scored(history: Sequence[float], forecaster: Forecaster | LibraryModel, every: int) -> dict[str, float]:
    """Losses in percent of the mean demand, all distances ahead alike, and how often the demand was at most P90."""
    forecasts = forecasts_by(forecaster, history)
    losses: dict[str, list[float]] = {share: [] for share in SHARES}
    by_ahead: dict[int, list[float]] = {ahead: [] for ahead in AHEAD}
    covered = []
    for known in range(FIT_FROM_H, len(history), every):
        for hour in forecasts(known, [ahead for ahead in AHEAD if known + ahead <= len(history)]):
            actual = history[known + hour.ahead - 1]
            for share, loss in losses.items():
                loss.append(pinball(actual, getattr(hour, share), SHARES[share]))
            by_ahead[hour.ahead].append(losses["p90"][-1])
            covered.append(actual <= hour.p90)
    mean = sum(history) / len(history)
    scores = {share: 100 * _mean(loss) / mean for share, loss in losses.items()}
    scores["covered"] = 100 * _mean(covered)
    scores |= {f"p90 at {ahead} h": 100 * _mean(loss) / mean for ahead, loss in by_ahead.items()}
    return {what: round(number, 3) for what, number in scores.items()}


def forecasts_by(
    forecaster: Forecaster | LibraryModel, history: Sequence[float]
) -> Callable[[int, list[int]], list[HourAhead]]:
    """(known, hours ahead): what it says then. Ours get their spread in one way; a library says its own."""
    if isinstance(forecaster, LibraryModel):
        return lambda known, ahead: library_hours(forecaster, history[:known], ahead) if ahead else []
    expect = forecaster.expects(history)
    return lambda known, ahead: [with_spread(history[:known], hours, expect, first=WEEK_H) for hours in ahead]


def pinball(actual: float, predicted: float, share: float) -> float:
    return (actual - predicted) * share if actual >= predicted else (predicted - actual) * (1 - share)


def kept(rows: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The first, they stand by simplicity, that is within 3 % of the best at P90."""
    overall = {name: over_traces(by_trace, "p90") for name, by_trace in rows.items()}
    best = min(overall.values())
    return next(name for name, loss in overall.items() if loss <= WITHIN * best)


def over_traces(by_trace: Mapping[str, Mapping[str, float]], what: str) -> float:
    return math.exp(_mean([math.log(max(figures[what], 1e-9)) for figures in by_trace.values()]))


def tables(result: Mapping[str, Any]) -> str:
    """What stands in docs/forecast.md between its two marks."""
    rows, traces = result["rows"], list(result["hours"])
    lines = [
        f"| forecaster | loss at P90 | at P50 | {' | '.join(f'P90, {name}' for name in traces)} | covered by P90 |",
        f"| --- | --: | --: |{' --: |' * len(traces)} --: |",
    ]
    for forecaster in (*FORECASTERS, *(MODELS if result["library"] else ())):
        by_trace = rows[forecaster.name]
        each = " | ".join(f"{by_trace[name]['p90']:.2f}" for name in traces)
        covered = sorted(figures["covered"] for figures in by_trace.values())
        name = f"**{forecaster.name}**" if forecaster.name == result["kept"] else forecaster.name
        lines.append(
            f"| {name}: {forecaster.what} | {over_traces(by_trace, 'p90'):.2f} | {over_traces(by_trace, 'p50'):.2f} | "
            f"{each} | {covered[0]:.0f} to {covered[-1]:.0f} % |"
        )
    best, plain = rows[result["kept"]], rows["last"]
    ahead = [f"| hours ahead | {' | '.join(map(str, AHEAD))} |", f"| --- |{' --: |' * len(AHEAD)}"]
    for name, by_trace in ((result["kept"], best), ("last", plain)):
        cells = " | ".join(f"{over_traces(by_trace, f'p90 at {hours} h'):.2f}" for hours in AHEAD)
        ahead.append(f"| {name}, loss at P90 | {cells} |")
    hours = ", ".join(f"{name} {count:,} hours" for name, count in result["hours"].items())
    library = f"The last {len(MODELS)} rows are models of {LIBRARY} {result['library']}, with its own intervals."
    parts = ["\n".join(lines), *([library] if result["library"] else []), "\n".join(ahead), f"Histories: {hours}."]
    return "\n" + "\n\n".join(parts) + "\n\n"


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / max(1, len(numbers))


if __name__ == "__main__":
    sys.exit(main())
