"""The report's third part: ways to have run this very month, each replayed by the live engine.

As it was; our queue with nothing rented; idle GPUs reclaimed; bursts under a cap; bursts with spot; more GPUs bought;
all in the cloud. `as it was` is replayed too, with what is owned and first come, first served, so that every way is
compared with the same world; the observed delay stands beside it and shows how far the replay is to be trusted. Bursts
are of our queue, so what they gain is told against that queue without any rent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.assess import ways_words
from penstock.assess.carbon import kilograms
from penstock.assess.own_cost import OwnCost
from penstock.assess.prices import RentQuote
from penstock.assess.replay import (
    GPUS_PER_NODE,
    OtherGuesses,
    Replayable,
    dealt_anew,
    free_to_leave,
    owned_sites,
    rented_site,
    slice_of,
    without_idle,
)
from penstock.assess.ways_words import WaysSetting
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
QUEUE: Final = "queue"
LABELS: Final = {
    AS_IT_WAS: "As it was",
    QUEUE: "Penstock's queue, nothing rented",
    RECLAIMED: "Idle GPUs reclaimed",
    BURST: "Burst under a cap",
    SPOT: "Burst with spot",
    BOUGHT: "More GPUs bought",
    CLOUD: "All in the cloud",
}
KINDS: Final = 4  #: of queues that are tried for the month as it was
NEAR, NEAR_H = 0.01, 0.01  #: of the mean wait seen, and in hours: a replay of a long month is near enough to it
POOLED_MOST: Final = 20_000  #: owned GPUs; of more, each by itself is slow, and whole nodes are hardly ever short
MONTH_MS: Final = 30 * DAY
CAP_PERMILLE: Final = 200  #: of what the owned GPUs cost: the cap on rent, unless told
RANGE_JOBS: Final = 6_000  #: ranges are measured on so many jobs in a row, if the month has more
LAST_JOBS: Final = 3_000  #: the same for ends of runs that nobody saw: these are the month's last jobs
SPOT_ZONES: Final = ("us-east-2a", "us-east-2b")  #: of `spot.ZONES`, the ones that a person would choose
MARGIN: Final = 0.05  #: of the savings, on each side of their range where waits are unknown
MODEL_MS: Final[Millis] = HOUR  #: jobs that run this long make models; shorter ones are tests
FIRST_COME: Final = Policy("as-it-was", burst=False)
AT_ONCE: Final = Policy("all-in-the-cloud", waiting=Waiting("nowait"), share_nodes=True, packing="best_fit")


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
    saves: float  # money and priced delay, against the month as it was
    saves_range: Spread
    owned_gpus: int
    co2_kg: float | None

    @property
    def label(self) -> str:
        return LABELS[self.name]

    @property
    def in_a_sentence(self) -> str:
        """The label where no sentence begins."""
        return self.label if self.name == QUEUE else self.label[0].lower() + self.label[1:]

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
    month: Replayable,
    setting: WaysSetting,
    others: OtherGuesses,
    advance: Callable[[int], None],
    names: Sequence[str] = tuple(LABELS),
    was: ReplayFigures | None = None,
) -> WaysReport:
    """`others`: the same month with what nobody saw otherwise; empty if all was seen. `was`: the month as it was, if it
    was replayed already.
    """
    left_out = tuple(ways_words.left_out(month, setting))
    skipped = {RECLAIMED} if not month.idle_ms else set()
    if setting.quote.spot is None:
        skipped.add(SPOT)
    done = {AS_IT_WAS: was} if was else {}
    replayed = {
        name: _replayed(name, month, setting, others, advance, done.get(name)) for name in names if name not in skipped
    }
    worse = RECLAIMED in replayed and replayed[RECLAIMED].full.delay_h > replayed[AS_IT_WAS].full.delay_h
    return WaysReport(
        ways=tuple(_way(name, month, setting, replayed) for name in replayed),
        left_out=left_out,
        notes=(*ways_words.notes(month, setting, RANGE_JOBS), *((ways_words.OVERTAKEN,) if worse else ())),
        range_jobs=min(RANGE_JOBS, len(month.jobs)),
        setting=setting,
    )


def nearer_order(
    month: Replayable, setting: WaysSetting, seen_h: float, advance: Callable[[int], None]
) -> tuple[WaysSetting, ReplayFigures]:
    """Whether jobs overtake, and whether they need whole nodes, as it was: what is nearest to the mean wait seen; and
    the month replayed so. Kinds that look nearer on a part of a long month come first, so that the others can be given
    up early, or left out where one is near enough.
    """
    pools = (False, True) if month.owned_gpus <= POOLED_MOST else (False,)
    kinds = [replace(setting, overtakes=order, pooled=pooled) for pooled in pools for order in (True, False)]
    part = slice_of(month.jobs, RANGE_JOBS)

    def apart(kind: WaysSetting) -> float:
        return abs(measure(AS_IT_WAS, month, part, kind, 0).mean_delay_h - seen_h)

    short = len(part) == len(month.jobs)
    order = range(len(kinds)) if short else sorted(range(len(kinds)), key=lambda k: apart(kinds[k]))
    nearest: tuple[float, int, ReplayFigures] | None = None
    for k in order:
        if nearest is not None and not short and nearest[0] <= max(NEAR_H, NEAR * seen_h):
            advance(len(month.jobs))
            continue
        most_h = None if nearest is None else (seen_h + nearest[0]) * len(month.jobs)
        try:
            figures = measure(AS_IT_WAS, month, month.jobs, kinds[k], 0, most_delay_h=most_h)
        except TooMuchDelay:
            continue
        finally:
            advance(len(month.jobs))
        away = abs(figures.mean_delay_h - seen_h)
        if nearest is None or (away, k) < nearest[:2]:
            nearest = (away, k, figures)
    assert nearest is not None
    advance((KINDS - len(kinds)) * len(month.jobs))
    return kinds[nearest[1]], nearest[2]


def replays(jobs: int, measured: bool, others: tuple[int, int]) -> int:
    """How many jobs all replays have together, for a progress bar. `measured`: whether use was; `others`: how many
    other guesses of waits there are, and of ends.
    """
    ends, draws = others
    middle = min(RANGE_JOBS, jobs) * (2 + (jobs > RANGE_JOBS) + ends)
    last = min(LAST_JOBS, jobs) * (draws + (jobs > LAST_JOBS and draws > 0))
    return (KINDS - 1) * jobs + (len(LABELS) - (not measured)) * (jobs + middle + last)


@value
class _Replayed:
    """One way on the month, on two parts of it, and on variants of these: of a short month, each part is all of it."""

    full: ReplayFigures
    middle: ReplayFigures
    dealt: tuple[ReplayFigures, ...]  # the middle, with run times dealt anew or waits at both ends
    last: ReplayFigures  # the month's last jobs: runs that nobody saw to their end are there
    drawn: tuple[ReplayFigures, ...]  # likewise, with ends of runs drawn
    has_ends: bool  # whether some waits are unknown


def _replayed(
    name: str,
    month: Replayable,
    setting: WaysSetting,
    others: OtherGuesses,
    advance: Callable[[int], None],
    done: ReplayFigures | None,
) -> _Replayed:
    def measured(of: Replayable, jobs: Sequence[TraceJob], seed: int = 0) -> ReplayFigures:
        figures = measure(name, of, jobs, setting, seed)
        advance(len(jobs))
        return figures

    def middle(of: Replayable) -> tuple[TraceJob, ...]:
        return slice_of(of.jobs, RANGE_JOBS)

    def last(of: Replayable) -> tuple[TraceJob, ...]:
        return slice_of(of.jobs, LAST_JOBS, last=True)

    full = done or measured(month, month.jobs)
    return _Replayed(
        full=full,
        middle=measured(month, middle(month)) if len(month.jobs) > RANGE_JOBS else full,
        dealt=(
            *(measured(month, dealt_anew(middle(month), seed), seed) for seed in (1, 2)),
            *(measured(other, middle(other)) for other in others.ends),
        ),
        last=measured(month, last(month)) if others.drawn and len(month.jobs) > LAST_JOBS else full,
        drawn=tuple(measured(other, last(other)) for other in others.drawn),
        has_ends=bool(others.ends),
    )


def _way(name: str, month: Replayable, setting: WaysSetting, replayed: Mapping[str, _Replayed]) -> Way:
    replay, was = replayed[name], replayed[AS_IT_WAS]
    owned = _owned_gpus(name, month, setting)
    saves = _saved(was.full, replay.full, setting)
    tail = replay.last.jobs / max(1, replay.full.jobs)
    return Way(
        name=name,
        says=ways_words.says(name, month, setting),
        measured=replay.full,
        money=_range(replay, lambda figures: figures.money, 1.0),
        mean_delay_h=_range(replay, lambda figures: figures.mean_delay_h, tail),
        to_model_h=_range(replay, lambda figures: figures.to_model_h, tail),
        saves=saves,
        saves_range=_saves_range(was, replay, setting),
        owned_gpus=owned,
        co2_kg=_carbon(replay.full, setting, owned, month.span_ms),
    )


def _saved(was: ReplayFigures, figures: ReplayFigures, setting: WaysSetting) -> float:
    cost = float(setting.cost_of_delay)
    return was.money - figures.money + cost * (was.delay_h - figures.delay_h)


def _saves_range(was: _Replayed, replay: _Replayed, setting: WaysSetting) -> Spread:
    """Variant by variant, since both ways meet the same month in each; those of a part are scaled by jobs. Two ends are
    few: where waits are unknown, a margin makes their range hold the truth nine times in ten (bench.assess).
    """
    saves, middle, last = (
        _saved(was.full, replay.full, setting),
        _saved(was.middle, replay.middle, setting),
        _saved(was.last, replay.last, setting),
    )
    scale = replay.full.jobs / max(1, replay.middle.jobs)
    dealt = [_saved(*pair, setting) for pair in zip(was.dealt, replay.dealt, strict=True)]
    drawn = [_saved(*pair, setting) for pair in zip(was.drawn, replay.drawn, strict=True)]
    spread = [saves, *(saves + (variant - middle) * scale for variant in dealt)]
    margin = MARGIN * max(map(abs, spread)) if replay.has_ends else 0.0
    return _all_of(Spread(min(spread) - margin, max(spread) + margin), [saves + (draw - last) for draw in drawn])


def _range(replay: _Replayed, of: Callable[[ReplayFigures], float], tail: float) -> Spread:
    """On the whole month, by how far the variants lie from their own part. `tail`: what a change in the month's last
    jobs changes in the whole figure.
    """
    at, middle, last = of(replay.full), of(replay.middle), of(replay.last)
    if replay.full is replay.middle:
        spread = [of(variant) for variant in replay.dealt]
    elif middle:
        spread = [at * of(variant) / middle for variant in replay.dealt]
    else:
        spread = [at + of(variant) for variant in replay.dealt]
    drawn = [at + (of(draw) - last) * tail for draw in replay.drawn]
    whole = _all_of(Spread(min([at, *spread]), max([at, *spread])), drawn)
    return Spread(max(0.0, whole.low), whole.high)


def _all_of(spread: Spread, drawn: Sequence[float]) -> Spread:
    """With the draws: one more would lie between their extremes nine times in ten, however they are distributed."""
    return Spread(min([spread.low, *drawn]), max([spread.high, *drawn]))


# --- one replay -------------------------------------------------------------------------------------------------------


def measure(
    name: str,
    month: Replayable,
    jobs: Sequence[TraceJob],
    setting: WaysSetting,
    seed: int,
    owned_gpus: int | None = None,
    most_delay_h: float | None = None,
) -> ReplayFigures:
    """Replays these jobs the given way, and counts. The span is theirs: of a slice, its own. Raises `TooMuchDelay` as
    soon as all delays together are more than `most_delay_h`.
    """
    owned = _owned_gpus(name, month, setting) if owned_gpus is None else owned_gpus
    span_ms = month.span_ms if len(jobs) == len(month.jobs) else jobs[-1].submit_at - jobs[0].submit_at
    played = _prepared(name, month, jobs)
    sites, zones = _sites(name, owned, setting, played, seed)
    caps = _caps(name, setting)
    scenario = Scenario(played, sites, zones, caps=caps, currency=setting.currency, seed=seed)
    true = truths(played)
    tally = Tally(true, played[0].submit_at, played[-1].submit_at)
    limit = ReplayLimit(_latest(played, span_ms), None if most_delay_h is None else most_delay_h * HOUR)
    engine = _played(scenario, _policy(name, setting), tally, true, limit)
    spent = sum(account.spent for (scope, _), account in engine.state.ledger.accounts.items() if scope == "org")
    return _counted(tally, len(played), spent, owned, setting.own, span_ms)


class TooMuchDelay(Exception):
    """The delays are more than was asked for."""


class _TooLate(Exception):
    """What has not ended by now never will: a month's cap buys it less than one checkpoint."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine


@value
class ReplayLimit:
    """When a replay ends before its last job."""

    latest: Millis
    most_delay_ms: float | None  # of all jobs together


def _latest(jobs: Sequence[TraceJob], span_ms: Millis) -> Millis:
    return max(span_ms, jobs[-1].submit_at) + 2 * MONTH_MS + 2 * max(job.run_ms for job in jobs)


def _played(scenario: Scenario, policy: Policy, tally: Tally, true: Mapping[str, Truth], limit: ReplayLimit) -> Engine:
    counted, delay_ms = 0, 0

    def see(step: Step, engine: Engine) -> None:
        nonlocal counted, delay_ms
        tally.see(step, engine)
        if step.at > limit.latest:
            raise _TooLate(engine)
        if limit.most_delay_ms is not None and len(tally.delays) > counted:
            delay_ms += sum([max(0, delay) for delay in tally.delays[counted:]])
            counted = len(tally.delays)
            if delay_ms > limit.most_delay_ms:
                raise TooMuchDelay

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
    if name == QUEUE:
        return replace(ours("penstock", setting.cost_of_delay), burst=False)
    return AT_ONCE if name == CLOUD else replace(FIRST_COME, backfill=setting.overtakes)


def _caps(name: str, setting: WaysSetting) -> tuple[tuple[str, Money | None, Money | None], ...]:
    return (("org", setting.cap, None),) if name in (BURST, SPOT) else ()


def _sites(
    name: str, owned: int, setting: WaysSetting, jobs: Sequence[TraceJob], seed: int
) -> tuple[tuple[Site, ...], dict[str, Zone]]:
    home = owned_sites(owned, setting.pooled)
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
