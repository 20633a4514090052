"""What happened, and what was promised. Facts come in; promises are made by `cycle` and are facts once written.

Every event is a value with an `at`. `order` sorts the facts of one instant, so that how they were batched cannot
change what is decided: first what ends and frees, then what begins, then what people ask for.
"""

from typing import Final, Literal, TypeAlias, get_args

from penstock.core.model.reasons import Denial, NothingAllowed, Obstacle, Reason, Shortage, StartFailed
from penstock.core.model.types import DataSet, Guarantee, Hold, JobSpec, NodeAsk, Part, PodCounts, Policy, Site
from penstock.core.units import Instant, Millis, Money
from penstock.core.values import value

# --- facts -----------------------------------------------------------------------------------------------------------


@value
class PolicySet:
    """The policy in force from now on."""

    at: Instant
    revision: int
    policy: Policy
    by: str = ""  # who applied it; empty: a start, or a file that changed
    reason: str = ""
    details: str = ""


@value
class Paused:
    """A person stops new placements. What runs goes on, leases are renewed, and what comes waits."""

    at: Instant
    by: str = ""  # who: an opaque id; empty: the sites file, or Penstock itself
    details: str = ""  # digest of what can be erased about it: the address, an exec's words


@value
class Resumed:
    """A person lets placements go on."""

    at: Instant
    by: str = ""
    details: str = ""


@value
class PeriodOpened:
    """A month of the books, from the organisation's calendar. Opened ahead, so that leases can reach into it."""

    at: Instant
    period: str
    starts_at: Instant
    ends_at: Instant


@value
class HoursOpened:
    """Hours of the policy, like its quiet hours, from the calendar. Told ahead, so that the core needs no time zone."""

    at: Instant
    window: str
    starts_at: Instant
    ends_at: Instant


@value
class CapSet:
    """A cap on spending. `scope` is `org`, `team:NAME`, `project:NAME`; None takes the cap away."""

    at: Instant
    scope: str
    per_period: Money | None
    per_hour: Money | None = None
    by: str = ""
    details: str = ""
    before_per_period: Money | None = None  # the cap that it replaces
    before_per_hour: Money | None = None
    from_file: bool = False  # the policy file or the sites file says so; told again only when that has changed
    asked_by: str = ""  # who asked for it, or applied the file that says so, where another person approved
    reason: str = ""  # whoever approved it, in their own words
    source: str = ""  # the file that says so, and the line


@value
class CapRaiseAsked:
    """A member of the team asks for a higher cap. It holds only when somebody else has set it: raising one's own cap
    takes two."""

    at: Instant
    scope: str
    per_period: Money | None
    per_hour: Money | None = None
    by: str = ""
    reason: str = ""
    details: str = ""
    before_per_period: Money | None = None  # the cap in force
    before_per_hour: Money | None = None


@value
class CapRaiseDenied:
    """A person denies a higher cap that another asked for."""

    at: Instant
    scope: str
    by: str = ""
    reason: str = ""
    details: str = ""


@value
class SiteJoined:
    """A site, or what it offers now: a second one replaces the first's prices and terms, not its nodes."""

    at: Instant
    site: Site
    by: str = ""  # who applied the sites file; empty: a start, or a file that changed
    reason: str = ""
    details: str = ""
    before: Site | None = None  # as it was; None: it is new


@value
class SiteRemoved:
    """The sites file no longer has the site, and nothing of ours is there."""

    at: Instant
    site: str
    by: str = ""
    reason: str = ""
    details: str = ""
    before: Site | None = None


@value
class SiteLost:
    """A site is out of reach. What runs there is not known to be dead, so its holds stay; nothing new starts there."""

    at: Instant
    site: str


@value
class SiteBack:
    """A site that was out of reach answers again."""

    at: Instant
    site: str


@value
class NodesSeen:
    """All nodes of a standing offer, by the names its site has for them, each with the GPUs that are ours to use: those
    our own jobs hold count, those of other people's pods do not, and a cordoned node has none."""

    at: Instant
    offer: str
    nodes: tuple[tuple[str, int], ...]


@value
class NodesUnsuited:
    """Nodes of a standing offer that do not meet a need of jobs; none: all do. The empty need: nodes with taints, which
    jobs that tolerate nothing may not use."""

    at: Instant
    offer: str
    need: str
    nodes: tuple[str, ...]
    only: bool = False  # the other way round: these meet it, and no others


@value
class NodesChanged:
    """Something on these nodes changed that jobs which they could not take may have waited for."""

    at: Instant
    offer: str
    nodes: tuple[str, ...]


@value
class AttemptPlaced:
    """On which nodes an attempt really is: its site puts pods where they fit."""

    at: Instant
    attempt: str
    nodes: tuple[tuple[str, int], ...]  # the site's names, with the GPUs on each


@value
class DataSetRegistered:
    """A data set that jobs may name: its size, its class, and where it is."""

    at: Instant
    data_set: DataSet


@value
class ReplicaLanded:
    """A copy of a data set is complete at a site, until it expires there."""

    at: Instant
    data_set: str
    site: str
    expires_at: Instant


@value
class JobSubmitted:
    """A person asks for a job."""

    at: Instant
    number: int  # the order in which people came; given by whoever took the submission
    job: str
    spec: JobSpec  # its `user` says who
    retries: str = ""  # the ended job that it asks for again
    details: str = ""


@value
class CancelRequested:
    """A person asks that a job ends now."""

    at: Instant
    job: str
    by: str = ""
    details: str = ""
    before: str = ""  # the job's phase


@value
class SuspendRequested:
    """A person asks that a job stops with its checkpoint, and waits until they resume it."""

    at: Instant
    job: str
    by: str = ""
    details: str = ""


@value
class ResumeRequested:
    """A person lets a suspended job go on: it is queued again."""

    at: Instant
    job: str
    by: str = ""
    details: str = ""


@value
class ClusterAsked:
    """A person wants the transient cluster of a site to be up until then, whether jobs need it or not."""

    at: Instant
    site: str
    until_at: Instant
    by: str = ""
    details: str = ""


@value
class ClusterDismissed:
    """A person wants it to go: no attempt starts there any more, and it goes after the last one."""

    at: Instant
    site: str
    by: str = ""
    details: str = ""


@value
class MoveRequested:
    """A person asks that a running job goes on at this offer."""

    at: Instant
    job: str
    offer: str
    by: str = ""
    details: str = ""
    before: str = ""  # the offer where it runs


@value
class ApprovalAnswered:
    """A person approves that a job bursts, up to an amount, or denies it."""

    at: Instant
    job: str
    approved: bool
    by: str = ""
    reason: str = ""  # in their own words
    details: str = ""
    rule: str = ""  # which of the policy's rules asked; empty: whichever asks now
    amount: Money | None = None  # the most that the job may cost in all; None: what was asked for
    before: Money | None = None  # what an earlier answer allowed


@value
class TokenIssued:
    """A token for the API. Only the SHA-256 of its secret is kept."""

    at: Instant
    token: str
    digest: str
    role: str
    team: str = ""  # empty: all teams
    expires_at: int = 0  # seconds since 1970; 0: never
    made_by: str = ""  # of a browser's token: the token that let it in, with which it ends
    by: str = ""
    details: str = ""
    name: str = ""  # digest of the name of whom it is for, which can be erased


@value
class TokenRevoked:
    """A token is void, and with it all tokens of browsers that came in by it."""

    at: Instant
    token: str
    by: str = ""
    details: str = ""


@value
class LogRead:
    """Somebody read the log of a job that is neither their own nor their team's. Told once an hour at most."""

    at: Instant
    job: str
    by: str = ""
    details: str = ""


@value
class ExecStarted:
    """A person runs a command inside a running attempt. Its words are in the details."""

    at: Instant
    attempt: str
    by: str = ""
    details: str = ""


@value
class LeaveRequested:
    """A person asks that a home cluster gets its Jobs back. It holds until the site is removed, or no front door."""

    at: Instant
    site: str
    by: str = ""
    details: str = ""
    bring_home: bool | None = None  # None: an older version, which kept in a file what it leaves


@value
class JournalRestored:
    """A person let the journal go on without steps that it once had: those of a failed database, or since a backup.
    Numbers that these may have given to jobs are skipped.
    """

    at: Instant
    step: int  # after which others are missing
    missing: int  # how many, as far as is known; 0: it is not
    skipped: int  # numbers
    says: str = ""  # what was in the missing steps, as far as is known
    by: str = ""
    details: str = ""


@value
class DetailsErased:
    """The name, the addresses and the words recorded about somebody are erased; what they did stays."""

    at: Instant
    who: str
    by: str = ""
    details: str = ""


@value
class DemandForecast:
    """GPUs wanted in each of the next hours, queued jobs included, from the hours that were. Told once an hour."""

    at: Instant
    starts_at: Instant  # of the first of these hours
    hours: tuple[tuple[int, int, int], ...]  # P10, P50 and P90 of each, in thousandths of a GPU


@value
class NodeReady:
    """A rented node can be used, or a standing one is back."""

    at: Instant
    node: str


@value
class NodeRefused:
    """The provider gave no such node, or one that never became usable and was given back."""

    at: Instant
    node: str
    retry_ms: Millis
    words: str = ""  # the provider's own
    shortage: Shortage = ""  # why it gave none, where it says so
    billed: bool = False  # it was there for a while, and cost something


@value
class NodeNotice:
    """A node will be taken away soon: its provider or its cluster says so."""

    at: Instant
    node: str  # rented; of what is not rented by the node, the attempt that runs there
    words: str = ""  # the site's own


@value
class GuaranteeChanged:
    """A site has proved how what is rented at this offer ends without us, or can no longer prove it."""

    at: Instant
    offer: str
    guarantee: Guarantee  # as it stands now; `none`: nobody would end it
    words: str = ""  # the site's own


@value
class NodeLost:
    """A node was taken away. For a rented node the provider confirms by this that it bills no more."""

    at: Instant
    node: str


@value
class NodeGone:
    """A node was given back, and the provider says so."""

    at: Instant
    node: str


@value
class AttemptStarted:
    """An attempt runs."""

    at: Instant
    attempt: str


@value
class AttemptQueued:
    """A site holds an attempt back, as a cluster's own queue does with what exceeds a quota: it waits there."""

    at: Instant
    attempt: str
    words: str = ""  # the site's own


@value
class AttemptStuck:
    """A site has not started an attempt yet, and says what is in the way. It goes on trying."""

    at: Instant
    attempt: str
    words: str  # the site's own


@value
class AttemptRefused:
    """A site did not start an attempt; it never ran. With an obstacle, others may start there: the offer stays open."""

    at: Instant
    attempt: str
    retry_ms: Millis
    obstacle: Obstacle = ""  # what keeps this job from that offer; empty: the offer has no capacity
    words: str = ""  # the site's own
    shortage: Shortage = ""  # why an offer that is rented has none, where its cloud says so
    nodes: tuple[str, ...] = ()  # nodes with free GPUs that could not take it: it is not started on these again


@value
class AttemptCheckpointed:
    """An attempt wrote a checkpoint."""

    at: Instant
    attempt: str
    kept_ms: Millis  # work that survives, in the job's own run time


@value
class AttemptProgressed:
    """How much of the job's whole work is done, in thousandths, by its own account. Told at every tenth part."""

    at: Instant
    attempt: str
    done_permille: int


@value
class AttemptEnded:
    """An attempt ran to its own end, or the site will never take it."""

    at: Instant
    attempt: str
    outcome: Literal["done", "failed"]
    detail: str = ""  # an exit code, or the site's own words
    pods: PodCounts | None = None  # None: not counted there


@value
class AttemptStopped:
    """An attempt was told to stop, or its deadline passed, and it ended. Its checkpoint holds `kept_ms` of work."""

    at: Instant
    attempt: str
    kept_ms: Millis
    pods: PodCounts | None = None


@value
class AttemptLost:
    """An attempt was preempted: its node or its site was lost."""

    at: Instant
    attempt: str
    kept_ms: Millis
    pods: PodCounts | None = None


@value
class DeadlineSet:
    """The running thing confirms when it will end by itself."""

    at: Instant
    thing: str
    deadline_at: Instant


@value
class Metered:
    """The provider's own meter, where it can be read: compared with the hold, never added to it."""

    at: Instant
    thing: str
    amount: Money


@value
class ClockJumped:
    """The wall clock and the steady one disagree by so much more than before; sites were looked at again first."""

    at: Instant
    by_ms: Millis  # negative: the wall clock went back


@value
class EventQuarantined:
    """A fact that the engine could not take, twice. It changed nothing, and a person must look at it."""

    at: Instant
    what: str  # the kind of the fact
    about: str  # the id it names
    error: str
    told: str  # the fact itself, as the journal would have written it


@value
class Woke:
    """Nothing happened but time."""

    at: Instant


# --- promises --------------------------------------------------------------------------------------------------------


@value
class ShapeJudged:
    """Where jobs of one shape may run: verdicts are made once per shape and policy revision, not per job."""

    at: Instant
    shape: int
    standing: tuple[str, ...]  # owned and reserved offers, in order of preference
    rented: tuple[str, ...]
    excluded: tuple[tuple[str, str, str], ...]  # offer, rule, file:line


@value
class JobRefused:
    """This job can run nowhere, and ends."""

    at: Instant
    job: str
    because: Reason


@value
class JobFailed:
    """This job has run as long as it may, while nobody could stop it in time, and ends."""

    at: Instant
    job: str
    because: Reason


@value
class WaitPromised:
    """Not yet: it is asked again at `until_at` at the latest. The reason only explains; what the wait does is here."""

    at: Instant
    job: str
    until_at: Instant
    because: Reason
    scope: str = ""  # whose money or limit it waits for: asked again when that scope has room
    patience_ms: Millis | None = None  # how long it may wait for standing GPUs; None: as it was told before
    about_ms: Millis = 0  # its start as foretold, p50 and p90 from now: `learned` compares them with what comes
    worst_ms: Millis = 0  # 0: nothing was foretold


@value
class ApprovalAsked:
    """This job may burst only if a person of this role approves it before `until_at`; unanswered means no. No money is
    held meanwhile, and standing GPUs that come free are taken as before."""

    at: Instant
    job: str
    rule: str
    role: str
    until_at: Instant
    offer: str  # the quote: where, what it is expected to cost, and for how long
    cost: Money
    amount: Money  # with what the job has spent so far: approved is this much, and no more
    gpus: int
    run_ms: Millis
    start_ms: Millis
    per_hour: Money
    cheaper: tuple[tuple[str, Money, Millis], ...] = ()  # other ways: offer, cost, expected delay until it runs
    source: str = ""  # file:line of the rule
    words: str = ""  # the rule's own
    error: str = ""  # the rule could not be evaluated, so it asks


@value
class StartPromised:
    """This attempt will run there, and the money for it is held. The one way a job gets a place."""

    at: Instant
    job: str
    attempt: str
    offer: str
    width: int
    speed_permille: int
    resume_ms: Millis
    slots: tuple[tuple[int, int], ...]  # (node, GPUs) of a standing offer
    nodes: tuple[NodeAsk, ...]  # rented nodes to ask for
    hold: Hold | None  # where the site sells by the attempt
    after: tuple[str, ...]  # attempts that must be over first: its predecessor, or whom it displaces
    copies: tuple[str, ...]  # data sets that must land at the site first
    because: Reason
    joins: str = ""  # a rented node that is there already and has GPUs to spare; then it asks for none
    #: Of a backfill: from when on it may be sent back to the queue for the job that its nodes are reserved for; NEVER:
    #: that job fits beside it. 0: no backfill.
    ends_by: Instant = 0

    @property
    def rented(self) -> bool:
        return bool(self.nodes or self.hold or self.joins)


@value
class WarmPromised:
    """This node is rented before a job asks for it, on the budget of its offer's pool."""

    at: Instant
    offer: str
    ask: NodeAsk
    because: Reason


@value
class PayerChanged:
    """Somebody else pays for this rented node from now on: the job that takes a warm one, or the pool that keeps one.

    The one before is charged for what was metered until now.
    """

    at: Instant
    node: str
    job: str  # empty: the pool of its offer
    charged: tuple[Part, ...]
    hold: Hold
    because: Reason


@value
class WarmShort:
    """A pool has fewer nodes than it should: its budget has no room, or a rule forbids it. It is asked again then, or
    when caps or rules change.
    """

    at: Instant
    offer: str
    until_at: Instant
    because: Denial | NothingAllowed


@value
class ClusterPromised:
    """A transient cluster is asked for, on the budget that its site names."""

    at: Instant
    site: str
    ask: NodeAsk
    because: Reason
    job: str = ""  # whose start needs it; empty: a person wants it


@value
class ClusterShort:
    """A person wants this site's cluster, and its budget has no room. It is asked again then, or when caps change."""

    at: Instant
    site: str
    until_at: Instant
    because: Denial


@value
class ReservePromised:
    """These nodes of a standing offer are kept for this job as they come free, until it starts or one is lost. Others
    start there only as backfills.
    """

    at: Instant
    job: str
    offer: str
    nodes: tuple[int, ...]
    because: Reason


@value
class ValueSet:
    """What an hour of one job's waiting is worth from now on: the policy aims at a target, and looks again then."""

    at: Instant
    value_per_hour: Money
    next_at: Instant
    because: Reason


@value
class StopPromised:
    """This attempt will be stopped, its checkpoint kept. `yields`: its GPUs are promised to somebody else at once."""

    at: Instant
    attempt: str
    then: Literal["wait", "move", "pause", "cancel", "fail"]
    yields: bool
    because: Reason


@value
class ReleasePromised:
    """This rented node will be given back."""

    at: Instant
    node: str
    because: Reason


@value
class LeaseRenewed:
    """What was metered is charged, and the hold covers the time until a later deadline."""

    at: Instant
    hold: str
    charged: tuple[Part, ...]
    parts: tuple[Part, ...]  # what is held from now on
    deadline_at: Instant
    renew_at: Instant


@value
class RenewalDenied:
    """The lease will not grow; the thing drains before its deadline unless room appears."""

    at: Instant
    hold: str
    renew_at: Instant
    because: Denial


@value
class LeaseCalledBack:
    """A shorter deadline is asked for; the money comes free only when the running thing confirms it."""

    at: Instant
    hold: str
    deadline_at: Instant


@value
class LeaseShortened:
    """The shorter deadline is confirmed: the hold shrinks."""

    at: Instant
    hold: str
    parts: tuple[Part, ...]
    deadline_at: Instant
    renew_at: Instant


@value
class Settled:
    """The thing is gone: the last of it is charged and the rest of the hold returned."""

    at: Instant
    hold: str
    charged: tuple[Part, ...]
    returned: Money


@value
class OverrunFound:
    """The provider metered more than was held: impossible, so it alarms, and freezes the scopes it touches."""

    at: Instant
    hold: str
    amount: Money


@value
class OfferClosed:
    """Nobody tries this offer again before then, but for the one job that probes it."""

    at: Instant
    offer: str
    until_at: Instant
    refusals: int


@value
class OfferOpened:
    """A standing offer that refused may be tried again."""

    at: Instant
    offer: str


@value
class RetryPromised:
    """This job's start at this offer failed; it is not started there again before `retry_at`. Others may be."""

    at: Instant
    job: str
    offer: str
    retry_at: Instant  # the same as `at` after a first failure that may be tried again at once
    because: StartFailed
    nodes: tuple[str, ...] = ()  # only these are barred for it, and until they change


Fact: TypeAlias = (
    AttemptEnded
    | AttemptStopped
    | AttemptLost
    | AttemptRefused
    | NodeLost
    | NodeRefused
    | NodeGone
    | SiteLost
    | PolicySet
    | Paused
    | Resumed
    | PeriodOpened
    | HoursOpened
    | DemandForecast
    | CapSet
    | CapRaiseAsked
    | CapRaiseDenied
    | SiteRemoved
    | SiteJoined
    | SiteBack
    | NodesUnsuited
    | NodesSeen
    | NodesChanged
    | GuaranteeChanged
    | DataSetRegistered
    | ReplicaLanded
    | NodeReady
    | NodeNotice
    | AttemptQueued
    | AttemptStuck
    | AttemptPlaced
    | AttemptStarted
    | AttemptCheckpointed
    | AttemptProgressed
    | DeadlineSet
    | Metered
    | ClockJumped
    | EventQuarantined
    | JobSubmitted
    | CancelRequested
    | SuspendRequested
    | ResumeRequested
    | MoveRequested
    | ClusterAsked
    | ClusterDismissed
    | ApprovalAnswered
    | TokenIssued
    | TokenRevoked
    | LogRead
    | ExecStarted
    | LeaveRequested
    | JournalRestored
    | DetailsErased
    | Woke
)
Promise: TypeAlias = (
    ShapeJudged
    | JobRefused
    | JobFailed
    | WaitPromised
    | ApprovalAsked
    | StartPromised
    | WarmPromised
    | PayerChanged
    | WarmShort
    | ClusterPromised
    | ClusterShort
    | ReservePromised
    | ValueSet
    | StopPromised
    | ReleasePromised
    | LeaseRenewed
    | RenewalDenied
    | LeaseCalledBack
    | LeaseShortened
    | Settled
    | OverrunFound
    | OfferClosed
    | OfferOpened
    | RetryPromised
)
Event: TypeAlias = Fact | Promise

FACTS: Final[tuple[type, ...]] = get_args(Fact)
PROMISES: Final[tuple[type, ...]] = get_args(Promise)
#: The order of kinds within one instant is the order of `Fact` above.
RANK: Final[dict[type, int]] = {kind: rank for rank, kind in enumerate(FACTS)}
_ID: Final[dict[type, str]] = {
    PolicySet: "revision",
    PeriodOpened: "period",
    HoursOpened: "window",
    **dict.fromkeys((CapSet, CapRaiseAsked, CapRaiseDenied), "scope"),
    SiteLost: "site",
    SiteRemoved: "site",
    **dict.fromkeys((NodesUnsuited, NodesSeen, NodesChanged), "offer"),
    GuaranteeChanged: "offer",
    SiteBack: "site",
    ReplicaLanded: "data_set",
    JobSubmitted: "number",
    CancelRequested: "job",
    SuspendRequested: "job",
    ResumeRequested: "job",
    MoveRequested: "job",
    ClusterAsked: "site",
    ClusterDismissed: "site",
    ApprovalAnswered: "job",
    TokenIssued: "token",
    TokenRevoked: "token",
    LogRead: "job",
    ExecStarted: "attempt",
    LeaveRequested: "site",
    JournalRestored: "says",
    DetailsErased: "who",
    DeadlineSet: "thing",
    Metered: "thing",
    EventQuarantined: "about",
    **dict.fromkeys((NodeReady, NodeRefused, NodeNotice, NodeLost, NodeGone), "node"),
    **dict.fromkeys(
        (
            AttemptPlaced,
            AttemptStarted,
            AttemptQueued,
            AttemptStuck,
            AttemptRefused,
            AttemptCheckpointed,
            AttemptProgressed,
            AttemptEnded,
            AttemptStopped,
            AttemptLost,
        ),
        "attempt",
    ),
}


def order(fact: Fact) -> tuple[int, int, str]:
    """By kind, then by number or id; unnamed kinds keep the order they came in."""
    name = _ID.get(type(fact))
    if name is None:
        key: object = fact.site.id if isinstance(fact, SiteJoined) else ""
        key = fact.data_set.id if isinstance(fact, DataSetRegistered) else key
    else:
        key = getattr(fact, name)
    return (RANK[type(fact)], key, "") if isinstance(key, int) else (RANK[type(fact)], 0, str(key))
