"""Why: a closed list. Each reason carries the numbers the choice used; `explain.sentences` puts them into words.

A reason is recorded with the promise it explains and never made up afterwards. `kind` names it in the journal. It only
explains: what a promise does to the state stands in the promise's own fields.
"""

from typing import Final, Literal, TypeAlias, get_args

from penstock.core.model.governance import TriggerKind
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value

#: What keeps one job from an offer that others may use: no node there suits it; something that it refers to is missing
#: or kept from it; our own admission policy does not know our login.
Obstacle: TypeAlias = Literal["", "unfit", "missing", "denied"]
#: Why a cloud gave no node: it has none left now; our quota there is used up; what it was told to use cannot be used.
Shortage: TypeAlias = Literal["", "stock_out", "quota", "settings"]


@value
class OwnedFree:
    """Started on standing GPUs: they were free and it was this job's turn."""

    waited_ms: Millis
    free_gpus: int  # at that offer, before this start
    kind: Literal["OwnedFree"] = "OwnedFree"


@value
class EndsAlike:
    """Started on standing GPUs, on the node that stays in use for least longer because of it."""

    waited_ms: Millis
    free_gpus: int  # at that offer, before this start
    expected_run_ms: Millis
    busy_ms: Millis  # how long others use the node anyway; 0 for a node, or several, that nobody used
    kind: Literal["EndsAlike"] = "EndsAlike"


@value
class RoomMade:
    """Started on standing GPUs that others leave for it: preempted, or moved to rented offers."""

    waited_ms: Millis
    free_gpus: int  # at that offer, before they leave
    left_by: tuple[str, ...]  # jobs
    kind: Literal["RoomMade"] = "RoomMade"


@value
class WaitsForOwned:
    """Not yet: standing GPUs are busy, and the job's patience is longer than nothing."""

    patience_ms: Millis
    expected_run_ms: Millis
    free_gpus: int  # free now on standing offers it may use, too few or in pieces
    burst_cost: Money | None  # what going now would be expected to cost; None where no rented offer fits
    kind: Literal["WaitsForOwned"] = "WaitsForOwned"


@value
class PatienceOver:
    """Burst: it waited as long as its policy allows; this is the cheapest allowed offer."""

    waited_ms: Millis
    patience_ms: Millis
    expected_run_ms: Millis
    cost: Money
    next_offer: str  # the runner-up, empty if there was none
    next_cost: Money
    failed_at: str = ""  # a standing offer where its start failed; empty: they were full
    barred_by: str = ""  # the rule, with file and line, that keeps it from standing offers; empty: it may use some
    kind: Literal["PatienceOver"] = "PatienceOver"


@value
class Late:
    """Started there now it misses its deadline, as four of five such jobs would by that much or less."""

    deadline_at: Instant
    by_ms: Millis
    penalty: Money  # that it pays for so much


@value
class WaitWorth:
    """Not yet: bursting now would cost more than the waiting is worth, and standing GPUs may come free in time."""

    cost: Money
    value_per_hour: Money
    patience_ms: Millis  # cost / value, capped
    expected_run_ms: Millis
    soonest_ms: Millis  # an optimistic start, from how often such GPUs came free and who is ahead
    ahead: int
    free_gpus: int
    about_ms: Millis = 0  # from now until its start on standing GPUs: as often sooner as later
    worst_ms: Millis = 0  # nine of ten start sooner
    leave_at: Instant = 0  # the latest it can leave and still meet its deadline; 0 if it has none
    dearer_permille: int = 1000  # how much dearer money is, the more of the month's is used
    late: Late | None = None  # it would miss its deadline there
    kind: Literal["WaitWorth"] = "WaitWorth"


@value
class NotWorthWaiting:
    """Burst: waiting any longer is worth more than the burst costs, or even an optimistic start comes too late."""

    waited_ms: Millis
    cost: Money
    value_per_hour: Money
    patience_ms: Millis
    soonest_ms: Millis
    expected_run_ms: Millis
    next_offer: str
    next_cost: Money
    leave_at: Instant = 0  # the latest it can leave and still meet its deadline; 0 if it has none
    passed_over: str = ""  # a cheaper offer, where losses or copies could make it later than anybody may be
    failed_at: str = ""  # a standing offer where its start failed; empty: they were full
    barred_by: str = ""  # the rule, with file and line, that keeps it from standing offers; empty: it may use some
    late: Late | None = None  # it misses its deadline there
    kind: Literal["NotWorthWaiting"] = "NotWorthWaiting"


@value
class JoinsNode:
    """Burst: onto a node that is rented already, where it costs less than a node of its own."""

    waited_ms: Millis
    free_gpus: int  # to spare there, before this start
    lasts_ms: Millis  # how long those who are there are expected to stay
    expected_run_ms: Millis
    cost: Money  # expected: of the whole node, for as long as it outlives them
    next_offer: str  # the cheapest node of its own, empty if there was none
    next_cost: Money
    kind: Literal["JoinsNode"] = "JoinsNode"


@value
class TakesWarmNode:
    """Burst: onto a node that was rented ahead and waits for a job. It pays for it from now on."""

    waited_ms: Millis
    start_ms: Millis  # until the node is ready
    idle_ms: Millis  # that it was kept for somebody, on its pool's budget
    expected_run_ms: Millis
    cost: Money
    next_offer: str  # the cheapest node of its own, empty if there was none
    next_cost: Money
    kind: Literal["TakesWarmNode"] = "TakesWarmNode"


@value
class KeptWarm:
    """A node is rented ahead, or kept when a job has left it, because its pool has fewer than it should."""

    wanted: int  # nodes in the pool
    has: int  # before this one
    budget: str  # the scope that pays
    until_at: Instant  # when its hours end; NEVER: they do not
    source: str
    kind: Literal["KeptWarm"] = "KeptWarm"


@value
class WantedSoon:
    """The same, by forecast: as many GPUs more are very likely to be wanted within the time that a node takes to start.

    All in thousandths of a GPU but what a pool counts.
    """

    wanted: int  # nodes in the pool
    has: int
    budget: str
    start_ms: Millis
    p10: int  # GPUs wanted then
    p50: int
    p90: int
    now: int  # GPUs wanted now
    impatient: int  # of these, by queued jobs whose patience ends within that time
    free: int  # on owned and reserved nodes
    source: str
    kind: Literal["WantedSoon"] = "WantedSoon"


@value
class WarmEnds:
    """A node that no job took is given back."""

    idle_ms: Millis
    cause: Literal["hours", "forecast", "pool", "money", "lease"]
    kind: Literal["WarmEnds"] = "WarmEnds"


@value
class ClusterNeeded:
    """A transient cluster is asked for: a job starts at its site, and there is none."""

    budget: str  # the scope that pays
    per_hour: Money
    start_ms: Millis
    source: str
    kind: Literal["ClusterNeeded"] = "ClusterNeeded"


@value
class ClusterWanted:
    """A transient cluster is asked for: a person wants it up until then."""

    budget: str
    per_hour: Money
    until_at: Instant
    kind: Literal["ClusterWanted"] = "ClusterWanted"


@value
class ClusterEnds:
    """A transient cluster is given back: nothing runs there, and nobody needs it any more."""

    unused_ms: Millis
    cause: Literal["idle", "asked", "lease", "site"]
    kind: Literal["ClusterEnds"] = "ClusterEnds"


@value
class CheaperElsewhere:
    """Moved between rented places: what is left would cost more there than here, and the move."""

    left_ms: Millis  # expected, given how long it has run
    stays: Money  # what that costs where it is
    cost: Money  # and where it goes
    move_ms: Millis  # start, restart and work done again
    move_worth: Money
    kind: Literal["CheaperElsewhere"] = "CheaperElsewhere"


@value
class ComesHome:
    """Moved to standing GPUs: what is left would cost more rented than the move costs."""

    left_ms: Millis  # expected, given how long it has run
    saves: Money
    move_ms: Millis  # restart and work done again
    move_worth: Money
    kind: Literal["ComesHome"] = "ComesHome"


@value
class MovesTogether:
    """Moved between standing nodes so that a wider job fits."""

    gainer: str
    gainer_gpus: int
    gains: Money
    costs: Money  # of all moves it takes
    kind: Literal["MovesTogether"] = "MovesTogether"


@value
class QueueFull:
    """Burst: more jobs wait than the policy's queue holds, and this is the newest."""

    waiting: int
    queue_cap: int
    cost: Money
    kind: Literal["QueueFull"] = "QueueFull"


@value
class RuledOut:
    """The rule that keeps a job from these offers."""

    offers: tuple[str, ...]
    rule: str
    where: str = ""  # file and line of a policy's rule


@value
class OnlyOwned:
    """Not yet: no rented offer may or can take it (the rule that binds is named), so it waits for owned GPUs."""

    free_gpus: int
    rule: str
    where: str = ""  # file and line of a policy's rule
    each: tuple[RuledOut, ...] = ()  # where it is not one rule for all offers: the rule for each
    kind: Literal["OnlyOwned"] = "OnlyOwned"


@value
class NothingSuits:
    """Not yet: nothing at its home suits it as things are there, or as the sites file describes them. It waits until
    that changes."""

    site: str
    why: str
    elsewhere: str = ""  # the rule that keeps it from rented offers; empty: there are none
    where: str = ""  # file and line of that rule, if a policy says so
    kind: Literal["NothingSuits"] = "NothingSuits"


@value
class WaitedLongest:
    """It waited as long as anybody may, and cannot leave: nodes are kept for it as they come free."""

    waited_ms: Millis
    most_ms: Millis
    free_in_ms: Millis  # expected, until the last of them is free
    kind: Literal["WaitedLongest"] = "WaitedLongest"


@value
class Backfills:
    """Started on nodes that are reserved for another job, which will not start later because of it."""

    waited_ms: Millis
    free_gpus: int  # on the reserved nodes, before this start
    reserved_for: str
    start_at: Instant  # that job does not fit before, by what is expected of those who were there before it reserved
    #: It ends before that; or one of the two is unknown, and it goes back to the queue; or that job fits beside it.
    way: Literal["ends", "gives_way", "beside"]
    ends_by: Instant  # by its run time; 0: unknown
    learned: bool  # what 19 of 20 such jobs did not exceed; False: it was declared
    kind: Literal["Backfills"] = "Backfills"


@value
class GivesWay:
    """A backfill goes back to the queue: the job that its nodes are reserved for can start."""

    gainer: str
    gainer_gpus: int
    ends_by: Instant  # it should have ended by then; 0: its run time was unknown
    kind: Literal["GivesWay"] = "GivesWay"


@value
class AimsAtDelay:
    """The value of waiting follows the mean delay of the jobs that ended lately; older ones count less."""

    mean_delay_ms: Millis
    target_ms: Millis
    jobs: int
    before_per_hour: Money
    kind: Literal["AimsAtDelay"] = "AimsAtDelay"


@value
class AimsAtSpend:
    """The value of waiting follows what was spent lately, against that time's share of the target."""

    spent: Money
    share: Money
    target: Money
    before_per_hour: Money
    kind: Literal["AimsAtSpend"] = "AimsAtSpend"


@value
class Paced:
    """Not yet: the month's money is released evenly, and what is released so far is used."""

    scope: str
    period: str
    cap: Money
    released: Money  # by now
    used: Money  # spent and held
    needed: Money
    kind: Literal["Paced"] = "Paced"


@value
class CapBinds:
    """Not yet, or no longer: the money is not there. Names the scope that binds."""

    scope: str
    period: str
    cap: Money
    spent: Money
    held: Money
    needed: Money
    kept_free: Money = 0  # for others: a lease longer than the least does not take all the room
    useful_ms: Millis = 0  # the shortest lease that reaches its next checkpoint; 0: the policy's least lease is longer
    kind: Literal["CapBinds"] = "CapBinds"


@value
class RateBinds:
    """Not yet: spending per hour in this scope is at its cap."""

    scope: str
    cap_per_hour: Money
    running_per_hour: Money
    needed_per_hour: Money
    kind: Literal["RateBinds"] = "RateBinds"


@value
class PeriodUnknown:
    """Not yet: the month that the money would be booked to has not been opened."""

    until_at: Instant
    kind: Literal["PeriodUnknown"] = "PeriodUnknown"


@value
class ScopeFrozen:
    """Not yet, or no longer: a provider billed more in this scope than was held, and a person must look first."""

    scope: str
    overrun: Money  # in all scopes so far
    kind: Literal["ScopeFrozen"] = "ScopeFrozen"


#: Why money was refused: the ledger answers with one of these.
Denial: TypeAlias = CapBinds | RateBinds | PeriodUnknown | ScopeFrozen


@value
class NoRoomThere:
    """Not yet: each rented offer that fits is closed for now, or at its limit."""

    offer: str
    retry_at: Instant
    kind: Literal["NoRoomThere"] = "NoRoomThere"


@value
class PlacementsPaused:
    """Waits: a person stopped new placements."""

    kind: Literal["PlacementsPaused"] = "PlacementsPaused"


@value
class TooWide:
    """Refused: nothing that exists could ever hold it."""

    gpus: int
    widest: int
    offer: str
    kind: Literal["TooWide"] = "TooWide"


@value
class TriggerSeen:
    """A trigger of the policy, and what was seen of it."""

    trigger: TriggerKind
    threshold: int  # jobs, milliseconds, thousandths; 1 for `deadline_at_risk`
    seen: int  # in the same unit; for `deadline_at_risk` the latest it can leave, 0 if it has no deadline
    source: str  # file and line
    for_ms: Millis = 0  # how long it must have held
    held_ms: Millis = 0  # how long it has


@value
class NoTriggerHolds:
    """Not yet: it would burst now, but no trigger of the policy holds, and one must."""

    waited_ms: Millis
    offer: str
    cost: Money
    seen: tuple[TriggerSeen, ...]
    kind: Literal["NoTriggerHolds"] = "NoTriggerHolds"


@value
class TooDear:
    """Not there: it is expected to cost more than the policy lets one job cost."""

    offer: str
    cost: Money  # expected
    limit: Money
    spent: Money  # by this job, and held for it: counted against the limit
    source: str
    kind: Literal["TooDear"] = "TooDear"


@value
class TeamAtLimit:
    """Not yet: its team has as many GPUs as it may have at once."""

    team: str
    used: int
    needed: int
    limit: int
    source: str
    kind: Literal["TeamAtLimit"] = "TeamAtLimit"


@value
class EgressSpent:
    """Not yet: its output would exceed what its team may bring out of rented sites in this month."""

    team: str
    period: str
    used_bytes: int
    needed_bytes: int
    limit_bytes: int
    source: str
    kind: Literal["EgressSpent"] = "EgressSpent"


@value
class InQuietHours:
    """Not yet: nothing new is rented during these hours."""

    window: str
    ends_at: Instant
    source: str
    kind: Literal["InQuietHours"] = "InQuietHours"


@value
class HeadroomKept:
    """Not yet: it would fit on standing GPUs, but these are kept free for others during these hours."""

    site: str
    gpus: int
    for_class: str  # empty: for other people's pods
    ends_at: Instant
    source: str
    wait: WaitsForOwned | WaitWorth | OnlyOwned
    kind: Literal["HeadroomKept"] = "HeadroomKept"


@value
class RanTooLong:
    """Stopped, or never started again: it has run as long as jobs of its class may."""

    job_class: str
    ran_ms: Millis  # in all its attempts
    longest_ms: Millis
    source: str
    kind: Literal["RanTooLong"] = "RanTooLong"


@value
class NothingAllowed:
    """Refused: what could hold it is forbidden; the first rule that said so, with file and line."""

    offer: str
    rule: str
    where: str
    each: tuple[RuledOut, ...] = ()  # where it is not one rule for all offers: the rule for each
    kind: Literal["NothingAllowed"] = "NothingAllowed"


@value
class AwaitsApproval:
    """Not yet: a rule of the policy lets it burst only if a person approves."""

    rule: str
    role: str
    offer: str
    cost: Money
    until_at: Instant  # unanswered by then means no
    source: str  # file:line of the rule
    error: str = ""  # the rule could not be evaluated, so it asks
    kind: Literal["AwaitsApproval"] = "AwaitsApproval"


@value
class ApprovalDenied:
    """It may not burst: a person denied it, or nobody answered in time."""

    rule: str
    role: str
    offer: str
    cost: Money
    answer: Literal["denied", "unanswered"]
    by: str  # who, by an opaque id
    words: str  # why, in their own words
    source: str
    kind: Literal["ApprovalDenied"] = "ApprovalDenied"


@value
class LostNode:
    """Started again after its capacity was taken away, from its last checkpoint."""

    lost_attempt: str
    kept_ms: Millis
    redone_ms: Millis
    cost: Money
    passed_over: str = ""  # a cheaper offer, where losses or copies could make it later than anybody may be
    kind: Literal["LostNode"] = "LostNode"


@value
class AboveShare:
    """Burst: its team has its share of the owned GPUs, and a team within its own waits for them."""

    team: str
    gpus: int  # owned ones that the team has
    share_gpus: int  # its share
    waiting_team: str
    cost: Money
    where: str  # file and line of the share
    kind: Literal["AboveShare"] = "AboveShare"


#: Why a job burst, as the engine weighed it.
Burst: TypeAlias = PatienceOver | NotWorthWaiting | JoinsNode | TakesWarmNode | QueueFull | LostNode | AboveShare


@value
class BurstAllowed:
    """Burst, as the policy file lets it: the trigger that held, and what was passed over as too dear."""

    burst: Burst
    trigger: TriggerSeen | None
    passed_over: tuple[TooDear, ...] = ()
    kind: Literal["BurstAllowed"] = "BurstAllowed"


@value
class MoveAsked:
    """Moved because a person asked."""

    from_offer: str
    kept_ms: Millis  # what its last checkpoint holds
    kind: Literal["MoveAsked"] = "MoveAsked"


@value
class LeaseNotRenewed:
    """Moved to standing GPUs because its rented place may not be paid for any longer; names what denied that."""

    from_offer: str
    kept_ms: Millis  # what its last checkpoint holds
    denied: Denial
    kind: Literal["LeaseNotRenewed"] = "LeaseNotRenewed"


@value
class LeaseEnds:
    """Stopped in time for a last checkpoint: the lease of its node was for the node's whole life, and ends."""

    offer: str
    ends_at: Instant
    kind: Literal["LeaseEnds"] = "LeaseEnds"


@value
class NodeTakenSoon:
    """Stopped in time for a last checkpoint: its node will be taken away."""

    offer: str
    words: str  # the site's own
    kind: Literal["NodeTakenSoon"] = "NodeTakenSoon"


@value
class Displaced:
    """Moved out to a rented offer to make room for a job that may not leave; who gains pays."""

    gainer: str
    gainer_gpus: int
    cost: Money
    kind: Literal["Displaced"] = "Displaced"


@value
class Preempted:
    """Stopped for a job of higher priority; waits again."""

    gainer: str
    gainer_priority: int
    own_priority: int
    kind: Literal["Preempted"] = "Preempted"


@value
class ClassPreempted:
    """Stopped for a job of a class that the policy lets stop jobs of this one's; waits again."""

    gainer: str
    gainer_class: str
    own_class: str
    where: str  # file and line that say so
    kind: Literal["ClassPreempted"] = "ClassPreempted"


@value
class ShareReturned:
    """Moved out to a rented offer, at its own team's cost: the team has more owned GPUs than its share."""

    gainer: str
    gainer_team: str
    team: str
    gpus: int  # owned ones that the team had
    share_gpus: int  # its share
    cost: Money
    where: str  # file and line of the share
    kind: Literal["ShareReturned"] = "ShareReturned"


@value
class CancelAsked:
    """Stopped because a person asked."""

    kind: Literal["CancelAsked"] = "CancelAsked"


@value
class SuspendAsked:
    """Stopped, or kept out of the queue, because a person suspended it."""

    kind: Literal["SuspendAsked"] = "SuspendAsked"


@value
class NoMoreWork:
    """A rented node is given back: nothing runs on it and keeping it does not pay."""

    idle_ms: Millis
    kind: Literal["NoMoreWork"] = "NoMoreWork"


@value
class NeverStarted:
    """A rented node is given back: what it was asked for will not start there."""

    kind: Literal["NeverStarted"] = "NeverStarted"


@value
class NotStarting:
    """Starting, and the site says what is in the way."""

    offer: str
    words: str  # the site's own
    kind: Literal["NotStarting"] = "NotStarting"


@value
class StartFailed:
    """Not there yet: its start failed, so it is tried there again only after a pause, longer with each same failure."""

    offer: str
    attempt: str
    #: `in_vain`: so many of its attempts there have ended before they kept any work.
    cause: Literal["full", "lost", "stopped", "unfit", "missing", "denied", "in_vain"]
    words: str  # the site's own
    failures: int  # in the same way, one after the other
    took_ms: Millis  # from the promise to the failure
    gpus: int  # that it had meanwhile
    cost: Money  # of this try
    retry_at: Instant  # 0: at once
    nodes: int = 0  # standing nodes that could not take it, though they had free GPUs; it is kept from these alone
    kind: Literal["StartFailed"] = "StartFailed"


Reason: TypeAlias = (
    OwnedFree
    | EndsAlike
    | RoomMade
    | WaitsForOwned
    | PatienceOver
    | WaitWorth
    | WaitedLongest
    | Backfills
    | GivesWay
    | NotWorthWaiting
    | JoinsNode
    | CheaperElsewhere
    | ComesHome
    | MovesTogether
    | QueueFull
    | OnlyOwned
    | CapBinds
    | RateBinds
    | PeriodUnknown
    | ScopeFrozen
    | Paced
    | AimsAtDelay
    | AimsAtSpend
    | NoRoomThere
    | PlacementsPaused
    | TooWide
    | NothingAllowed
    | AwaitsApproval
    | ApprovalDenied
    | LostNode
    | MoveAsked
    | LeaseNotRenewed
    | Displaced
    | Preempted
    | ClassPreempted
    | AboveShare
    | ShareReturned
    | CancelAsked
    | SuspendAsked
    | NoMoreWork
    | NotStarting
    | StartFailed
    | NothingSuits
    | NoTriggerHolds
    | BurstAllowed
    | TooDear
    | TeamAtLimit
    | EgressSpent
    | InQuietHours
    | HeadroomKept
    | RanTooLong
    | LeaseEnds
    | NodeTakenSoon
    | TakesWarmNode
    | KeptWarm
    | WantedSoon
    | WarmEnds
    | NeverStarted
    | ClusterNeeded
    | ClusterWanted
    | ClusterEnds
)
REASONS: Final[dict[str, type]] = {cls.__name__: cls for cls in get_args(Reason)}
