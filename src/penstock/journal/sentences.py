"""Why, in words: one reason, one sentence, made of the reason's own numbers. `story` and the API say them.

    sentence(because, Say(currency, until_at))

Nothing here knows a policy. `SAYS` at the end has a function for each reason.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.core import reasons as r
from penstock.core.units import NEVER, Instant, Money
from penstock.core.values import value
from penstock.journal.words import duration, instant, money


@value
class Say:
    """What a sentence needs beside its reason: the currency, and until when the job waits at the latest."""

    currency: str
    until_at: Instant = NEVER

    def cash(self, amount: Money) -> str:
        return money(amount, self.currency)

    @property
    def until(self) -> str:
        return instant(self.until_at)


def sentence(why: r.Reason, say: Say) -> str:
    return SAYS[type(why)](why, say)


# --- owned GPUs ------------------------------------------------------------------------------------------------------


def owned_free(why: r.OwnedFree, _: Say) -> str:
    waited = f", after waiting {duration(why.waited_ms)}" if why.waited_ms else ""
    return f"{why.free_gpus} GPUs were free there{waited}."


def ends_alike(why: r.EndsAlike, _: Say) -> str:
    waited = f", after waiting {duration(why.waited_ms)}" if why.waited_ms else ""
    there = f"in use for {duration(why.busy_ms)} anyway" if why.busy_ms else "not in use"
    return (
        f"{why.free_gpus} GPUs were free there{waited}; on a node that is {there}, expected to run "
        f"{duration(why.expected_run_ms)}."
    )


def room_made(why: r.RoomMade, _: Say) -> str:
    makes = "1 job makes" if len(why.left_by) == 1 else f"{len(why.left_by)} jobs make"
    waited = f" It waited {duration(why.waited_ms)}." if why.waited_ms else ""
    return f"{makes} room for it there ({', '.join(why.left_by)}), beside {why.free_gpus} free GPUs.{waited}"


def waits_for_owned(why: r.WaitsForOwned, say: Say) -> str:
    cost = why.burst_cost
    now = f"bursting now would cost about {say.cash(cost)}" if cost is not None else "nothing to rent fits now"
    return (
        f"Waits for owned GPUs, at the latest until {say.until}: {why.free_gpus} are free, too few or in pieces. "
        f"Expected to run {duration(why.expected_run_ms)}; {now}; patience {duration(why.patience_ms)}."
    )


def wait_worth(why: r.WaitWorth, say: Say) -> str:
    due = f" It must leave by {instant(why.leave_at)} to meet its deadline." if why.leave_at else ""
    return (
        f"Waits for owned GPUs, {_how_long(why)} until {say.until} at the latest: {why.free_gpus} are free, too few or "
        f"in pieces, and {why.ahead} wait before it. "
        f"Bursting now would cost about {say.cash(why.cost)} for {duration(why.expected_run_ms)}; at "
        f"{say.cash(why.value_per_hour)} an hour that buys {duration(why.patience_ms)} of waiting.{due}"
    )


def _how_long(why: r.WaitWorth) -> str:
    """Until its patience is over nothing is promised beyond it: then it bursts."""
    if why.about_ms > why.patience_ms:
        return f"though they are expected only in about {duration(why.about_ms)},"
    worst = f" at worst {duration(why.worst_ms)}," if why.worst_ms <= why.patience_ms else ""
    return f"for about {duration(why.about_ms)},{worst} and"


def only_owned(why: r.OnlyOwned, _: Say) -> str:
    return f"Waits for owned GPUs; {why.free_gpus} are free, too few or in pieces. It cannot leave: {why.rule}."


def waited_longest(why: r.WaitedLongest, _: Say) -> str:
    return (
        f"It waited {duration(why.waited_ms)}, longer than the {duration(why.most_ms)} that anybody should, and cannot "
        f"leave. All of it is expected to be free in {duration(why.free_in_ms)}."
    )


# --- bursts ----------------------------------------------------------------------------------------------------------


def patience_over(why: r.PatienceOver, say: Say) -> str:
    waited = f"waited {duration(why.waited_ms)}, its patience of {duration(why.patience_ms)} is over"
    since, beside = waited if why.patience_ms else "no patience", _beside(why, say)
    return (
        f"Owned GPUs were full and it {since}. About {say.cash(why.cost)} for {duration(why.expected_run_ms)}{beside}."
    )


def not_worth_waiting(why: r.NotWorthWaiting, say: Say) -> str:
    due = f" To meet its deadline it had to leave by {instant(why.leave_at)}." if why.leave_at else ""
    return (
        f"Owned GPUs were full, for another {duration(why.soonest_ms)} at the soonest, and it waited "
        f"{duration(why.waited_ms)}. About {say.cash(why.cost)} for {duration(why.expected_run_ms)}, which at "
        f"{say.cash(why.value_per_hour)} an hour buys {duration(why.patience_ms)} of waiting{_beside(why, say)}.{due}"
        + _passed_over(why)
    )


def joins_node(why: r.JoinsNode, say: Say) -> str:
    beside = f"; a node of its own, at {why.next_offer}, would be {say.cash(why.next_cost)}" if why.next_offer else ""
    stays = f"who is there is expected to stay {duration(why.lasts_ms)}" if why.lasts_ms else "nobody else needs it"
    return (
        f"It has {why.free_gpus} GPUs to spare, and {stays}. "
        f"About {say.cash(why.cost)} for {duration(why.expected_run_ms)}{beside}."
    )


def _beside(why: r.PatienceOver | r.NotWorthWaiting, say: Say) -> str:
    return f"; {why.next_offer} would be {say.cash(why.next_cost)}" if why.next_offer else ""


def queue_full(why: r.QueueFull, say: Say) -> str:
    return f"{why.waiting} jobs wait and the queue holds {why.queue_cap}; it is the newest. About {say.cash(why.cost)}."


def lost_node(why: r.LostNode, say: Say) -> str:
    return (
        f"Resumes after {why.lost_attempt} was lost: {duration(why.kept_ms)} kept, {duration(why.redone_ms)} done "
        f"again. About {say.cash(why.cost)} to the end." + _passed_over(why)
    )


def _passed_over(why: r.NotWorthWaiting | r.LostNode) -> str:
    cheaper = f" {why.passed_over} is cheaper, but losses or copies there could make it later than anybody should be."
    return cheaper if why.passed_over else ""


# --- money and room --------------------------------------------------------------------------------------------------


def cap_binds(why: r.CapBinds, say: Say) -> str:
    return f"Waits for money: {_denied(why, say)}"


def rate_binds(why: r.RateBinds, say: Say) -> str:
    return f"Waits for money: {_denied(why, say)}"


def scope_frozen(why: r.ScopeFrozen, say: Say) -> str:
    return f"Waits for money: {_denied(why, say)}"


def period_unknown(_: r.PeriodUnknown, __: Say) -> str:
    return "Waits: the month it would be booked to is not open yet."


def paced(why: r.Paced, say: Say) -> str:
    return (
        f"Of {why.scope}'s {say.cash(why.cap)} for {why.period}, {say.cash(why.released)} is released by now and "
        f"{say.cash(why.used)} used or held; about {say.cash(why.needed)} is needed. Waits until {say.until}, or for "
        "owned GPUs."
    )


def no_room_there(why: r.NoRoomThere, _: Say) -> str:
    return f"Waits: no rented offer that it may use has room; {why.offer} is tried again {instant(why.retry_at)}."


def placements_paused(_: r.PlacementsPaused, __: Say) -> str:
    return "Waits: a person paused new placements."


def aims_at_delay(why: r.AimsAtDelay, say: Say) -> str:
    return (
        f"The mean delay of {why.jobs} jobs was {duration(why.mean_delay_ms)} and should be {duration(why.target_ms)}; "
        f"an hour of waiting was worth {say.cash(why.before_per_hour)}."
    )


def aims_at_spend(why: r.AimsAtSpend, say: Say) -> str:
    return (
        f"Lately {say.cash(why.spent)} was spent; {say.cash(why.share)} is that time's share of "
        f"{say.cash(why.target)}. An hour of waiting was worth {say.cash(why.before_per_hour)}."
    )


# --- moves, refusals, ends -------------------------------------------------------------------------------------------


def move_asked(why: r.MoveAsked, _: Say) -> str:
    return f"Moved from {why.from_offer} as asked; {duration(why.kept_ms)} of work kept."


def lease_not_renewed(why: r.LeaseNotRenewed, say: Say) -> str:
    kept = f"{duration(why.kept_ms)} of work kept"
    binds = _denied(why.denied, say)
    return f"Moves from {why.from_offer} to owned GPUs, {kept}: its lease there was not renewed. {binds}"


def _denied(why: r.Denial, say: Say) -> str:
    """What binds, without what is done about it."""
    match why:
        case r.CapBinds():
            month = f" in {why.period}" if why.period else ""
            return (
                f"{why.scope} may spend {say.cash(why.cap)}{month}; {say.cash(why.spent)} is spent, "
                f"{say.cash(why.held)} held, and it needs {say.cash(why.needed)}."
            )
        case r.RateBinds():
            return (
                f"{why.scope} may spend {say.cash(why.cap_per_hour)} an hour, "
                f"{say.cash(why.running_per_hour)} is running, and it needs {say.cash(why.needed_per_hour)}."
            )
        case r.PeriodUnknown():
            return "The month it would be booked to is not open yet."
        case r.ScopeFrozen():
            return (
                f"{why.scope} is frozen: providers billed {say.cash(why.overrun)} more than was held. "
                "A person must look at it first."
            )


def comes_home(why: r.ComesHome, say: Say) -> str:
    return (
        f"Comes home: about {duration(why.left_ms)} are left, {say.cash(why.saves)} rented; the move takes "
        f"{duration(why.move_ms)}, worth {say.cash(why.move_worth)}."
    )


def cheaper_elsewhere(why: r.CheaperElsewhere, say: Say) -> str:
    return (
        f"Moves to cheaper GPUs: about {duration(why.left_ms)} are left, {say.cash(why.stays)} where it was and "
        f"{say.cash(why.cost)} where it goes; the move takes {duration(why.move_ms)}, worth {say.cash(why.move_worth)}."
    )


def moves_together(why: r.MovesTogether, say: Say) -> str:
    return (
        f"Moves together so that {why.gainer} ({why.gainer_gpus} GPUs) fits: gains {say.cash(why.gains)}, "
        f"costs {say.cash(why.costs)}."
    )


def displaced(why: r.Displaced, say: Say) -> str:
    return (
        f"Makes room for {why.gainer} ({why.gainer_gpus} GPUs), which may not leave; about {say.cash(why.cost)}, "
        "on its account."
    )


def preempted(why: r.Preempted, _: Say) -> str:
    return f"Makes room for {why.gainer} of priority {why.gainer_priority}; its own is {why.own_priority}."


def too_wide(why: r.TooWide, _: Say) -> str:
    return f"Refused: it needs {why.gpus} GPUs at once, and the widest place, {why.offer}, has {why.widest}."


def nothing_allowed(why: r.NothingAllowed, _: Say) -> str:
    return f"Refused: no place may run it. {why.offer}: {why.rule} ({why.where})."


def cancel_asked(_: r.CancelAsked, __: Say) -> str:
    return "A person asked."


def no_more_work(why: r.NoMoreWork, _: Say) -> str:
    return f"Given back: idle for {duration(why.idle_ms)}."


def never_started(_: r.NeverStarted, __: Say) -> str:
    return "Given back: what it was for will not start there."


SAYS: Final[dict[type, Callable[[Any, Say], str]]] = {
    r.AimsAtDelay: aims_at_delay,
    r.AimsAtSpend: aims_at_spend,
    r.CancelAsked: cancel_asked,
    r.CapBinds: cap_binds,
    r.CheaperElsewhere: cheaper_elsewhere,
    r.ComesHome: comes_home,
    r.Displaced: displaced,
    r.EndsAlike: ends_alike,
    r.JoinsNode: joins_node,
    r.LeaseNotRenewed: lease_not_renewed,
    r.LostNode: lost_node,
    r.MoveAsked: move_asked,
    r.MovesTogether: moves_together,
    r.NeverStarted: never_started,
    r.NoMoreWork: no_more_work,
    r.NoRoomThere: no_room_there,
    r.NotWorthWaiting: not_worth_waiting,
    r.NothingAllowed: nothing_allowed,
    r.OnlyOwned: only_owned,
    r.OwnedFree: owned_free,
    r.Paced: paced,
    r.PatienceOver: patience_over,
    r.PeriodUnknown: period_unknown,
    r.PlacementsPaused: placements_paused,
    r.Preempted: preempted,
    r.QueueFull: queue_full,
    r.RateBinds: rate_binds,
    r.RoomMade: room_made,
    r.ScopeFrozen: scope_frozen,
    r.TooWide: too_wide,
    r.WaitWorth: wait_worth,
    r.WaitedLongest: waited_longest,
    r.WaitsForOwned: waits_for_owned,
}
