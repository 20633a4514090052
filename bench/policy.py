"""`make bench-policy [FAST=1] [COMPILED=1]`: what a policy costs: verdicts a second, decisions with and without rules,
and `policy diff`.

Each point runs in a process of its own. The ratio of decisions with and without a policy is of runs that take turns, so
that a busy machine slows both.

    python -m bench.policy [--fast] [--compiled] [--jobs 80000]
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import compiled

if TYPE_CHECKING:
    from penstock.core.model.governance import Governance
    from penstock.core.model.types import Site

RULES: Final = 200
OFFERS: Final = 500
FEW_RULES: Final = 30
TURNS: Final = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="fewer jobs, fewer turns")
    parser.add_argument("--compiled", action="store_true", help="the engine as `make wheel` ships it")
    parser.add_argument("--jobs", type=int, help="of `policy diff`  [default: 80,000; fast: 4,000]")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        name, _, given = args.point.partition("=")
        print(json.dumps(POINTS[name](int(given))))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        if args.compiled:
            says(
                "The compiled engine is taken from the cache, or built: a minute or two of gcc where nothing else runs."
            )
            os.environ["PYTHONPATH"] = str(compiled.package(Path(folder)))
        show(args)


def says(words: str) -> None:
    """Beside the figures: what takes so long."""
    print(words, file=sys.stderr, flush=True)


def show(args: argparse.Namespace) -> None:
    how = "compiled" if args.compiled else "plain"
    print(f"{how}, Python {platform.python_version()}, {platform.machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
    result = run_apart("verdicts", 1 if args.fast else 4)
    print(f"{result['rules']} rules, {result['offers']} offers: {result['per_s']:,} verdicts per CPU-second, "
          f"{result['conditions_per_s']:,} conditions", flush=True)  # fmt: skip
    result = run_apart("decisions", 2_000 if args.fast else 10_000)
    print(f"{result['jobs']:,} jobs, {FEW_RULES} rules: {result['without_s']:.2f} CPU-s without a policy, "
          f"{result['with_s']:.2f} with it: {result['ratio']:.3f} times", flush=True)  # fmt: skip
    result = run_apart("diff", args.jobs or (4_000 if args.fast else 80_000))
    print(f"policy diff of {result['jobs']:,} jobs: {result['seconds']:.0f} s, {result['cpu_s_per_10k']:.1f} CPU-s for "
          f"10,000 jobs under both policies, {result['peak_mb']:,} MB in each process")  # fmt: skip


def run_apart(point: str, given: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.policy", "--point", f"{point}={given}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{point} ended with {done.returncode}; its own words are above.")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


# --- the points -------------------------------------------------------------------------------------------------------


def verdicts(shapes: int) -> dict[str, Any]:
    """The worst case: nothing is denied, so that each offer asks every rule."""
    from penstock.core.decide.rules import Candidate
    from penstock.core.model.types import JobSpec, Policy
    from penstock.policy.rules import PolicyRules

    policy = Policy("bench", governance=governance(RULES))
    sites = many_sites(OFFERS)
    rules = PolicyRules()
    asked = [
        Candidate(JobSpec(8, team=f"team-{k}", job_class="training"), site, offer, (), policy)
        for k in range(shapes)
        for site in sites
        for offer in site.offers
    ]
    assert rules.verdict(asked[0]).allowed  # compiled from here on
    began = time.process_time()
    allowed = sum(rules.verdict(candidate).allowed for candidate in asked)
    seconds = time.process_time() - began
    assert allowed == len(asked)
    per_s = len(asked) / seconds
    return {"rules": RULES, "offers": OFFERS, "per_s": int(per_s), "conditions_per_s": int(per_s * RULES)}


def decisions(jobs: int) -> dict[str, Any]:
    """The same trace in turns; with a policy of 30 rules that deny nothing, so that the same is decided."""
    from penstock.core.engine import Engine
    from penstock.policy.presets import policy
    from penstock.policy.rules import PolicyRules
    from penstock.sim.engine.simulator import opening, simulate, truths
    from penstock.sim.engine.world import World
    from penstock.sim.scenario import yardstick
    from penstock.sim.traces.generate import generate, nodes_for

    trace = generate(jobs)
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l1", knowledge="e2")
    plain = policy("penstock", "20", scenario.jobs)
    ruled = replace(plain, governance=governance(FEW_RULES))
    taken: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * TURNS):
        with_rules = turn % 2 == 1
        world = World(scenario.sites, truths(scenario.jobs))
        first = opening(scenario.sites, ruled if with_rules else plain, scenario.jobs[0].submit_at)
        began = time.process_time()
        simulate(scenario.jobs, world, first, lambda *_: None, Engine(PolicyRules()))
        taken[with_rules].append(time.process_time() - began)
    without, having = statistics.median(taken[False]), statistics.median(taken[True])
    return {"jobs": jobs, "without_s": without, "with_s": having, "ratio": having / without}


def diff(jobs: int) -> dict[str, Any]:
    from penstock.core.units import money
    from penstock.policy.presets import policy
    from penstock.sim.analysis import policy_diff
    from penstock.sim.scenario import yardstick
    from penstock.sim.traces.generate import generate, nodes_for

    trace = generate(jobs)
    scenario = yardstick(trace.jobs, nodes_for(trace), costs="l1", knowledge="e2")
    old = policy("penstock", "20", scenario.jobs)
    new = replace(old, governance=governance(FEW_RULES))
    cap = money("0.3") * jobs  # a month: far less than the old policy spends, so that most jobs are held back by it
    setting = policy_diff.Setting(scenario, knowledge="e2")
    began = time.perf_counter()
    sides = policy_diff.Side("old", old), policy_diff.Side("new", new, (("org", cap, None),))
    compared = policy_diff.diff(setting, *sides, advance=progress(2 * jobs))
    seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert compared.jobs == jobs
    cpu_s = used.ru_utime + used.ru_stime
    return {
        "jobs": jobs,
        "seconds": seconds,
        "cpu_s_per_10k": cpu_s * 10_000 / jobs,
        "peak_mb": used.ru_maxrss // 1024,
    }


def progress(total: int) -> Callable[[int], None]:
    """Says every tenth of the way."""
    done = tenths = 0

    def advance(more: int) -> None:
        nonlocal done, tenths
        done += more
        if done * 10 // total > tenths:
            tenths = done * 10 // total
            says(f"  policy diff: {tenths * 10} %")

    return advance


POINTS: Final = {"verdicts": verdicts, "decisions": decisions, "diff": diff}


# --- what they ask ----------------------------------------------------------------------------------------------------


def governance(rules: int) -> "Governance":
    """Rules over team, class, GPUs, price and place, as people write them; none of them holds for a bench's jobs."""
    from penstock.core.model.governance import Allow, ClassRule, DenyRule, Governance
    from penstock.policy.rules import with_shapes

    conditions = (
        'job.class == "experiment-{k}" && offer.gpu == "H100"',
        'job.team == "nobody-{k}" && offer.term == "spot"',
        'job.gpus > 1000 + {k} && site.name == "cloud"',
        'site.region.startsWith("moon-{k}")',
    )
    denials = tuple(
        DenyRule(f"rule-{k}", conditions[k % len(conditions)].format(k=k), source=f"policy.yaml:{k + 1}")
        for k in range(rules)
    )
    names = ("experiment", "training", "inference", "critical", "interactive")
    classes = tuple(ClassRule(name, source="policy.yaml:1") for name in names)
    return with_shapes(Governance(classes=classes, allow=Allow(), rules=denials, version=1))


def many_sites(offers: int) -> "list[Site]":
    from penstock.core.model.types import NodeShape, Offer, Site
    from penstock.core.units import money

    shape = NodeShape(8, list_per_hour=money("20"), most_per_hour=money("40"))
    return [
        Site(
            f"site-{k}",
            tuple(
                Offer(f"site-{k}/{term}", f"site-{k}", term, (shape,), gpu_model="H100", family="p5")
                for term in ("on_demand", "spot")
            ),
            cloud="aws",
            region=f"eu-west-{k}",
        )
        for k in range(offers // 2)
    ]


if __name__ == "__main__":
    main()
