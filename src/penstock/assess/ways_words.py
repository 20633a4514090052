"""What all ways of a month share, and the words about them. `ways` calls it."""

from collections.abc import Iterator
from typing import Final

from penstock.assess.own_cost import OwnCost
from penstock.assess.prices import RentQuote
from penstock.assess.replay import MOST_WIDE, Replayable
from penstock.core.model.types import Site
from penstock.core.units import Money
from penstock.core.values import value
from penstock.formatting import count

#: Why reclaiming idle GPUs can delay jobs. No fault of the replay: a queue without reservations does the same.
OVERTAKEN: Final = (
    "Idle GPUs reclaimed delays jobs more than as it was: GPUs that come free earlier, a few at a time, go to small"
    " jobs that overtake wide ones, which then wait for them. Keeping GPUs free for the widest queued job avoids it."
)


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
    pooled: bool = False  # do jobs take owned GPUs wherever they are free, or in nodes of 8?


def says(name: str, month: Replayable, setting: WaysSetting) -> str:
    match name:
        case "as-it-was":
            return f"{month.owned_gpus:,} GPUs, first come, first served{_order(setting)}."
        case "queue":
            return "The same GPUs, in the order and the places that Penstock's queue would give them."
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
    order = "; what fits overtakes what does not" if setting.overtakes else "; nobody overtakes"
    return order + (", and a job takes GPUs wherever they are free" if setting.pooled else "")


def left_out(month: Replayable, setting: WaysSetting) -> Iterator[str]:
    if not month.idle_ms:
        yield "Idle GPUs reclaimed is left out: nobody measured what the GPUs did (--prometheus with DCGM's metrics)."
    if setting.quote.spot is None:
        where = "the sites file has no spot offer" if setting.rented else f"the table has none for {setting.quote.gpu}"
        yield f"Burst with spot is left out: {where}."


def notes(month: Replayable, setting: WaysSetting, range_jobs: int) -> Iterator[str]:
    yield (
        "The bursts are replayed with the cap released evenly over the month (`simulate --pace`); a running Penstock"
        " does not do that yet, so there the first busy weeks may spend it."
    )
    if not month.owned_is_known:
        yield f"Nobody said how many GPUs are owned; the most seen at once, {month.owned_gpus:,}, stand in."
    if not month.model_is_known:
        yield f"Nobody said which GPUs they are; prices and speeds are those of an {month.gpu_model}."
    if month.left_out:
        yield f"{month.left_out:,} jobs are left out: nobody saw how long they ran."
    if month.beyond:
        yield f"{count(month.beyond, 'job')} of more than {MOST_WIDE:,} GPUs: not replayed. Is the width right?"
    if month.no_wait:
        yield (
            f"{count(month.no_wait, 'job')} of unknown wait: taken to be submitted or to start between the two next to"
            " it in time; the ranges also have it with the one before and the one after."
        )
    if month.cut:
        yield (
            f"Runs that go on beyond what was seen: {month.cut:,}. Each is taken to last as long as runs of its age do;"
            " the ranges have ends drawn from the runs of this month."
        )
    if month.queued:
        yield (
            f"{count(month.queued, 'job')} had not started at the end. Each is taken to run as long as such jobs do;"
            " the ranges have runs drawn from those of this month."
        )
    if month.too_wide:
        yield (
            f"{month.too_wide:,} jobs are wider than all that is owned: without rented GPUs they never run,"
            " which counts as a delay of half the month."
        )
    if month.tied:
        yield f"{month.tied:,} jobs stay at home: they mount volumes, or need something that no other site has."
    if len(month.jobs) > range_jobs:
        yield (
            f"Ranges are measured on {range_jobs:,} jobs in a row from the middle of the month, and scaled; ends of"
            " runs that nobody saw, on its last jobs."
        )
    if any(way is None for way in (setting.own_grid, setting.cloud_grid)):
        yield "Carbon is left out where nobody said what a kWh emits there (--grid, --cloud-grid)."
