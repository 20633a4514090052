"""`python -m bench.ahead`: do nodes that are rented ahead of demand save delay at equal cost?

    python -m bench.ahead [--days 10] [--traces philly,pai] [--json]

The middle days of each recorded trace, at as many owned nodes as the load fills, run times unknown (e2), nodes that
start in five minutes (l1). Without pools, three costs of delay make a curve of cost against mean delay. Each kind of
pool is run at $20, and its delay is compared with the curve's at the same cost (log-linear between points). Less than
nothing saved means: the money buys more when the cost of delay is set a little higher instead.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from bench.claims_runs import TRACES, Load, loads
from bench.placement import DEFERRED_PER_GPU_HOUR, nodes_for_load
from penstock.core.model.types import Site, WarmPool
from penstock.policy import hours
from penstock.policy.presets import policy
from penstock.sim.scenario import Scenario, run, yardstick

KNOBS: Final = ("20", "28", "40")
KNOB: Final = "20"
BUDGET: Final = ("org", "team:platform")
DAYTIME: Final = hours.window(8 * 60, 18 * 60)
POOLS: Final[Mapping[str, WarmPool]] = {
    "forecast, up to 4 nodes of 1 GPU": WarmPool(4, 1, BUDGET, forecast=True),
    "forecast, up to 4 nodes of 8 GPUs": WarmPool(4, 8, BUDGET, forecast=True),
    "1 node of 1 GPU, 8-18": WarmPool(1, 1, BUDGET, DAYTIME),
    "4 nodes of 1 GPU, always": WarmPool(4, 1, BUDGET),
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.ahead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=float, default=10.0, help="of each trace's middle [default: 10]")
    parser.add_argument("--traces", default=",".join(TRACES), help="names, with commas [default: all]")
    parser.add_argument("--json", action="store_true", help="print every run as JSON")
    args = parser.parse_args(words)
    rows = [row for load in loads(args.traces.split(","), args.days) for row in measured(load)]
    print(json.dumps(rows, indent=1) if args.json else table(rows))
    return 0


def measured(load: Load) -> list[dict[str, Any]]:
    scenario = yardstick(load.jobs, nodes_for_load(load.jobs), costs="l1", knowledge="e2")
    curve = [_point(load.name, scenario, knob, "") for knob in KNOBS]
    pooled = [_point(load.name, with_pool(scenario, pool), KNOB, name) for name, pool in POOLS.items()]
    for row in pooled:
        at_equal_cost = delay_at(curve, row["cost"])
        row["saved_s"] = None if at_equal_cost is None else round(3600 * (at_equal_cost - row["mean_delay_h"]), 1)
    return [*curve, *pooled]


def with_pool(scenario: Scenario, pool: WarmPool) -> Scenario:
    def pooled(site: Site) -> Site:
        return replace(site, offers=tuple(replace(offer, warm=pool) for offer in site.offers))

    return replace(scenario, sites=tuple(pooled(site) if site.id == "cloud" else site for site in scenario.sites))


def _point(trace: str, scenario: Scenario, knob: str, pool: str) -> dict[str, Any]:
    report, engine = run(scenario, policy("penstock", knob, scenario.jobs))
    print(f"{trace}, ${knob}{', ' + pool if pool else ''}: {report.jobs} jobs", file=sys.stderr, flush=True)
    paid = [account.spent for (scope, _), account in engine.state.ledger.accounts.items() if scope == BUDGET[-1]]
    return {
        "trace": trace,
        "knob": knob,
        "pool": pool,
        "cost": report.cloud_cost + DEFERRED_PER_GPU_HOUR * report.deferred_gpu_hours,
        "idle_cost": sum(paid) / 1e6,
        "mean_delay_h": report.mean_delay_h,
        "cloud_jobs": report.cloud_jobs,
        "launches": report.launches,
        "rented_ahead": engine.state.warm.numbered,
        "unfinished": report.unfinished_jobs,
    }


def delay_at(curve: Sequence[Mapping[str, Any]], cost: float) -> float | None:
    """The mean delay without pools at this cost; None: outside of the curve."""
    points = sorted((row["cost"], row["mean_delay_h"]) for row in curve)
    for (low, slow), (high, fast) in pairwise(points):
        if low <= cost <= high and high > low:
            share = (math.log(cost) - math.log(low)) / (math.log(high) - math.log(low))
            return math.exp(math.log(slow) + share * (math.log(fast) - math.log(slow)))
    return None


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| trace | pool | cost | of it idle | rented ahead | mean delay | saved at equal cost |"]
    lines.append("| --- | --- | --: | --: | --: | --: | --: |")
    for row in rows:
        if row["pool"] or row["knob"] == KNOB:
            saved = row.get("saved_s")
            shown = "" if not row["pool"] else "outside" if saved is None else f"{saved:+.0f} s a job"
            lines.append(
                f"| {row['trace']} | {row['pool'] or 'none'} | ${row['cost']:,.0f} | ${row['idle_cost']:,.0f} | "
                f"{row['rented_ahead']:,} of {row['launches']:,} | {3600 * row['mean_delay_h']:,.0f} s | {shown} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
