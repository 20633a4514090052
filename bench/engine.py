"""`make bench-engine`: how many jobs the whole engine decides per CPU-second, in how much memory, and how that grows.

Each point runs in a process of its own, so that its memory is its own. Where the yardstick is beside the project, the
same jobs go through it in the same process, and the ratio is printed.

    python -m bench.engine [--sizes 10000,100000,1000000] [--policy compute] [--compiled]
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import compiled

SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).resolve().parents[2] / "shared"))
BUDGET = "0.25"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--policy", default="compute")
    parser.add_argument("--compiled", action="store_true", help="the engine as `make wheel` ships it")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(measure(**json.loads(args.point))))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        if args.compiled:
            os.environ["PYTHONPATH"] = str(compiled.package(Path(folder)))
        show(args)


def show(args: argparse.Namespace) -> None:
    how = "compiled" if args.compiled else "plain"
    print(f"{how}, Python {platform.python_version()} ({platform.python_build()[0]}), {platform.machine()}", flush=True)
    points = [
        {"jobs": int(size), "policy": args.policy, "keep": keep} for size in args.sizes.split(",") for keep in KEEP
    ]
    points += [
        {"trace": str(path), "nodes": nodes, "policy": args.policy, "keep": "memory"} for path, nodes in traces()
    ]
    print(f"{'load':<22}{'jobs':>10}{'steps in':>9}{'jobs/CPU-s':>12}{'yardstick/s':>13}{'ratio':>7}{'peak MB':>9}")
    for point in points:
        row = run_apart(point)
        print(json.dumps(row) if args.json else line(row), flush=True)
    if not SHARED.is_dir():
        print("The yardstick is not beside the project: no ratios.")


KEEP = ("memory", "disk")


def traces() -> list[tuple[Path, int]]:
    known = (("philly", 35), ("helios_venus", 60), ("pai", 78))
    paths = [(SHARED / "data" / "traces" / f"{name}.csv.gz", nodes) for name, nodes in known]
    return [(path, nodes) for path, nodes in paths if path.exists()]


def line(row: dict[str, Any]) -> str:
    yard = f"{row['yardstick_per_cpu_s']:,}" if row["yardstick_per_cpu_s"] else "-"
    ratio = f"{row['ratio']:.1f}" if row["ratio"] else "-"
    return (
        f"{row['load']:<22}{row['jobs']:>10,}{row['keep']:>9}{row['jobs_per_cpu_s']:>12,}{yard:>13}{ratio:>7}"
        f"{row['peak_mb']:>9,}"
    )


def run_apart(point: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.engine", "--point", json.dumps(point)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(policy: str, keep: str, jobs: int = 0, trace: str = "", nodes: int = 0) -> dict[str, Any]:
    """One run at l0 with true run times, as the yardstick runs, with every step kept in memory or in a journal."""
    from penstock.core.engine import Step
    from penstock.journal.sqlite import BulkJournal
    from penstock.policy.presets import policy as named
    from penstock.sim.engine.simulator import opening, simulate, truths
    from penstock.sim.engine.world import World
    from penstock.sim.scenario import yardstick
    from penstock.sim.traces.generate import generate, nodes_for
    from penstock.sim.traces.trace import read

    loaded = read(trace) if trace else generate(jobs)
    scenario = yardstick(loaded.jobs, nodes or nodes_for(loaded))
    chosen = named(policy, BUDGET, scenario.jobs)
    world = World(scenario.sites, truths(scenario.jobs))
    first = opening(scenario.sites, chosen, scenario.jobs[0].submit_at)
    kept: list[Step] = []
    with tempfile.TemporaryDirectory() as folder, BulkJournal(f"{folder}/bench.journal", group=5_000) as journal:
        began = time.process_time()
        if keep == "memory":
            simulate(scenario.jobs, world, first, lambda step, _: kept.append(step))
        else:
            simulate(scenario.jobs, world, first, lambda step, _: journal.append(step))
            journal.commit()
        seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    theirs = reference_seconds(scenario.jobs, policy, scenario.sites[0].offers[0].shapes[0].count or 0)
    count = len(scenario.jobs)
    return {
        "load": Path(trace).name.removesuffix(".csv.gz") if trace else "generated",
        "jobs": count,
        "keep": keep,
        "jobs_per_cpu_s": int(count / seconds),
        "yardstick_per_cpu_s": int(count / theirs) if theirs else 0,
        "ratio": round(seconds / theirs, 1) if theirs else 0,
        "peak_mb": peak,
    }


def reference_seconds(jobs: Any, policy: str, nodes: int) -> float:
    """CPU seconds of the yardstick on the same jobs, the median of five runs; 0 where it is not there."""
    path = SHARED / "bench" / "reference.py"
    if not path.exists():
        return 0.0
    reference = load(path)
    zero = jobs[0].submit_at
    arrive, run = [job.submit_at - zero for job in jobs], [job.run_ms for job in jobs]
    gpus = [job.spec.gpus for job in jobs]
    windows = reference.windows(policy, float(BUDGET), run, gpus)
    backfill, cap = policy not in ("nowait", "constant"), 30 if policy == "compute-q30" else None
    taken = []
    for _ in range(5):  # a fifth of a second each: one alone says little
        began = time.process_time()
        reference.simulate(arrive, run, gpus, windows, nodes, out_of_order=backfill, queue_cap=cap)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
