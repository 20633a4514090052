"""The field's headline claims, one row each: what is compared with what, which figures come out, and a verdict.

A row measures one load at a time. Its first figure is the one that the claim is about; the others say what it depends
on. `bench.claims` runs the rows and writes their figures into docs/claims.md, which tells the assumptions.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from bench.claims_runs import Load, Measured, Runner, Setup, demand_by_hour, longest_up_ms
from penstock.assess.own_cost import LEAN, default_cost
from penstock.core.units import MICRO
from penstock.sim.scenario import GPUS_PER_NODE, SPOT_PERMILLE

Figures: TypeAlias = dict[str, float]  #: what, and how much on one load; the unit stands at the end of the name

#: An owned GPU-hour, used or not.
OWNED: Final = round(LEAN.gpu_hour / MICRO, 2)
OWNED_CHEAP: Final = 1.00
OWNED_DEAR: Final = round(default_cost("H100").gpu_hour / MICRO, 2)
#: Demand by owned capacity, from few nodes to many.
SIZES: Final = (2.0, 1.5, 1.2, 1.0, 0.85, 0.7)
BOTH: Final = ("on_demand", "spot")
#: A split of 80/20 is confirmed if the cheapest one is at most this far from it.
SPLIT_WITHIN: Final = 5.0


class Row(NamedTuple):
    name: str
    claim: str
    reached: tuple[float, float]  #: the first figure confirms the claim between these
    measure: Callable[[Runner, Load], Figures]


def on_demand(runner: Runner, load: Load) -> Figures:
    plain = runner.measure(load, Setup(policy="nowait"))
    mixed = runner.measure(load, Setup(rented=BOTH))
    patient = runner.measure(load, Setup(rented=BOTH, cost_of_delay="2"))
    hybrid = runner.measure(load, Setup(nodes=load.nodes(1.0), rented=BOTH))
    return {
        "Nothing owned, spot and on-demand mixed: lower by, %": lower(mixed.compute, plain.compute),
        "Mean delay of that, h": mixed.mean_delay_h,
        "The same where an hour of delay costs $2 instead of $20: lower by, %": lower(patient.compute, plain.compute),
        "Mean delay of that one, h": patient.mean_delay_h,
        f"With owned GPUs for a load of 1.0, at ${OWNED:.2f} a GPU-hour: lower by, %": lower(
            hybrid.total(OWNED), plain.compute
        ),
        f"At ${OWNED_CHEAP:.2f} a GPU-hour: lower by, %": lower(hybrid.total(OWNED_CHEAP), plain.compute),
        f"At ${OWNED_DEAR:.2f} a GPU-hour: lower by, %": lower(hybrid.total(OWNED_DEAR), plain.compute),
    }


def spot(runner: Runner, load: Load) -> Figures:
    plain = runner.measure(load, Setup(policy="nowait"))
    mandated = runner.measure(load, Setup(rented=("spot",)))
    dearer = mandated.compute * 500 / SPOT_PERMILLE  # all of it is spot, so the bill follows the price
    longest = longest_up_ms(load.zones.values())
    work = sum(job.spec.gpus * job.run_ms for job in load.jobs)
    endless = sum(job.spec.gpus * job.run_ms for job in load.jobs if job.run_ms > longest)
    return {
        "Spot only, at 0.35 of the price on demand: lower by, %": lower(mandated.compute, plain.compute),
        "At 0.50 of the price on demand: lower by, %": lower(dearer, plain.compute),
        "Mean delay, h (on demand 0.08)": mandated.mean_delay_h,
        "p99 of the delay, h": mandated.p99_delay_h,
        "GPU-hours of jobs that could never end without checkpoints, %": 100 * endless / work,
    }


def peak(runner: Runner, load: Load) -> Figures:
    most, usual = nodes_of(load.peak_gpus()), nodes_of(p99(demand_by_hour(load.jobs)))
    bought = runner.measure(load, Setup(nodes=most, policy="owned-only"))
    nearly = runner.measure(load, Setup(nodes=usual, policy="owned-only"))
    burst = runner.measure(load, Setup(nodes=load.nodes(1.0)))
    return {
        "Owned GPUs for a load of 1.0, the rest on demand: lower by, %": lower(burst.total(OWNED), bought.total(OWNED)),
        f"At ${OWNED_CHEAP:.2f} an owned GPU-hour: lower by, %": lower(
            burst.total(OWNED_CHEAP), bought.total(OWNED_CHEAP)
        ),
        f"At ${OWNED_DEAR:.2f} an owned GPU-hour: lower by, %": lower(
            burst.total(OWNED_DEAR), bought.total(OWNED_DEAR)
        ),
        "Against buying for all but 1 % of the hours: lower by, %": lower(burst.total(OWNED), nearly.total(OWNED)),
        "Nodes for the peak": most,
        "Nodes for all but 1 % of the hours": usual,
        "Nodes for a load of 1.0": load.nodes(1.0),
        "Mean delay with the peak bought, h": bought.mean_delay_h,
        "Mean delay with bursts, h": burst.mean_delay_h,
    }


def time_to_model(runner: Runner, load: Load) -> Figures:
    def pair(share: float) -> tuple[Measured, Measured]:
        nodes = load.nodes(share)
        return runner.measure(load, Setup(nodes=nodes, policy="owned-only")), runner.measure(load, Setup(nodes=nodes))

    (alone, burst), (full, beyond), (roomy, little) = pair(1.0), pair(1.2), pair(0.85)
    return {
        "Load 1.0: mean time from submission to result shorter by, %": lower(burst.mean_jct_h, alone.mean_jct_h),
        "Load 1.2: shorter by, %": lower(beyond.mean_jct_h, full.mean_jct_h),
        "Load 0.85: shorter by, %": lower(little.mean_jct_h, roomy.mean_jct_h),
        "Load 1.0: the median job's time shorter by, %": lower(burst.median_jct_h, alone.median_jct_h),
        "Load 1.0: mean time with owned GPUs only, h": alone.mean_jct_h,
        "Load 1.0: mean time with bursts, h": burst.mean_jct_h,
        "Load 1.0: the rent, by what the owned GPUs cost, %": 100 * burst.compute / (burst.owned_gpu_hours * OWNED),
    }


def eligible(runner: Runner, load: Load) -> Figures:
    nodes = load.nodes(1.0)
    plain = runner.measure(load, Setup(nodes=nodes, half=True))
    both = runner.measure(load, Setup(nodes=nodes, rented=BOTH, half=True))
    return {
        "Eligible jobs, on owned and rented GPUs: lower by, %": lower(both.eligible(OWNED), plain.eligible(OWNED)),
        "A rented GPU-hour of theirs: lower by, %": lower(per_hour(both), per_hour(plain)),
        "GPU-hours of theirs that are rented, without spot, %": rented_share(plain),
        "The same with spot, %": rented_share(both),
        "Rent of all jobs: lower by, %": lower(both.compute, plain.compute),
        "Owned and rented GPUs of all jobs: lower by, %": lower(both.total(OWNED), plain.total(OWNED)),
        "Mean delay without spot, h": plain.mean_delay_h,
        "Mean delay with spot, h": both.mean_delay_h,
    }


def split(runner: Runner, load: Load) -> Figures:
    sizes = [runner.measure(load, Setup(nodes=load.nodes(size))) for size in SIZES]
    best = min(sizes, key=lambda size: size.total(OWNED))
    return {
        "GPU-hours on owned GPUs where the total cost is least, %": 100 * best.owned_share,
        f"At ${OWNED_CHEAP:.2f} an owned GPU-hour, %": 100
        * min(sizes, key=lambda size: size.total(OWNED_CHEAP)).owned_share,
        f"At ${OWNED_DEAR:.2f} an owned GPU-hour, %": 100
        * min(sizes, key=lambda size: size.total(OWNED_DEAR)).owned_share,
        "What 80/20 costs more than the least, %": 100 * (at_share(sizes, 0.8) / best.total(OWNED) - 1),
        "Owned GPUs there, by the peak, %": 100 * best.owned_gpu_hours / load.span_h / load.peak_gpus(),
    }


def per_hour(run: Measured) -> float:
    return run.eligible_rent / run.eligible_rented_gpu_hours if run.eligible_rented_gpu_hours else 0.0


def rented_share(run: Measured) -> float:
    return 100 * run.eligible_rented_gpu_hours / run.eligible_gpu_hours if run.eligible_gpu_hours else 0.0


def lower(ours: float, theirs: float) -> float:
    return 100 * (1 - ours / theirs) if theirs else 0.0


def nodes_of(gpus: float) -> int:
    return max(1, -int(-gpus // GPUS_PER_NODE))


def p99(hours: Sequence[float]) -> float:
    return sorted(hours)[int(0.99 * (len(hours) - 1))] if hours else 0.0


def at_share(sizes: Sequence[Measured], share: float) -> float:
    """Total cost where so much runs on owned GPUs: between the two sizes around it, or at the nearest one."""
    ordered = sorted(sizes, key=lambda size: size.owned_share)
    for few, many in pairwise(ordered):
        if few.owned_share <= share <= many.owned_share and few.owned_share < many.owned_share:
            part = (share - few.owned_share) / (many.owned_share - few.owned_share)
            return few.total(OWNED) * (1 - part) + many.total(OWNED) * part
    return min(ordered, key=lambda size: abs(size.owned_share - share)).total(OWNED)


def verdict(row: Row, by_load: Mapping[str, Mapping[str, float]]) -> str:
    """By the first figure of each load."""
    low, high = row.reached
    heads = [next(iter(figures.values())) for figures in by_load.values()]
    held = sum(low <= round(head, 1) <= high for head in heads)
    if held == len(heads):
        return "holds" if len(heads) == 1 else f"holds on all {len(heads)} traces"
    if not held:
        return "does not hold" if len(heads) == 1 else f"holds on none of {len(heads)} traces"
    return f"holds on {held} of {len(heads)} traces"


LEAST_OF_ALL: Final = 100.0  #: more than claimed confirms a claim, too
ROWS: Final = (
    Row("on-demand", "40-60 % lower compute cost than on-demand only", (40.0, LEAST_OF_ALL), on_demand),
    Row("spot", "65 % lower compute cost by mandating spot", (65.0, LEAST_OF_ALL), spot),
    Row("peak", "40 % lower total cost than buying for the peak", (40.0, LEAST_OF_ALL), peak),
    Row("time-to-model", "30-60 % shorter time to model than owned only", (30.0, LEAST_OF_ALL), time_to_model),
    Row("eligible", "20-35 % lower cost for eligible workloads", (20.0, LEAST_OF_ALL), eligible),
    Row("split", "an 80/20 split of base (owned) and peak (rented)", (80 - SPLIT_WITHIN, 80 + SPLIT_WITHIN), split),
)
BY_NAME: Final = {row.name: row for row in ROWS}
