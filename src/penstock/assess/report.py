"""The report of one observed month, as values: what could not be seen, use, waits, what is coming.
`penstock assess` prints it.

`sentences` says the same in words.
"""

from datetime import UTC, timedelta, tzinfo

from penstock.assess.coming import ComingDemand, coming_of
from penstock.assess.history import Coverage, Disagreement, MonthHistory
from penstock.assess.own_cost import default_cost
from penstock.assess.owned import owned_model
from penstock.assess.prices import DOLLARS, ReportCurrency
from penstock.assess.replay import Replayable
from penstock.assess.use import UseReport, use_of
from penstock.assess.waits import WaitReport, waits_of
from penstock.core.units import DAY, HOUR, Instant, Money
from penstock.core.values import value
from penstock.sim.traces.rows import EPOCH


@value
class AssessReport:
    from_at: Instant
    to_at: Instant
    calendar: bool
    jobs: int
    ran: int  # of them, those that started
    cut: int  # run times that are cut off
    sources: tuple[Coverage, ...]
    disagreements: tuple[Disagreement, ...]
    owned_by: str
    gpu_hour: Money
    gpu_hour_is_assumed: bool
    currency: str
    use: UseReport
    waits: WaitReport
    coming: ComingDemand


def assess(
    history: MonthHistory,
    *,
    gpu_hour: Money | None,
    currency: str,
    zone: tzinfo = UTC,
    to: ReportCurrency = DOLLARS,
    month: Replayable | None = None,
) -> AssessReport:
    """`gpu_hour`: None takes the default for the owned model, at the rate of `to`. `zone`: whose days are counted.
    `month`: the same history ready to replay, if it is at hand.
    """
    price = default_cost(owned_model(history), to).gpu_hour if gpu_hour is None else gpu_hour

    def day(at: Instant) -> str:
        return day_of(at, zone) if history.calendar else f"day {at // DAY + 1}"

    def hour(at: Instant) -> str:
        return clock_of(at, zone) if history.calendar else f"{at % DAY // HOUR:02}:00"

    return AssessReport(
        from_at=history.from_at,
        to_at=history.to_at,
        calendar=history.calendar,
        jobs=len(history.jobs),
        ran=sum(job.started_at is not None for job in history.jobs),
        cut=sum(bool(job.cut) for job in history.jobs),
        sources=history.coverage,
        disagreements=history.disagreements,
        owned_by=history.owned_by,
        gpu_hour=price,
        gpu_hour_is_assumed=gpu_hour is None,
        currency=currency,
        use=use_of(history, price, day, hour),
        waits=waits_of(history, day),
        coming=coming_of(history, day, month),
    )


def day_of(at: Instant, zone: tzinfo) -> str:
    return (EPOCH + timedelta(milliseconds=at)).astimezone(zone).date().isoformat()


def clock_of(at: Instant, zone: tzinfo) -> str:
    """The hour of its day."""
    return f"{(EPOCH + timedelta(milliseconds=at)).astimezone(zone):%H:00}"
