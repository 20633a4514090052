"""The report's third part: ways to have run this very month, each replayed by the live engine.

As it was; idle GPUs reclaimed; bursts under a cap; bursts with spot; more GPUs bought; all in the cloud. `as it was` is
replayed too, with what is owned and first come, first served, so that every way is compared with the same world; the
observed delay stands beside it and shows how far the replay is to be trusted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.assess.carbon import kilograms
from penstock.assess.own_cost import OwnCost
from penstock.assess.prices import RentQuote
from penstock.assess.replay import (
    GPUS_PER_NODE,
    CutRuns,
    Replayable,
    dealt_anew,
    free_to_leave,
    owned_sites,
    rented_site,
    slice_of,
    without_idle,
)
from penstock.core.engine import Engine, Step
from penstock.core.model.types import Policy, Site, Waiting
from penstock.core.units import DAY, HOUR, MICRO, Millis, Money, ceil_div
from penstock.core.values import value
from penstock.policy.presets import ours
from penstock.sim.engine.report import Tally
from penstock.sim.engine.simulator import truths
from penstock.sim.engine.spot import ZONES, made_up_zone
from penstock.sim.engine.world import Truth, Zone
from penstock.sim.scenario import Scenario, play
from penstock.sim.traces.trace import TraceJob

AS_IT_WAS, RECLAIMED, BURST, SPOT, BOUGHT, CLOUD = "as-it-was", "reclaimed", "burst", "spot", "bought", "cloud"
LABELS: Final = {
    AS_IT_WAS: "As it was",
    RECLAIMED: "Idle GPUs reclaimed",
    BURST: "Burst under a cap",
    SPOT: "Burst with spot",
    BOUGHT: "More GPUs bought",
    CLOUD: "All in the cloud",
}
MONTH_MS: Final = 30 * DAY
CAP_PERMILLE: Final = 200  #: of what the owned GPUs cost: the cap on rent, unless told
RANGE_JOBS: Final = 6_000  #: ranges are measured on so many jobs in a row, if the month has more
SPOT_ZONES: Final = ("us-east-2a", "us-east-2b")  #: of `spot.ZONES`, the ones that a person would choose
MODEL_MS: Final[Millis] = HOUR  #: jobs that run this long make models; shorter ones are tests
FIRST_COME: Final = Policy("as-it-was", burst=False)
AT_ONCE: Final = Policy("all-in-the-cloud", waiting=Waiting("nowait"), share_nodes=True, packing="best_fit")


@value
class WaysSetting:
    """What all ways share. Made by keyword."""

    quote: RentQuote
    own: OwnCost
    cost_of_delay: str  # an hour of one job's delay, as the engine's policy reads it
    cap: Money  # for 30 days
    more_gpus: int
    currency: str = "USD"
    rented: tuple[Site, ...] = ()  # of a sites file; empty: the table's
    own_grid: int | None = None  # grams for a kWh at home; None: not known
    cloud_grid: int | None = None
    overtakes: bool = True  # may a later job start while an earlier one does not fit: as it was, and with GPUs bought?


@value
class Spread:
    low: float
    high: float


@value
class ReplayFigures:
    """One replay's figures."""

    jobs: int
    never_ran: int
    rent: float
    owned: float
    gpu_hours_rented: float
    gpu_hours_owned: float
    mean_delay_h: float
    p95_delay_h: float
    to_model_h: float  # submission to end, mean over jobs that run an hour or longer
    delay_h: float  # summed over jobs; one that never ran counts half the month

    @property
    def money(self) -> float:
        return self.rent + self.owned


@value
class Way:
    """One row of the report."""

    name: str
    says: str
    measured: ReplayFigures
    money: Spread
    mean_delay_h: Spread
    to_model_h: Spread
    owned_gpus: int
    co2_kg: float | None

    @property
    def label(self) -> str:
        return LABELS[self.name]

    def total(self, cost_of_delay: float) -> float:
        return self.measured.money + cost_of_delay * self.measured.delay_h


@value
class WaysReport:
    ways: tuple[Way, ...]
    left_out: tuple[str, ...]  # sentences: ways that cannot be judged, and why
    notes: tuple[str, ...]
    range_jobs: int  # over how many jobs ranges were measured
    setting: WaysSetting

    def way(self, name: str) -> Way | None:
        return next((way for way in self.ways if way.name == name), None)


def setting_of(
    month: Replayable, quote: RentQuote, own: OwnCost, cost_of_delay: str, cap: Money | None, more: int | None
) -> WaysSetting:
    """Cap and purchase unless told: a fifth of what is owned, so that both cost about the same."""
    month_cost = own.gpu_hour * 24 * 30 * month.owned_gpus
    nodes = max(1, round(month.owned_gpus * CAP_PERMILLE / 1000 / GPUS_PER_NODE))
    return WaysSetting(
        quote=quote,
        own=own,
        cost_of_delay=cost_of_delay,
        cap=ceil_div(month_cost * CAP_PERMILLE, 1000) if cap is None else cap,
        more_gpus=nodes * GPUS_PER_NODE if more is None else more,
    )


def ways_of(
    month: Replayable, setting: WaysSetting, cut_months: Mapping[CutRuns, Replayable], advance: Callable[[int], None]
) -> WaysReport:
    """`cut_months`: the same month with cut runs at both ends of what they may be; empty if none was cut."""
    left_out = tuple(_left_out(month, setting))
    skipped = {RECLAIMED} if not month.idle_ms else set()
    if setting.quote.spot is None:
        skipped.add(SPOT)
    return WaysReport(
        ways=tuple(_way(name, month, setting, cut_months, advance) for name in LABELS if name not in skipped),
        left_out=left_out,
        notes=tuple(_notes(month, setting)),
        range_jobs=min(RANGE_JOBS, len(month.jobs)),
        setting=setting,
    )


def replays(month: Replayable, cut_months: Mapping[CutRuns, Replayable]) -> int:
    """How many jobs all replays have together, for a progress bar."""
    ranged = min(RANGE_JOBS, len(month.jobs)) * (2 + len(cut_months) + (len(month.jobs) > RANGE_JOBS))
    return (len(LABELS) - (not month.idle_ms)) * (len(month.jobs) + ranged)


def _way(
    name: str,
    month: Replayable,
    setting: WaysSetting,
    cut_months: Mapping[CutRuns, Replayable],
    advance: Callable[[int], None],
) -> Way:
    measured = measure(name, month, month.jobs, setting, 0)
    advance(len(month.jobs))
    others, center = [], measured
    if len(month.jobs) > RANGE_JOBS:
        center = measure(name, month, slice_of(month.jobs, RANGE_JOBS), setting, 0)
        advance(RANGE_JOBS)
    for jobs, seed in _variants(month, cut_months):
        others.append(measure(name, month, jobs, setting, seed))
        advance(len(jobs))
    owned = _owned_gpus(name, month, setting)
    return Way(
        name=name,
        says=_says(name, month, setting),
        measured=measured,
        money=_range(measured, center, others, lambda one: one.money),
        mean_delay_h=_range(measured, center, others, lambda one: one.mean_delay_h),
        to_model_h=_range(measured, center, others, lambda one: one.to_model_h),
        owned_gpus=owned,
        co2_kg=_carbon(measured, setting, owned, month.span_ms),
    )


def _variants(month: Replayable, cut_months: Mapping[CutRuns, Replayable]) -> Iterator[tuple[Sequence[TraceJob], int]]:
    for seed in (1, 2):
        yield dealt_anew(slice_of(month.jobs, RANGE_JOBS), seed), seed
    for other in cut_months.values():
        yield slice_of(other.jobs, RANGE_JOBS), 0


def _range(
    full: ReplayFigures, center: ReplayFigures, others: Sequence[ReplayFigures], of: Callable[[ReplayFigures], float]
) -> Spread:
    """On the whole month, by how far the variants lie from their own center."""
    at, middle = of(full), of(center)
    if full is center:
        spread = [of(one) for one in others]
    elif middle:
        spread = [at * of(one) / middle for one in others]
    else:
        spread = [at + of(one) for one in others]
    return Spread(min([at, *spread]), max([at, *spread]))


# --- one replay -------------------------------------------------------------------------------------------------------


def measure(
    name: str,
    month: Replayable,
    jobs: Sequence[TraceJob],
    setting: WaysSetting,
    seed: int,
    owned_gpus: int | None = None,
) -> ReplayFigures:
    """Replays these jobs the given way, and counts. The span is theirs: of a slice, its own."""
    owned = _owned_gpus(name, month, setting) if owned_gpus is None else owned_gpus
    span_ms = month.span_ms if len(jobs) == len(month.jobs) else jobs[-1].submit_at - jobs[0].submit_at
    played = _prepared(name, month, jobs)
    sites, zones = _sites(name, owned, setting, played, seed)
    caps = _caps(name, setting)
    scenario = Scenario(played, sites, zones, caps=caps, currency=setting.currency, seed=seed)
    true = truths(played)
    tally = Tally(true, played[0].submit_at, played[-1].submit_at)
    engine = _played(scenario, _policy(name, setting), tally, true, _latest(played, span_ms))
    spent = sum(account.spent for (scope, _), account in engine.state.ledger.accounts.items() if scope == "org")
    return _counted(tally, len(played), spent, owned, setting.own, span_ms)


class _TooLate(Exception):
    """What has not ended by now never will: a month's cap buys it less than one checkpoint."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine


def _latest(jobs: Sequence[TraceJob], span_ms: Millis) -> Millis:
    return max(span_ms, jobs[-1].submit_at) + 2 * MONTH_MS + 2 * max(job.run_ms for job in jobs)


def _played(scenario: Scenario, policy: Policy, tally: Tally, true: Mapping[str, Truth], latest: Millis) -> Engine:
    def see(step: Step, engine: Engine) -> None:
        tally.see(step, engine)
        if step.at > latest:
            raise _TooLate(engine)

    try:
        return play(scenario, policy, see, true)
    except _TooLate as late:
        return late.engine


def _prepared(name: str, month: Replayable, jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    if name == RECLAIMED:
        return without_idle(jobs, month.idle_ms)
    return free_to_leave(jobs) if name == CLOUD else tuple(jobs)


def _owned_gpus(name: str, month: Replayable, setting: WaysSetting) -> int:
    if name == CLOUD:
        return 0
    return month.owned_gpus + (setting.more_gpus if name == BOUGHT else 0)


def _policy(name: str, setting: WaysSetting) -> Policy:
    if name in (BURST, SPOT):
        # Without pacing, the first busy week spends the month's cap, and wide jobs then wait for the next month.
        return replace(ours("penstock", setting.cost_of_delay), pace=True, exhausted="move_home")
    return AT_ONCE if name == CLOUD else replace(FIRST_COME, backfill=setting.overtakes)


def _caps(name: str, setting: WaysSetting) -> tuple[tuple[str, Money | None, Money | None], ...]:
    return (("org", setting.cap, None),) if name in (BURST, SPOT) else ()


def _sites(
    name: str, owned: int, setting: WaysSetting, jobs: Sequence[TraceJob], seed: int
) -> tuple[tuple[Site, ...], dict[str, Zone]]:
    home = owned_sites(owned)
    if name not in (BURST, SPOT, CLOUD):
        return home, {}
    if setting.rented:
        return (*home, *_of_file(setting.rented, name)), {}
    quote = setting.quote
    on_demand = rented_site("cloud", "on_demand", quote.on_demand, quote.on_demand)
    if name != SPOT or quote.spot is None:
        return (*home, on_demand), {}
    until = 2 * (jobs[-1].submit_at + max(job.run_ms for job in jobs))
    zones = {fact.name: made_up_zone(fact, until, seed) for fact in ZONES if fact.name in SPOT_ZONES}
    spots = [rented_site(zone, "spot", quote.spot, quote.on_demand) for zone in zones]
    return (*home, on_demand, *spots), {f"{zone}/spot": times for zone, times in zones.items()}


def _of_file(sites: Sequence[Site], name: str) -> Iterator[Site]:
    terms = ("on_demand", "spot") if name == SPOT else ("on_demand",)
    for site in sites:
        offers = tuple(offer for offer in site.offers if offer.term in terms)
        if offers:
            yield replace(site, offers=offers, front_door=False)


def _counted(tally: Tally, jobs: int, spent: Money, owned: int, own: OwnCost, span_ms: Millis) -> ReplayFigures:
    delays = sorted(max(0, delay) for delay in tally.delays)
    models = [jct for jct, delay in zip(tally.jcts, tally.delays, strict=True) if jct - delay >= MODEL_MS]
    models = models or tally.jcts
    ran = max(1, len(delays))
    return ReplayFigures(
        jobs=tally.jobs,
        never_ran=jobs - tally.jobs,
        rent=spent / MICRO,
        owned=own.gpu_hour * owned * span_ms / HOUR / MICRO,
        gpu_hours_rented=tally.cloud_ms / HOUR,
        gpu_hours_owned=(tally.work_ms - min(tally.work_ms, tally.cloud_ms)) / HOUR,
        mean_delay_h=sum(delays) / ran / HOUR,
        p95_delay_h=delays[max(0, -(-len(delays) * 95 // 100) - 1)] / HOUR if delays else 0.0,
        to_model_h=sum(models) / max(1, len(models)) / HOUR,
        delay_h=(sum(delays) + (jobs - tally.jobs) * span_ms // 2) / HOUR,
    )


def _carbon(measured: ReplayFigures, setting: WaysSetting, owned: int, span_ms: Millis) -> float | None:
    """Owned GPUs draw in every hour, as their cost says; rented ones while they run."""
    own, grams = setting.own, 0.0
    if owned:
        if setting.own_grid is None:
            return None
        grams += kilograms(owned * span_ms / HOUR, own.watts, own.pue, setting.own_grid)
    if measured.gpu_hours_rented:
        if setting.cloud_grid is None:
            return None
        grams += kilograms(measured.gpu_hours_rented, own.watts, own.pue, setting.cloud_grid)
    return grams


# --- words ------------------------------------------------------------------------------------------------------------


def _says(name: str, month: Replayable, setting: WaysSetting) -> str:
    match name:
        case "as-it-was":
            return f"{month.owned_gpus:,} GPUs, first come, first served{_order(setting)}."
        case "reclaimed":
            return "The same, and each job gives its GPUs back while they do nothing."
        case "burst":
            return "Jobs leave when delay costs more than renting on demand, up to a cap that is released day by day."
        case "spot":
            return "The same, with spot nodes that may be taken away."
        case "bought":
            return f"{setting.more_gpus:,} more GPUs, first come, first served."
        case _:
            return "Nothing owned; every job starts at once on demand."


def _order(setting: WaysSetting) -> str:
    return "; what fits overtakes what does not" if setting.overtakes else "; nobody overtakes"


def nearer_order(month: Replayable, setting: WaysSetting, seen_h: float) -> WaysSetting:
    """Whether jobs overtake as it was, by which of the two is nearer to the mean wait that was seen."""
    both = [replace(setting, overtakes=overtakes) for overtakes in (True, False)]
    apart = [abs(measure(AS_IT_WAS, month, month.jobs, one, 0).mean_delay_h - seen_h) for one in both]
    return both[apart[1] < apart[0]]


def _left_out(month: Replayable, setting: WaysSetting) -> Iterator[str]:
    if not month.idle_ms:
        yield "Idle GPUs reclaimed is left out: nobody measured what the GPUs did (--prometheus with DCGM's metrics)."
    if setting.quote.spot is None:
        where = "the sites file has no spot offer" if setting.rented else f"the table has none for {setting.quote.gpu}"
        yield f"Burst with spot is left out: {where}."


def _notes(month: Replayable, setting: WaysSetting) -> Iterator[str]:
    if not month.owned_is_known:
        yield f"Nobody said how many GPUs are owned; the most seen at once, {month.owned_gpus:,}, stand in."
    if not month.model_is_known:
        yield f"Nobody said which GPUs they are; prices and speeds are those of an {month.gpu_model}."
    if month.left_out:
        yield f"{month.left_out:,} jobs are left out: nobody saw how long they ran."
    if month.no_submission:
        yield f"{month.no_submission:,} jobs count as submitted when they started: nobody saw how long they waited."
    if month.cut:
        yield (
            f"{month.cut:,} runs go on beyond what was seen. Each is taken to last as long as runs of its age do;"
            " the ranges also have them end where they were last seen, and last twice as long."
        )
    if month.too_wide:
        yield (
            f"{month.too_wide:,} jobs are wider than all that is owned: without rented GPUs they never run,"
            " which counts as a delay of half the month."
        )
    if month.tied:
        yield f"{month.tied:,} jobs stay at home: they mount volumes, or need something that no other site has."
    if len(month.jobs) > RANGE_JOBS:
        yield f"Ranges are measured on {RANGE_JOBS:,} jobs in a row from the middle of the month, and scaled."
    if any(way is None for way in (setting.own_grid, setting.cloud_grid)):
        yield "Carbon is left out where nobody said what a kWh emits there (--grid, --cloud-grid)."
