"""`python -m bench.assess_month`: the CPU that a whole report of one large month takes (docs/assess.md).

    python -m bench.assess_month [--jobs 80000] [--load 0.7] [--view whole] [--compiled] [--json]

A generated month with measured use, so that every way is replayed; as it is, or cut or thinned as in `bench.assess`.
Counted is what `penstock assess --html` does once its sources are read: joining, every replay, the page. CPU seconds of
the process and its children, by getrusage. `--compiled` takes the engine as `make wheel` ships it.
"""

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench import compiled
from bench.assess import SEEN_SHARE, VIEWS, shortened, thinned
from penstock.assess.assessment import DecisionOptions, assess
from penstock.assess.demo_month import GeneratedMonth, demo_reading, generated_month
from penstock.assess.history import MonthHistory
from penstock.assess.join import join
from penstock.assess.page import page
from penstock.core import engine

ROOT: Final = Path(__file__).resolve().parents[1]


def main(words: Sequence[str] | None = None) -> int:
    args = parsed(words)
    if args.compiled:
        return compiled.again("bench.assess_month", sys.argv[1:] if words is None else words)
    result = measured(args.jobs, args.load, args.view)
    print(json.dumps(result) if args.json else as_text(result))
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.assess_month", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=80_000)
    parser.add_argument("--load", type=float, default=0.7, help="demand by what is owned; more makes longer queues")
    parser.add_argument("--view", choices=VIEWS, default="whole")
    parser.add_argument("--compiled", action="store_true", help="the engine as `make wheel` ships it")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def measured(jobs: int, load: float, view: str) -> dict[str, Any]:
    month = generated_month(jobs=jobs, load=load)
    reading = demo_reading(month)
    before = cpu_s()
    history = seen(join([reading]), month, view)
    assessment = assess(history, DecisionOptions())
    text = page(assessment)
    return {
        "engine": "compiled" if not (engine.__file__ or "").endswith(".py") else "plain",
        "jobs": len(history.jobs),
        "owned_gpus": month.owned_gpus,
        "load": load,
        "view": view,
        "mean_wait_h": round(sum(month.waits_ms) / len(month.waits_ms) / 3_600_000, 2),
        "cpu_s": round(cpu_s() - before, 1),
        "most_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "page_kb": len(text) // 1024,
        "answer": assessment.decision.answer,
    }


def seen(whole: MonthHistory, month: GeneratedMonth, view: str) -> MonthHistory:
    if view == "cut":
        first_at, last_at = month.jobs[0].submitted_at, month.jobs[-1].submitted_at
        return shortened(whole, first_at + int((last_at - first_at) * SEEN_SHARE), cut=True)
    return thinned(whole, 0) if view == "thinned" else whole


def cpu_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def as_text(result: dict[str, Any]) -> str:
    return (
        f"{result['jobs']:,} jobs on {result['owned_gpus']:,} GPUs ({result['view']}, mean wait"
        f" {result['mean_wait_h']} h): {result['cpu_s']:.0f} s of CPU with the {result['engine']} engine,"
        f" {result['most_mb']:,} MB at most, a page of {result['page_kb']:,} kB."
    )


if __name__ == "__main__":
    sys.exit(main())
