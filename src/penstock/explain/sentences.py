"""Explain one recorded reason in one or two sentences, from its own numbers. `story` and the API call it.

    sentence(because, Say(currency, until_at))

Nothing here knows a policy. `SAYS` at the end has a function for each reason.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.core.model import reasons as r
from penstock.core.units import GB, HOUR, MINUTE, MOST_MONEY, NEVER, PERMILLE, Instant, Millis, Money
from penstock.core.values import value
from penstock.formatting import are, count, duration, instant, money, were

SHORT_MS: Final = 10 * MINUTE  #: jobs that take less are told of to the second
MOST_RULES: Final = 4  #: that one sentence names
MOST_OFFERS: Final = 3  #: that it names for each


@value
class Say:
    """What a sentence needs beside its reason: the currency, and until when the job is queued at the latest."""

    currency: str
    until_at: Instant = NEVER
    age_ms: Millis = 0  # since the decision; 0: tell it as of then

    def cash(self, amount: Money) -> str:
        return money(amount, self.currency)

    @property
    def until(self) -> str:
        """Text to follow a comma or a word; empty if no instant is known."""
        return "" if self.until_at >= NEVER else f"until {instant(self.until_at)}"

    @property
    def age(self) -> str:
        return f" {duration(self.age_ms)} ago" if self.age_ms else ""


def sentence(why: r.Reason, say: Say) -> str:
    return SAYS[type(why)](why, say)


def stop_sentence(why: r.Reason, say: Say) -> str:
    """Why an attempt is stopped. Some reasons are of stops only, and say so themselves."""
    says_so = isinstance(why, r.LeaseEnds | r.NodeTakenSoon)
    return sentence(why, say) if says_so else f"Stopping. {sentence(why, say)}"


# --- owned GPUs ------------------------------------------------------------------------------------------------------


def owned_free(why: r.OwnedFree, _: Say) -> str:
    return f"{_free_after(why)}."


def ends_alike(why: r.EndsAlike, _: Say) -> str:
    busy = (
        f"Other jobs use its node for another {duration(why.busy_ms)}" if why.busy_ms else "No other job uses its node"
    )
    return f"{_free_after(why)}. {busy}; this one is expected to run {duration(why.expected_run_ms)}."


def _free_after(why: r.OwnedFree | r.EndsAlike | r.Backfills) -> str:
    waited = f" after {duration(why.waited_ms)} in the queue" if why.waited_ms else ""
    return f"{were(why.free_gpus, 'GPU')} free{waited}"


def room_made(why: r.RoomMade, _: Say) -> str:
    makes = "1 job makes" if len(why.left_by) == 1 else f"{len(why.left_by)} jobs make"
    waited = f" after {duration(why.waited_ms)} in the queue" if why.waited_ms else ""
    return f"{makes} room for it ({', '.join(why.left_by)}); {were(why.free_gpus, 'GPU')} free{waited}."


def waits_for_owned(why: r.WaitsForOwned, say: Say) -> str:
    cost = why.burst_cost
    burst = (
        _bursting(cost, why.expected_run_ms, say) if cost is not None else f"No rented offer fits{say.age or ' now'}"
    )
    return f"{_queued(why.patience_ms, say)}: {_too_few(why.free_gpus)}{say.age}. {burst}."


def _due(why: r.WaitWorth | r.NotWorthWaiting, must: str, say: Say) -> str:
    """When it leaves for its deadline, or that this is too late by now."""
    late, short = why.late, why.expected_run_ms < SHORT_MS
    if late is None:
        at = instant(why.leave_at, seconds=short)
        return f" To meet its deadline it {must} burst by {at}." if why.leave_at else ""
    cost = f", {say.cash(late.penalty)} of penalty" if late.penalty else ""
    due = instant(late.deadline_at, seconds=short)
    return f" Its deadline, {due}, cannot be met there: about {duration(late.by_ms)} late{cost}."


def wait_worth(why: r.WaitWorth, say: Say) -> str:
    ahead = f"{count(why.ahead, 'job')} ahead" if why.ahead else "first in the queue"
    due = _due(why, "must", say)
    return (
        f"{_queued(why.patience_ms, say)}: {_too_few(why.free_gpus)}, {ahead}{say.age}.{_forecast(why, say)} "
        f"{_bursting(why.cost, why.expected_run_ms, say)}{_as_delay(why, say)}.{due}"
    )


def _bursting(cost: Money, run_ms: Millis, say: Say) -> str:
    now = "" if say.age_ms else " now"
    return f"Bursting{now} costs about {say.cash(cost)} for {duration(run_ms)}"


def _queued(patience_ms: Millis, say: Say) -> str:
    """Patience counts from submission, so the instant is named, too: by its minute, where that says more."""
    until = f", {say.until}" if say.until and patience_ms >= MINUTE else ""
    return f"Queued for up to {duration(patience_ms)}{until}"


def _too_few(free_gpus: int) -> str:
    """Free GPUs that do not help are too few, or spread over nodes."""
    return f"{count(free_gpus, 'GPU')} free" + (" (too few, or on several nodes)" if free_gpus else "")


def _forecast(why: r.WaitWorth, say: Say) -> str:
    """Nothing is promised beyond its patience: then it bursts. An old forecast is told with its age, until its time is
    over: then it was wrong, and says nothing any more.
    """
    if not why.about_ms or say.age_ms > max(why.about_ms, why.worst_ms):
        return ""
    if say.age_ms > why.about_ms:
        return f" Its start was expected {duration(say.age_ms - why.about_ms)} ago."
    if say.age_ms:
        left_ms = why.about_ms - say.age_ms
        return f" Its start is expected in about {duration(left_ms)}, by the estimate of{say.age}."
    if why.about_ms > why.patience_ms:
        return f" Owned GPUs come free in about {duration(why.about_ms)}, as often later as sooner."
    worst = f", nine times in ten within {duration(why.worst_ms)}" if why.worst_ms <= why.patience_ms else ""
    return f" Its start is expected in about {duration(why.about_ms)}{worst}."


def _as_delay(why: r.WaitWorth | r.NotWorthWaiting, say: Say) -> str:
    """How long the burst's price is worth waiting. The policy's longest wait or a deadline may limit it."""
    if not why.value_per_hour:
        return f"; delay costs nothing, and the longest wait is {duration(why.patience_ms)}"
    plain_ms = why.cost * HOUR // why.value_per_hour
    dearer = why.dearer_permille if isinstance(why, r.WaitWorth) else why.patience_ms * PERMILLE // max(1, plain_ms)
    weighted = f", and money counts {dearer / PERMILLE:.2f} times for the month's budget" if dearer > PERMILLE else ""
    worth_ms = plain_ms * max(PERMILLE, dearer) // PERMILLE
    limited = f"; it may wait {duration(why.patience_ms)}" if duration(why.patience_ms) != duration(worth_ms) else ""
    hour = f"an hour of its delay costs {say.cash(why.value_per_hour)}"
    return f"; {hour}{weighted}, so {duration(worth_ms)} of delay cost as much{limited}"


def only_owned(why: r.OnlyOwned, say: Say) -> str:
    return f"Queued for owned GPUs: {_too_few(why.free_gpus)}{say.age}. It cannot burst: {_ruled_out(why)}."


def nothing_suits(why: r.NothingSuits, _: Say) -> str:
    away = f" It cannot burst: {why.elsewhere}{_in(why.where)}." if why.elsewhere else ""
    return f"Queued until something changes at {why.site}: {as_sentence(why.why)}{away}"


def waited_longest(why: r.WaitedLongest, say: Say) -> str:
    queued = f"has been queued for {duration(why.waited_ms + say.age_ms)}; the limit is {duration(why.most_ms)}"
    free = f"The reserved nodes were expected{say.age}" if say.age_ms else "The reserved nodes are expected"
    return f"It cannot burst and {queued}. {free} to be free in {duration(why.free_in_ms)}."


def backfills(why: r.Backfills, _: Say) -> str:
    reserved = f"Backfills GPUs that are reserved for {why.reserved_for}"
    ends = "19 of 20 such jobs end" if why.learned else "it says that it ends"
    how = {
        "ends": f" at {instant(why.start_at)}: {ends} by {instant(why.ends_by)}",
        "gives_way": f", not before {instant(why.start_at)}: it goes back to the queue when that job can start",
        "beside": ": both fit",
    }[why.way]
    return f"{reserved}{how}. {_free_after(why)}."


def gives_way(why: r.GivesWay, _: Say) -> str:
    late = f"It was to end by {instant(why.ends_by)}" if why.ends_by else "Its run time was unknown"
    return (
        f"Preempted: its nodes are reserved for {why.gainer} ({count(why.gainer_gpus, 'GPU')}), which can start now. "
        f"{late}."
    )


# --- bursts ----------------------------------------------------------------------------------------------------------


def patience_over(why: r.PatienceOver, say: Say) -> str:
    queued = f"it was queued for {duration(why.waited_ms)}, and its policy allows {duration(why.patience_ms)}"
    since = queued if why.patience_ms else "its policy lets no job wait"
    return (
        f"{_why_not_owned(why)}; {since}. It costs about {say.cash(why.cost)} for {duration(why.expected_run_ms)}"
        f"{_runner_up(why, say)}."
    )


def not_worth_waiting(why: r.NotWorthWaiting, say: Say) -> str:
    soon = why.soonest_ms and not why.failed_at
    soonest = f" (free in {duration(why.soonest_ms)} at best)" if soon else ""
    queued = f"; it was queued for {duration(why.waited_ms)}" if why.waited_ms else ""
    due = _due(why, "had to", say)
    return (
        f"{_why_not_owned(why)}{soonest}{queued}. It costs about "
        f"{say.cash(why.cost)} for {duration(why.expected_run_ms)}{_as_delay(why, say)}{_runner_up(why, say)}.{due}"
        + _passed_over(why)
    )


def _why_not_owned(why: r.PatienceOver | r.NotWorthWaiting) -> str:
    if why.barred_by:
        return f"It may not use owned GPUs: {as_words(why.barred_by)}"
    return f"Its start at {why.failed_at} failed" if why.failed_at else "Owned GPUs were full"


def joins_node(why: r.JoinsNode, say: Say) -> str:
    beside = f"; a node of its own at {why.next_offer} costs {say.cash(why.next_cost)}" if why.next_offer else ""
    stays = f"its other jobs are expected to run another {duration(why.lasts_ms)}" if why.lasts_ms else "no job uses it"
    return (
        f"The node has {count(why.free_gpus, 'free GPU')}, and {stays}. "
        f"It costs about {say.cash(why.cost)} for {duration(why.expected_run_ms)}{beside}."
    )


def takes_warm_node(why: r.TakesWarmNode, say: Say) -> str:
    beside = f"; a node of its own at {why.next_offer} costs {say.cash(why.next_cost)}" if why.next_offer else ""
    idle = f"A warm node was ready for {duration(why.idle_ms)}" if why.idle_ms else "A warm node is ready"
    if why.start_ms:
        idle = f"A warm node is starting, and ready in {duration(why.start_ms)}"
    return f"{idle}. It costs about {say.cash(why.cost)} for {duration(why.expected_run_ms)}{beside}."


def kept_warm(why: r.KeptWarm, _: Say) -> str:
    until = f" until {instant(why.until_at)}" if why.until_at < NEVER else ""
    return f"Kept warm{until}{_pool_of(why)}."


def wanted_soon(why: r.WantedSoon, _: Say) -> str:
    p10, p50, p90, now, impatient, free = (
        f"{amount / PERMILLE:,.1f}" for amount in (why.p10, why.p50, why.p90, why.now, why.impatient, why.free)
    )
    return (
        f"Kept warm{_pool_of(why)}. Within its start of {duration(why.start_ms)}, {p10} GPUs will very likely be "
        f"wanted (P50 {p50}, P90 {p90}). Wanted now: {now}, of which {impatient} by jobs that burst by then; "
        f"{free} are free."
    )


def _pool_of(why: r.KeptWarm | r.WantedSoon) -> str:
    return f" on the budget of {why.budget}; its pool had {why.has:,} of {count(why.wanted, 'node')}"


WARM_ENDS: Final = {
    "hours": "the hours of its pool are over",
    "forecast": "no demand is forecast for it",
    "pool": "its pool is smaller or closed",
    "money": "the budget of its pool has no room for it",
    "lease": "its lease ends for good",
}


def warm_ends(why: r.WarmEnds, _: Say) -> str:
    idle = f" It was idle for {duration(why.idle_ms)}." if why.idle_ms else ""
    return f"Warm node returned: {WARM_ENDS[why.cause]}.{idle}"


def cluster_needed(why: r.ClusterNeeded, say: Say) -> str:
    return f"A job needs it. It takes about {duration(why.start_ms)} to come, and {_cluster_cost(why, say)}."


def cluster_wanted(why: r.ClusterWanted, say: Say) -> str:
    return f"A person wants it until {instant(why.until_at)}. It {_cluster_cost(why, say)}."


def _cluster_cost(why: r.ClusterNeeded | r.ClusterWanted, say: Say) -> str:
    return f"costs {say.cash(why.per_hour)}/h on the budget of {why.budget}"


CLUSTER_ENDS: Final = {
    "idle": "nothing uses it",
    "asked": "a person sent it away",
    "lease": "its lease ends",
    "site": "its site has no transient cluster any more",
}


def cluster_ends(why: r.ClusterEnds, _: Say) -> str:
    unused = f" It was unused for {duration(why.unused_ms)}." if why.unused_ms else ""
    return f"Cluster returned: {CLUSTER_ENDS[why.cause]}.{unused}"


def _runner_up(why: r.PatienceOver | r.NotWorthWaiting, say: Say) -> str:
    if not why.next_offer:
        return ""
    other = f"; {why.next_offer} costs {say.cash(why.next_cost)}"
    ruled_out = ", but a limit on money, a later end or the job's order of GPU models spoke against it"
    return f"{other}{ruled_out}" if why.next_cost < why.cost else other


def queue_full(why: r.QueueFull, say: Say) -> str:
    return (
        f"{are(why.waiting, 'job')} queued, and the policy allows {why.queue_cap:,}: the newest one bursts. "
        f"It costs about {say.cash(why.cost)}."
    )


def lost_node(why: r.LostNode, say: Say) -> str:
    return (
        f"Resumes after {why.lost_attempt} was preempted: {duration(why.kept_ms)} of work kept, "
        f"{duration(why.redone_ms)} repeated. It costs about {say.cash(why.cost)} to the end." + _passed_over(why)
    )


def _passed_over(why: r.NotWorthWaiting | r.LostNode) -> str:
    cheaper = f" {why.passed_over} is cheaper, but preemptions or copies there could delay it beyond the limit."
    return cheaper if why.passed_over else ""


# --- money and room --------------------------------------------------------------------------------------------------


def cap_binds(why: r.CapBinds, say: Say) -> str:
    return f"Budget reached: {_denied(why, say)}"


def rate_binds(why: r.RateBinds, say: Say) -> str:
    return f"Spending rate reached: {_denied(why, say)}"


def scope_frozen(why: r.ScopeFrozen, say: Say) -> str:
    return f"Budget frozen. {_denied(why, say)}"


def period_unknown(_: r.PeriodUnknown, __: Say) -> str:
    return "Queued: the budget of the month it would be charged to is not open yet."


def paced(why: r.Paced, say: Say) -> str:
    return (
        f"Queued {say.until or 'for now'}, or until owned GPUs are free: the budget of {why.scope} is released evenly, "
        f"{say.cash(why.released)} of {say.cash(why.cap)} in {why.period} so far; {say.cash(why.used)} is spent or "
        f"held, and this needs about {say.cash(why.needed)}."
    )


def no_room_there(why: r.NoRoomThere, _: Say) -> str:
    return f"Queued: no rented offer it may use has capacity. Penstock tries {why.offer} again {instant(why.retry_at)}."


def placements_paused(_: r.PlacementsPaused, __: Say) -> str:
    return "Queued: a person paused all new starts."


def aims_at_delay(why: r.AimsAtDelay, say: Say) -> str:
    return (
        f"The mean delay of {count(why.jobs, 'job')} was {duration(why.mean_delay_ms)}; the target is "
        f"{duration(why.target_ms)}. The cost of delay was {say.cash(why.before_per_hour)}/h."
    )


def aims_at_spend(why: r.AimsAtSpend, say: Say) -> str:
    return (
        f"Jobs cost {say.cash(why.spent)} since the last adjustment; the target of {say.cash(why.target)} "
        f"allows {say.cash(why.share)} for that time. The cost of delay was {say.cash(why.before_per_hour)}/h."
    )


# --- what a policy file says of the moment ---------------------------------------------------------------------------


def no_trigger_holds(why: r.NoTriggerHolds, say: Say) -> str:
    seen = "; ".join(_trigger(trigger) for trigger in why.seen)
    return (
        f"Queued: it would burst to {why.offer} for about {say.cash(why.cost)}, but no trigger of the "
        f"policy holds{say.age}: {seen}."
    )


def burst_allowed(why: r.BurstAllowed, say: Say) -> str:
    held = f" Trigger of the policy: {_trigger(why.trigger)}." if why.trigger is not None else ""
    dear = "".join(f" Passed over: {_dear(passed, say)}." for passed in why.passed_over)
    return f"{sentence(why.burst, say)}{held}{dear}"


def _trigger(seen: r.TriggerSeen) -> str:
    where = _where(seen.source)
    match seen.trigger:
        case "queued_jobs":
            return f"{are(seen.seen, 'job')} queued, it holds from {seen.threshold:,}{where}"
        case "expected_wait":
            return f"the expected wait is {duration(seen.seen)}, it holds from {duration(seen.threshold)}{where}"
        case "utilisation":
            times = f" for {duration(seen.for_ms)}" if seen.for_ms else ""
            held = f" for {duration(seen.held_ms)}" if seen.held_ms else ""
            from_ = f"it holds from {_percent(seen.threshold)}{times}"
            return f"{_percent(seen.seen)} of owned GPUs are in use{held}, {from_}{where}"
        case "deadline_at_risk":
            due = f"to meet its deadline it must burst by {instant(seen.seen)}" if seen.seen else "it has no deadline"
            return f"{due}{where}"


def _percent(permille: int) -> str:
    return f"{permille // 10} %" if permille % 10 == 0 else f"{permille / 10:.1f} %"


def _where(source: str) -> str:
    return f" ({source})" if source else ""


def too_dear(why: r.TooDear, say: Say) -> str:
    return f"Queued: {_dear(why, say)}."


def _dear(why: r.TooDear, say: Say) -> str:
    before = f", {say.cash(why.spent)} of it is spent or held" if why.spent else ""
    return (
        f"{why.offer} costs about {say.cash(why.cost)}, and one job may cost {say.cash(why.limit)}{before}"
        f"{_where(why.source)}"
    )


def team_at_limit(why: r.TeamAtLimit, say: Say) -> str:
    return (
        f"Queued: {why.team} may have {count(why.limit, 'GPU')} at once; it has {why.used:,}{say.age}, and this needs "
        f"{why.needed:,}{_where(why.source)}."
    )


def egress_spent(why: r.EgressSpent, _: Say) -> str:
    month = f" in {why.period}" if why.period else ""
    return (
        f"Queued: {why.team} may bring {_size(why.limit_bytes)} out of rented sites{month}; "
        f"{_size(why.used_bytes)} is counted, and its output is {_size(why.needed_bytes)}{_where(why.source)}."
    )


def _size(size_bytes: int) -> str:
    if size_bytes >= 1000 * GB:
        return f"{size_bytes / (1000 * GB):.2f} TB"
    return f"{size_bytes / GB:.1f} GB" if size_bytes >= GB else f"{size_bytes / (GB // 1000):.1f} MB"


def in_quiet_hours(why: r.InQuietHours, _: Say) -> str:
    until = f"until {instant(why.ends_at)}, in quiet hours"
    return f"Queued: nothing new is rented {until}{_where(why.source)}."


def headroom_kept(why: r.HeadroomKept, say: Say) -> str:
    whom = f"class {why.for_class}" if why.for_class else "others"
    gpus = f"{count(why.gpus, 'GPU')} of {why.site} {'is' if why.gpus == 1 else 'are'} kept free for {whom}"
    return f"{sentence(why.wait, say)} Until {instant(why.ends_at)} {gpus}{_where(why.source)}."


def ran_too_long(why: r.RanTooLong, _: Say) -> str:
    return (
        f"Failed: it has run {duration(why.ran_ms)}, and jobs of class {why.job_class} may run "
        f"{duration(why.longest_ms)}{_where(why.source)}."
    )


# --- moves, refusals, ends -------------------------------------------------------------------------------------------


def move_asked(why: r.MoveAsked, _: Say) -> str:
    return f"A person moved it from {why.from_offer}; {duration(why.kept_ms)} of work kept."


def lease_not_renewed(why: r.LeaseNotRenewed, say: Say) -> str:
    kept = f"{duration(why.kept_ms)} of work kept"
    binds = _denied(why.denied, say)
    return f"Moves from {why.from_offer} to owned GPUs, {kept}: its lease there was not renewed. {binds}"


def _denied(why: r.Denial, say: Say) -> str:
    """The binding limit, without what follows from it."""
    match why:
        case r.CapBinds():
            month = f" in {why.period}" if why.period else ""
            free = f"{say.cash(why.kept_free)} is kept free, " if why.kept_free else ""
            most = ", the most that the books can hold" if why.cap == MOST_MONEY else ""
            kept = f" for the {duration(why.useful_ms)} until its next checkpoint" if why.useful_ms else ""
            return (
                f"{why.scope} may spend {say.cash(why.cap)}{month}{most}; {say.cash(why.spent)} is spent, "
                f"{say.cash(why.held)} is held, {free}and this needs {say.cash(why.needed)}{kept}."
            )
        case r.RateBinds():
            return (
                f"{why.scope} may spend {say.cash(why.cap_per_hour)}/h; what runs costs up to "
                f"{say.cash(why.running_per_hour)}/h, and this needs {say.cash(why.needed_per_hour)}/h."
            )
        case r.PeriodUnknown():
            return "The month it would be booked to is not open yet."
        case r.ScopeFrozen():
            more = say.cash(why.overrun)
            return f"Providers billed {more} more than was held for {why.scope}. A person must look at it first."


def comes_home(why: r.ComesHome, say: Say) -> str:
    return (
        f"Moves to owned GPUs: about {duration(why.left_ms)} left, which would cost {say.cash(why.saves)} if rented; "
        f"the move delays it by {duration(why.move_ms)}, which costs {say.cash(why.move_worth)}."
    )


def cheaper_elsewhere(why: r.CheaperElsewhere, say: Say) -> str:
    return (
        f"Moves to cheaper GPUs: about {duration(why.left_ms)} left, {say.cash(why.cost)} there instead of "
        f"{say.cash(why.stays)}; the move delays it by {duration(why.move_ms)}, which costs {say.cash(why.move_worth)}."
    )


def moves_together(why: r.MovesTogether, say: Say) -> str:
    return (
        f"Moves so that {why.gainer} ({count(why.gainer_gpus, 'GPU')}) fits: together the moves save "
        f"{say.cash(why.gains)} and cost {say.cash(why.costs)}."
    )


def displaced(why: r.Displaced, say: Say) -> str:
    return (
        f"Makes room for {why.gainer} ({count(why.gainer_gpus, 'GPU')}), which cannot burst. "
        f"Its rent of about {say.cash(why.cost)} is charged to that job's budget."
    )


def preempted(why: r.Preempted, _: Say) -> str:
    return (
        f"Preempted by {why.gainer}, which has priority {why.gainer_priority}; its own priority is {why.own_priority}."
    )


def class_preempted(why: r.ClassPreempted, _: Say) -> str:
    return (
        f"Preempted by {why.gainer}: class {why.gainer_class} may stop jobs of class {why.own_class}{_in(why.where)}."
    )


def above_share(why: r.AboveShare, say: Say) -> str:
    return (
        f"Its {_over(why)}, and team {why.waiting_team} waits for its own{_in(why.where)}. It costs about "
        f"{say.cash(why.cost)}."
    )


def share_returned(why: r.ShareReturned, say: Say) -> str:
    return (
        f"Makes room for {why.gainer} of team {why.gainer_team}: {_over(why)}{_in(why.where)}. The rent, about "
        f"{say.cash(why.cost)}, is its own."
    )


def _over(why: r.AboveShare | r.ShareReturned) -> str:
    return f"team {why.team} has {count(why.gpus, 'owned GPU')} for a share of {why.share_gpus:,}"


def too_wide(why: r.TooWide, _: Say) -> str:
    return f"Refused: it needs {count(why.gpus, 'GPU')} at once; the largest offer, {why.offer}, has {why.widest:,}."


def nothing_allowed(why: r.NothingAllowed, _: Say) -> str:
    if why.each:
        return f"Refused: no offer may run it. {_ruled_out(why)}."
    return f"Refused: no offer may run it. {why.offer}: {as_words(why.rule)}{_in(why.where)}."


def _ruled_out(why: r.OnlyOwned | r.NothingAllowed) -> str:
    """One rule for all offers, or the rule for each, those that keep it from most offers first."""
    if not why.each:
        return f"{as_words(why.rule)}{_in(why.where)}"
    ordered = sorted(why.each, key=lambda each: -len(each.offers))
    said = [f"{_few(each.offers)}: {as_words(each.rule)}{_in(each.where)}" for each in ordered[:MOST_RULES]]
    return "; ".join(said + ([f"{len(ordered) - MOST_RULES} more rules"] if len(ordered) > MOST_RULES else []))


def _few(names: tuple[str, ...]) -> str:
    more = len(names) - MOST_OFFERS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MOST_OFFERS])} and {more} more"


def _in(where: str) -> str:
    """File and line of a policy's rule."""
    return f" ({where})" if where else ""


#: A rule of the engine's own, as journals have it.
TOO_WIDE: Final = re.compile(r"too wide: at most ([0-9]+) GPUs there")


def as_words(rule: str) -> str:
    """A recorded rule for people: some are short."""
    wide = TOO_WIDE.fullmatch(rule)
    return f"it needs more at once than the {count(int(wide[1]), 'GPU')} there" if wide else rule


def awaits_approval(why: r.AwaitsApproval, say: Say) -> str:
    broken = f" The rule cannot be evaluated, so it asks: {as_sentence(why.error)}" if why.error else ""
    return (
        f"Queued: bursting to {why.offer} for about {say.cash(why.cost)} needs approval by {role(why.role)} before "
        f"{instant(why.until_at)} ({_rule(why)}). Owned GPUs that become free are used meanwhile.{broken}"
    )


def approval_denied(why: r.ApprovalDenied, say: Say) -> str:
    burst = f"bursting to {why.offer} for about {say.cash(why.cost)}"
    if why.answer == "unanswered":
        return f"May not burst: {burst} needs approval by {role(why.role)}, and nobody answered in time ({_rule(why)})."
    words = f" {as_sentence(why.words)}" if why.words else ""
    return f"May not burst: {why.by or 'a person'} denied {burst} ({_rule(why)}).{words}"


def role(name: str) -> str:
    """A role with its article: `role:approver` is an approver."""
    name = name.removeprefix("role:")
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def _rule(why: r.AwaitsApproval | r.ApprovalDenied) -> str:
    return f"rule {why.rule}, {why.source}" if why.source else f"rule {why.rule}"


def cancel_asked(_: r.CancelAsked, __: Say) -> str:
    return "A person cancelled it."


def not_starting(why: r.NotStarting, _: Say) -> str:
    return f"Not started yet at {why.offer}: {as_sentence(why.words)}"


def start_failed(why: r.StartFailed, say: Say) -> str:
    if why.cause == "in_vain":
        ended = f"Ended at {why.offer} after {duration(why.took_ms)} before any work was kept"
        return f"{ended}, {why.failures} times in a row. This try cost {say.cash(why.cost)}.{_again(why)}"
    words = {
        "full": f"No capacity for it at {why.offer}",
        "lost": f"Lost at {why.offer}",
        "stopped": f"Stopped at {why.offer}",
    }.get(why.cause, f"Not started at {why.offer}")
    return f"{words}{': ' + as_sentence(why.words) if why.words else '.'} {tried(why, say)}"


def tried(why: r.StartFailed, say: Say) -> str:
    """What a failed start cost, and when the next one comes."""
    times = f", the {_ordinal(why.failures)} time in a row" if why.failures > 1 else ""
    again = _again(why)
    if why.nodes:
        these = "this node" if why.nodes == 1 else f"these {why.nodes} nodes"
        again = f" It is not tried on {these} again before something changes there."
    took, spent = duration(why.took_ms), f"{count(why.gpus, 'GPU')} cost {say.cash(why.cost)}"
    if why.cause in ("lost", "stopped"):
        return f"That was {took} after its start, before it made progress{times}: {spent}.{again}"
    return f"The start failed after {took}{times}: {spent}.{again}"


def _again(why: r.StartFailed) -> str:
    return f" It is not tried there again before {instant(why.retry_at)}." if 0 < why.retry_at < NEVER else ""


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def as_sentence(words: str) -> str:
    """A site's own words as a sentence."""
    return words if words.endswith((".", "!", "?")) else words + "."


def suspend_asked(_: r.SuspendAsked, __: Say) -> str:
    return "A person suspended it."


def no_more_work(why: r.NoMoreWork, _: Say) -> str:
    return f"Node returned: idle for {duration(why.idle_ms)}."


def never_started(_: r.NeverStarted, __: Say) -> str:
    return "Node returned: the job it was rented for does not start there."


def lease_ends(why: r.LeaseEnds, _: Say) -> str:
    return f"Stops with a checkpoint: the lease of its node at {why.offer} ends at {instant(why.ends_at)} for good."


def node_taken_soon(why: r.NodeTakenSoon, _: Say) -> str:
    words = f" ({why.words})" if why.words else ""
    return f"Stops with a checkpoint: its node at {why.offer} will be taken away{words}."


SAYS: Final[dict[type, Callable[[Any, Say], str]]] = {
    r.AimsAtDelay: aims_at_delay,
    r.AimsAtSpend: aims_at_spend,
    r.ApprovalDenied: approval_denied,
    r.AwaitsApproval: awaits_approval,
    r.BurstAllowed: burst_allowed,
    r.CancelAsked: cancel_asked,
    r.CapBinds: cap_binds,
    r.CheaperElsewhere: cheaper_elsewhere,
    r.ComesHome: comes_home,
    r.Displaced: displaced,
    r.EgressSpent: egress_spent,
    r.EndsAlike: ends_alike,
    r.HeadroomKept: headroom_kept,
    r.InQuietHours: in_quiet_hours,
    r.JoinsNode: joins_node,
    r.ClusterEnds: cluster_ends,
    r.ClusterNeeded: cluster_needed,
    r.ClusterWanted: cluster_wanted,
    r.KeptWarm: kept_warm,
    r.LeaseEnds: lease_ends,
    r.LeaseNotRenewed: lease_not_renewed,
    r.LostNode: lost_node,
    r.MoveAsked: move_asked,
    r.MovesTogether: moves_together,
    r.NeverStarted: never_started,
    r.NoMoreWork: no_more_work,
    r.NodeTakenSoon: node_taken_soon,
    r.NoRoomThere: no_room_there,
    r.NoTriggerHolds: no_trigger_holds,
    r.NotStarting: not_starting,
    r.NotWorthWaiting: not_worth_waiting,
    r.NothingAllowed: nothing_allowed,
    r.OnlyOwned: only_owned,
    r.NothingSuits: nothing_suits,
    r.OwnedFree: owned_free,
    r.Paced: paced,
    r.PatienceOver: patience_over,
    r.PeriodUnknown: period_unknown,
    r.PlacementsPaused: placements_paused,
    r.Preempted: preempted,
    r.ClassPreempted: class_preempted,
    r.AboveShare: above_share,
    r.ShareReturned: share_returned,
    r.QueueFull: queue_full,
    r.RanTooLong: ran_too_long,
    r.RateBinds: rate_binds,
    r.RoomMade: room_made,
    r.ScopeFrozen: scope_frozen,
    r.StartFailed: start_failed,
    r.SuspendAsked: suspend_asked,
    r.TakesWarmNode: takes_warm_node,
    r.TeamAtLimit: team_at_limit,
    r.TooDear: too_dear,
    r.TooWide: too_wide,
    r.WaitWorth: wait_worth,
    r.WaitedLongest: waited_longest,
    r.Backfills: backfills,
    r.GivesWay: gives_way,
    r.WaitsForOwned: waits_for_owned,
    r.WantedSoon: wanted_soon,
    r.WarmEnds: warm_ends,
}
