"""`make bench-placement [FAST=1]`: less cloud money and less delay than the best published policy, on real traces?

For each setting and each of Starburst's own points (its `compute` with the same knowledge and costs, waiting budgets
0.05, 0.1, 0.25 and 0.5): the least cost on our curve at no more mean delay than theirs, divided by their cost.
Log-linear between neighbouring points; a delay that our curve does not reach counts 2. The score is the geometric mean.

    python -m bench.placement [--fast] [--knowledge e2] [--costs l1] [--traces philly,pai] [--unseen] [--half]
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SETTINGS = {"philly": (29, 35, 41), "helios_venus": (50, 60, 70), "pai": (65, 78, 92)}
GENERATED = {"generated": (0,)}  #: where the traces are not beside the project; load 1.0
BUDGETS = ("0.05", "0.1", "0.25", "0.5")
KNOBS = ("2", "3", "5", "7", "10", "14", "20", "28", "40", "56", "80", "110", "160", "220", "320", "450", "640", "900",
         "1300", "2600", "10000")  # fmt: skip
FAST_KNOBS = ("3", "10", "28", "80", "220", "640", "2600")
DEFERRED_PER_GPU_HOUR = 2.50
NOT_REACHED = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="one setting a trace, fewer points, one run a point")
    parser.add_argument("--knowledge", default="e2")
    parser.add_argument("--costs", default="l1")
    parser.add_argument("--policy", help="[default: penstock; with e0 and l0 penstock-known, which may not move jobs]")
    parser.add_argument("--traces", default="")
    parser.add_argument("--unseen", action="store_true", help="only the last third of each trace in time")
    parser.add_argument("--half", action="store_true", help="half of the jobs, keyed by id, without checkpoints")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", help="write every point as JSON")
    parser.add_argument("--pictures", default="build/placement", help="a folder for one picture a setting")
    args = parser.parse_args()
    args.policy = args.policy or ("penstock-known" if (args.knowledge, args.costs) == ("e0", "l0") else "penstock")
    began = time.time()
    common = {"knowledge": args.knowledge, "costs": args.costs, "unseen": args.unseen, "half": args.half}
    settings = chosen(args.traces, args.fast)
    runs = points(settings, args.policy, args.fast, common)
    print(f"Python {platform.python_version()}, {args.knowledge}/{args.costs}, {len(runs)} runs", flush=True)
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(run_point, runs, chunksize=1))
        bounds = dict(
            zip(settings, pool.map(bound_of, [{**common, "trace": t, "nodes": n} for t, n in settings]), strict=True)
        )
    report(rows, settings, args.policy, bounds)
    draw(rows, settings, args.policy, bounds, Path(args.pictures))
    speed = statistics.median(row["jobs_per_cpu_s"] for row in rows)
    print(f"{time.time() - began:.0f} s, {speed:,.0f} jobs per CPU-second")
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1))


def chosen(names: str, fast: bool) -> list[tuple[str, int]]:
    known = SETTINGS if (SHARED / "data" / "traces").is_dir() else GENERATED
    if known is GENERATED:
        print("The traces are not beside the project: generated load instead.")
    wanted = names.split(",") if names else list(known)
    return [
        (name, nodes)
        for name in wanted
        for nodes in (known[name][len(known[name]) // 2 :][:1] if fast else known[name])
    ]


def points(settings: list[tuple[str, int]], policy: str, fast: bool, common: dict[str, Any]) -> list[dict[str, Any]]:
    """Each point of ours three times with the knob moved within 2 %, since a schedule is chaotic."""
    nudges = (1.0,) if fast else (0.98, 1.0, 1.02)
    runs = []
    for trace, nodes in settings:
        here = {"trace": trace, "nodes": nodes, **common}
        runs += [{**here, "policy": "compute", "knob": budget, "group": budget} for budget in BUDGETS]
        runs.append({**here, "policy": "nowait", "knob": "0", "group": "0"})
        for knob in FAST_KNOBS if fast else KNOBS:
            runs += [{**here, "policy": policy, "knob": f"{float(knob) * n:.4f}", "group": knob} for n in nudges]
    return runs


def run_point(point: dict[str, Any]) -> dict[str, Any]:
    from penstock.policy.presets import policy
    from penstock.sim.scenario import run, yardstick

    trace_jobs = jobs(point["trace"], point["unseen"], point["half"])
    nodes = point["nodes"] or nodes_for_load(trace_jobs)
    scenario = yardstick(
        trace_jobs, nodes, costs=point["costs"], knowledge=point["knowledge"], zones=zones(point, trace_jobs)
    )
    result, engine = run(scenario, policy(point["policy"], point["knob"], scenario.jobs))
    cost = result.cloud_cost + DEFERRED_PER_GPU_HOUR * result.deferred_gpu_hours
    shown = ("mean_delay_h", "p99_delay_h", "max_delay_h", "moves", "cloud_jobs", "utilisation", "jobs_per_cpu_s",
             "rented_while_owned_idle_gpu_hours", "redone_gpu_hours")  # fmt: skip
    del engine
    return {**point, "cost": cost, **{name: getattr(result, name) for name in shown}}


@cache
def jobs(trace: str, unseen: bool, half: bool) -> Any:
    from penstock.sim.engine.chance import uniform
    from penstock.sim.scenario import checkpointed
    from penstock.sim.traces.generate import generate
    from penstock.sim.traces.trace import read

    if trace == "generated":
        trace_jobs = list(generate(20_000).jobs)
    else:
        trace_jobs = checkpointed(read(str(SHARED / "data" / "traces" / f"{trace}.csv.gz")).jobs)
    if unseen:
        first, last = trace_jobs[0].submit_at, trace_jobs[-1].submit_at
        trace_jobs = [job for job in trace_jobs if job.submit_at >= first + (last - first) * 2 // 3]
    if half:
        without = [uniform("checkpoints", job.id) < 0.5 for job in trace_jobs]
        trace_jobs = [
            replace(job, spec=replace(job.spec, checkpoint_every_ms=None)) if no else job
            for job, no in zip(trace_jobs, without, strict=True)
        ]
    return trace_jobs


def nodes_for_load(trace_jobs: Any) -> int:
    from penstock.sim.traces.generate import nodes_for
    from penstock.sim.traces.trace import Trace

    return nodes_for(Trace(tuple(trace_jobs), {}))


def zones(point: dict[str, Any], trace_jobs: Any) -> Any:
    if point["costs"] != "l2" or not (SHARED / "data" / "spot").is_dir():
        return None
    from penstock.sim.engine.spot import recorded_zones

    until = 2 * (trace_jobs[-1].submit_at + max(job.run_ms for job in trace_jobs))
    return recorded_zones(str(SHARED / "data" / "spot"), "2023-02-15", 1, until)


def bound_of(point: dict[str, Any]) -> Any:
    """What no schedule can beat, as corners (mean delay in hours, cost)."""
    from penstock.sim.analysis.compare import Case, measure
    from penstock.sim.scenario import yardstick

    trace_jobs = jobs(point["trace"], point["unseen"], point["half"])
    nodes = point["nodes"] or nodes_for_load(trace_jobs)
    scenario = yardstick(
        trace_jobs, nodes, costs=point["costs"], knowledge=point["knowledge"], zones=zones(point, trace_jobs)
    )
    case = Case(point["trace"], scenario, nodes, point["costs"], point["knowledge"])
    (compared,) = measure([case], [], workers=1)
    return compared.bound


def draw(
    rows: list[dict[str, Any]], settings: list[tuple[str, int]], policy: str, bounds: dict[Any, Any], folder: Path
) -> None:
    """Cost against delay, one picture a setting: ours, the best published policy, and the bound."""
    from penstock.sim.charts.chart import Curve, Mark
    from penstock.sim.charts.comparison import Comparison, svg

    folder.mkdir(parents=True, exist_ok=True)
    for trace, nodes in settings:
        here = [row for row in rows if (row["trace"], row["nodes"]) == (trace, nodes)]
        at_once = next(row for row in here if row["policy"] == "nowait")
        theirs = sorted((row["mean_delay_h"], row["cost"]) for row in here if row["policy"] == "compute")
        ours = [(delay, cost) for delay, cost, _ in our_curve([row for row in here if row["policy"] == policy])]
        lines = ((policy, ours), ("compute", theirs))
        picture = Comparison(
            title=f"{trace}, {nodes} nodes of 8 GPUs",
            lede=f"{at_once['knowledge']}/{at_once['costs']}: what the cloud bills, against the mean delay of a job.",
            curves=[Curve(name, name, [Mark(delay, cost) for delay, cost in points]) for name, points in lines],
            bound=bounds[trace, nodes].corners if bounds[trace, nodes] else (),
            no_wait=Mark(at_once["mean_delay_h"], at_once["cost"]),
        )
        (folder / f"{trace}-{nodes}.svg").write_text(svg(picture))
    print(f"Pictures: {folder}")


def closed(curve: list[tuple[float, float, float]], delay: float, at_once: float, bound: Any) -> float:
    """The share of the attainable saving: of what separates bursting at once from the bound at this delay."""
    return (at_once - cost_at(curve, delay)) / (at_once - bound.at(delay)) if bound else math.nan


def report(rows: list[dict[str, Any]], settings: list[tuple[str, int]], policy: str, bounds: dict[Any, Any]) -> None:
    cells: list[tuple[float, float]] = []
    print(
        f"{'setting':<18}"
        + "".join(f"{'P=' + budget:>9}" for budget in BUDGETS)
        + f"{'geo':>8}{'closed at 0.1':>15}{'longest at P=0.1':>18}"
    )
    for trace, nodes in settings:
        here = [row for row in rows if (row["trace"], row["nodes"]) == (trace, nodes)]
        curve = our_curve([row for row in here if row["policy"] == policy])
        theirs = {row["knob"]: row for row in here if row["policy"] == "compute"}
        ratios = [cost_at(curve, theirs[b]["mean_delay_h"]) / theirs[b]["cost"] for b in BUDGETS]
        ratios = [min(ratio, NOT_REACHED) for ratio in ratios]
        cells += [(ratio, theirs[b]["cost"]) for ratio, b in zip(ratios, BUDGETS, strict=True)]
        near = min(curve, key=lambda point: abs(point[0] - theirs["0.1"]["mean_delay_h"]))
        text = "".join(f"{ratio:>9.3f}" for ratio in ratios)
        longest = f"{near[2]:.1f} h ({theirs['0.1']['max_delay_h']:.0f})"
        at_once = next(row["cost"] for row in here if row["policy"] == "nowait")
        share = closed(curve, theirs["0.1"]["mean_delay_h"], at_once, bounds[trace, nodes])
        print(f"{trace + ' ' + str(nodes):<18}{text}{geometric(ratios):>8.3f}{share:>15.1%}{longest:>18}")
    weighted = sum(ratio * cost for ratio, cost in cells) / sum(cost for _, cost in cells)
    worst = max(ratio for ratio, _ in cells)
    print(
        f"score {geometric([ratio for ratio, _ in cells]):.3f}, dollar-weighted {weighted:.3f}, worst cell {worst:.3f}"
    )


def our_curve(rows: list[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """(mean delay, cost, longest), the median of each knob's runs, by delay."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    curve = [
        tuple(statistics.median(row[name] for row in group) for name in ("mean_delay_h", "cost", "max_delay_h"))
        for group in groups.values()
    ]
    return sorted(curve)


def cost_at(curve: list[tuple[float, float, float]], delay: float) -> float:
    """The least cost at no more delay: of any point left of it, or between the two around it."""
    best = min((cost for at, cost, _ in curve if at <= delay), default=math.inf)
    for (a, cost_a, _), (b, cost_b, _) in pairwise(curve):
        if a < delay < b and cost_b < cost_a:
            share = (delay - a) / (b - a)
            best = min(best, math.exp(math.log(cost_a) * (1 - share) + math.log(cost_b) * share))
    return best


def geometric(ratios: list[float]) -> float:
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


if __name__ == "__main__":
    main()
