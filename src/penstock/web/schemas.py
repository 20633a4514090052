"""The JSON shapes of the API, and the examples in its description. Made by the routes; read by the CLI and the page.

Money is a whole number of micro-units of the organisation's currency; instants (`_at`) are milliseconds since 1970,
durations (`_ms`) milliseconds. What has not happened is null, what there is none of is empty.
"""

from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from penstock.journal.states import AttemptState, JobState
from penstock.web.patterns import ONE_LINE, SCOPE, TEAM

Money: TypeAlias = Annotated[
    int, Field(description="Micro-units of the currency: 1500000 is 1.50.", examples=[1_500_000])
]
At: TypeAlias = Annotated[int, Field(description="Milliseconds since 1970.", examples=[1_794_800_000_000])]
Ms: TypeAlias = Annotated[int, Field(description="Milliseconds.", examples=[60_000])]
#: Fields that a shape and a kind of value share: always the same, so looked for once.
SHARED: Final[dict[tuple[type, type], tuple[str, ...]]] = {}


class Shape(BaseModel):
    """Read from a value's attributes; a key nobody knows is an error, so that a typing error is never ignored."""

    model_config = ConfigDict(from_attributes=True, extra="forbid", serialize_by_alias=True, validate_by_name=True)

    @classmethod
    def of(cls, noun: object, **more: object) -> Self:
        """From a value whose fields have the same names, and what it lacks."""
        kinds = cls, type(noun)
        if kinds not in SHARED:
            SHARED[kinds] = tuple(name for name in cls.model_fields if hasattr(noun, name))
        return cls.model_validate({name: getattr(noun, name) for name in SHARED[kinds]} | more, by_name=True)


class Reason(Shape):
    """Why: a kind, the numbers it was decided by, and the same as a sentence."""

    kind: str = Field(examples=["OwnedFree"])
    numbers: dict[str, Any] = Field(examples=[{"waited_ms": 0, "free_gpus": 2}])
    says: str = Field(examples=["2 GPUs were free."])


class Job(Shape):
    id: str = Field(examples=["finetune-k3f9x2"])
    number: int
    team: str
    name: str
    user: str
    project: str
    job_class: str = Field(alias="class")
    priority: int
    gpus: int
    state: JobState
    preempted: bool = Field(description="It is queued because it was preempted: it goes on from its last checkpoint.")
    attempt: str
    offer: str
    submitted_at: At
    started_at: At | None
    ended_at: At | None
    kept_ms: Ms
    attempts: int
    moves: int
    losses: int
    spent: Money
    held: Money
    until_at: At | None
    short_of: str
    because: Reason | None
    decided_at: At | None = Field(description="When `because` was decided. Its numbers are of then.")


class Jobs(Shape):
    """A page, newest first. `next` is what to send as `after` for the next one; null: this is the last."""

    jobs: list[Job]
    next: int | None


class Attempt(Shape):
    id: str
    number: int
    job: str
    offer: str
    site: str
    width: int
    state: AttemptState
    promised_at: At
    started_at: At | None
    ended_at: At | None
    resume_ms: Ms
    kept_ms: Ms
    spent: Money
    held: Money
    deadline_at: At | None
    because: Reason | None


class JobDetail(Job):
    """With its attempts and what runs. Variables are named, and their contents kept to those who set them."""

    tries: list[Attempt]
    waits: str = Field(description="Why its site holds it back; empty if it does not.")
    deadline_at: At | None = None
    ended_because: str = Field(default="", description="How it failed or was refused, as `why` tells it.")
    command: list[str]
    folder: str
    image: str
    variables: list[str]


class Submitted(Shape):
    job: str = Field(description="The job's id; of an array, what its members' ids begin with.")
    count: int
    again: bool = Field(description="The idempotency key was known: nothing new was recorded.")


class Asked(Shape):
    """A person's wish is on record. `so`: it could be granted at once."""

    job: str
    so: bool
    says: str


class Line(Shape):
    at: At
    text: str


class Story(Shape):
    job: str
    lines: list[Line]


class MoveTo(Shape):
    offer: str = Field(examples=["cloud/spot"])


class Choice(Shape):
    offer: str
    site: str
    term: str
    gpu_model: str
    node: str = Field(description="A rented node that it would join; empty: standing GPUs, or nodes of its own.")
    width: int = Field(description="GPUs that it would have there.")
    fits_now: bool
    wait_ms: Ms = Field(description="Until it is expected to get a place there.")
    start_ms: Ms = Field(description="From then until it runs, its data's way there included.")
    run_ms: Ms
    cost: Money = Field(description="Expected, preemptions included.")
    total: Money = Field(description="The cost and what the delay costs: what rented offers are ranked by.")
    held: Money = Field(description="What would be held at first.")
    losses_ppm: int = Field(description="Expected preemptions over the run, in millionths.")
    copies: list[str]
    denied: Reason | None = Field(description="The cap that forbids it now.")
    late_ms: Ms = Field(description="How much later than its deadline it is expected to end; 0: in time, or none.")
    penalty: Money = Field(description="For so much.")
    guarantee: Literal["hard", "soft"]


class Excluded(Shape):
    offer: str
    rule: str
    where: str


class Tally(Shape):
    answer: str
    offer: str
    jobs: int


class Effect(Shape):
    """A running job that would have to make room."""

    job: str = Field(description="Empty if it belongs to a team that you may not look at.")
    to: str = Field(description="The offer it would move to; empty: it would be queued again.")
    reason: Reason


class Plan(Shape):
    """What the engine would decide if the job were submitted now. Nothing is recorded and nothing spent."""

    says: str = Field(description="The decision, as `why` would tell it; of an array, that on its first job.")
    answer: str = Field(examples=["burst"])
    offer: str
    reason: Reason
    until_ms: Ms = Field(description="How long it would wait at most before it is decided anew; 0: no limit.")
    tally: list[Tally] = Field(description="How many jobs get which answer: more than one job if it is an array.")
    effects: list[Effect] = Field(description="Running jobs that would have to make room for it.")
    expected_run_ms: Ms
    deadline_at: At | None
    stated: bool = Field(description="The run time was; otherwise it is an estimate from history.")
    jobs_ended: int = Field(description="How many jobs history has; 0: an estimate is a guess.")
    choices: list[Choice]
    excluded: list[Excluded]
    currency: str


class NodeSize(Shape):
    gpus: int
    count: int | None
    name: str
    price_per_hour: Money
    most_per_hour: Money | None
    marginal_per_hour: Money


class Offer(Shape):
    id: str
    site: str
    term: str
    gpu_model: str
    mig_profile: str
    sold_by: str
    start_ms: Ms
    loss_ppm_per_hour: int
    guarantee: Literal["hard", "soft"]
    sizes: list[NodeSize]
    gpus: int | None
    busy: int
    starting: int
    idle: int
    lost: int
    free: list[int] = Field(description="Of a standing offer: free GPUs by node.")
    closed_until_at: At | None
    closed: str = Field("", description="The file that closes it, and its line; empty: it is open.")
    says: str = Field("", description="Why its provider refused, if a person must look: a quota, or its settings.")


class Site(Shape):
    id: str
    location: str
    operator: str
    law: str
    front_door: bool
    reachable: bool
    says: str = Field("", description="Why it does not answer; empty: it does.")
    offers: list[Offer]


class Sites(Shape):
    at: At
    currency: str
    sites: list[Site]


class RentedNode(Shape):
    """A rented node, or an attempt that its site bills as one."""

    id: str
    site: str
    offer: str
    gpus: int
    phase: str
    attempt: str = Field(description="Whom it was rented for; empty: a warm node.")
    on: list[str] = Field(description="Attempts that use it.")
    team: str
    asked_at: At
    deadline_at: At = Field(description="It ends by itself then.")
    spent: Money
    held: Money = Field(description="The most that it may still cost.")
    price_per_hour: Money
    renewable: bool = Field(description="False: its deadline is for its whole life.")
    because: Reason | None = Field(description="Why it was rented; null: what it was rented for is over.")
    warm: bool = Field(description="Rented ahead on its pool's budget; no job has taken it.")


class RentedNodes(Shape):
    at: At
    currency: str
    nodes: list[RentedNode]


class ClusterRequest(Shape):
    hours: float = Field(description="How long it is wanted.")


class TransientClusterShape(Shape):
    """A site whose cluster comes and goes, and the cluster that it has now."""

    site: str
    cluster: str = Field(description="Its id; empty: the site has none now.")
    state: str = Field(description="none, starting, up, draining or ending.")
    budget: str = Field(description="The scope that pays for it; empty: not the caller's.")
    price_per_hour: Money
    used_by: list[str] = Field(description="Attempts that run there or wait for it; a team sees its own.")
    asked_at: At | None
    deadline_at: At | None = Field(description="It ends by itself then, unless its lease is renewed.")
    wanted_until: At | None = Field(description="By a person.")
    unused_since: At | None
    idle_ms: int = Field(description="How long it stays when nothing uses it.")
    closed_until: At | None = Field(description="Its provider refused; it is not asked again before.")
    spent: Money | None = Field(description="null: the caller's budget does not pay for it.")
    held: Money | None
    soft: bool = Field(description="Nobody ends it if Penstock dies.")
    because: Reason | None = Field(description="Why it was asked for; where there is none, why there is no money.")


class TransientClusters(Shape):
    at: At
    currency: str
    clusters: list[TransientClusterShape]


class Leak(Shape):
    site: str
    kind: Literal["stray", "missing", "unknown"]
    thing: str
    says: str


class Leaks(Shape):
    leaks: list[Leak]


class FrontDoor(Shape):
    """A home cluster: Jobs with our label there are ours until we have left."""

    site: str
    jobs: int = Field(description="That are ours now.")
    leaving: bool
    left: bool = Field(description="Nothing of ours is there any more, nor anywhere else for its Jobs.")
    remains: list[str] = Field(description="While we leave: what of ours is still there.")
    unreached: str = Field(default="", description="While we leave: what does not answer, and why.")


class LeftCluster(Shape):
    """A cluster that is no home: it is left when all homes are."""

    site: str
    left: bool = Field(description="Nothing of ours is there any more.")
    remains: list[str] = Field(description="What of ours is still there.")
    unreached: str = Field(default="", description="Why it does not answer.")


class FrontDoors(Shape):
    doors: list[FrontDoor]
    clusters: list[LeftCluster]


class Offers(Shape):
    at: At
    currency: str
    offers: list[Offer]


class Scope(Shape):
    scope: str = Field(examples=["team:vision"])
    period: str
    cap: Money | None
    spent: Money
    held: Money
    free: Money | None
    cap_per_hour: Money | None
    running_per_hour: Money | None
    waiting: int = Field(default=0, description="Jobs that wait for its money now.")


class Budget(Shape):
    at: At
    currency: str
    period: str
    scopes: list[Scope]


class Share(Shape):
    name: str = Field(description="A team or a site; empty: on no team's budget, such as the organisation's warm pool.")
    most: Money
    until_at: At | None


class Exposure(Shape):
    """If Penstock died now, at most this much more would be spent, the last of it then. Soft: nothing there ends it."""

    at: At
    currency: str
    most: Money
    until_at: At | None
    soft: Money
    teams: list[Share]
    sites: list[Share]


class Cost(Shape):
    day: str = Field(examples=["2026-11-16"])
    offer: str
    site: str
    term: str
    team: str
    gpu_ms: int
    spent: Money


class Costs(Shape):
    """GPU time is booked when an attempt is over, money when it is charged."""

    at: At
    currency: str
    spent: Money
    gpu_ms: int
    rows: list[Cost]


class Cap(Shape):
    """Both null takes the cap away."""

    scope: str = Field(pattern=SCOPE, examples=["team:vision"])
    per_month: int | None = Field(default=None, ge=0, le=10**18, examples=[5_000_000_000])
    per_hour: int | None = Field(default=None, ge=0, le=10**18)
    reason: str = Field(default="", max_length=500, pattern=ONE_LINE)


class CapRequest(Cap):
    """A higher cap for one's own team."""


class CheaperWay(Shape):
    offer: str
    cost: Money
    delay_ms: Ms = Field(description="Expected, until the job runs there.")


class Approval(Shape):
    """A job that bursts only if a person approves it. Unanswered by `until_at` means no."""

    job: str
    name: str
    team: str
    user: str
    user_name: str = Field(default="", description="Whom that token is for.")
    at: At
    until_at: At
    rule: str
    source: str = Field(description="File and line of the rule.")
    role: str = Field(description="Who may answer.", examples=["role:approver"])
    words: str = Field(description="The rule's own.")
    error: str = Field(description="Why the rule could not be evaluated; empty if it could.")
    offer: str
    cost: Money
    amount: Money = Field(
        description="What an approval covers: the cost with the preemptions to be expected, and what the job has spent."
    )
    gpus: int
    run_ms: Ms
    start_ms: Ms
    per_hour: Money
    cheaper: list[CheaperWay]
    says: str


class CapRaise(Shape):
    """A higher cap that somebody asks for, or that a file says. The one in force stays until it is approved."""

    scope: str
    at: At | None
    by: str = Field(description="Who asks, or applied the file that does: an opaque id; empty: nobody is known.")
    by_name: str = Field(default="", description="Whom that token is for.")
    source: str = Field(default="", description="File and line, if a file asks.")
    reason: str
    per_month: Money | None
    per_hour: Money | None
    in_force_per_month: Money | None
    in_force_per_hour: Money | None
    says: str


class Approvals(Shape):
    currency: str
    jobs: list[Approval]
    caps: list[CapRaise]


class Answer(Shape):
    approved: bool
    reason: str = Field(default="", max_length=500, pattern=ONE_LINE, examples=["for the paper"])
    amount: int | None = Field(
        default=None,
        ge=0,
        le=10**18,
        description="To approve: the most that the job may cost, as the request shows it or less.",
    )


class CapAnswer(Shape):
    scope: str = Field(pattern=SCOPE, examples=["team:vision"])
    approved: bool
    reason: str = Field(default="", max_length=500, pattern=ONE_LINE)
    per_month: int | None = Field(
        default=None, ge=0, le=10**18, description="To approve: the cap as the request shows it. Another one is a 409."
    )
    per_hour: int | None = Field(default=None, ge=0, le=10**18, description="Likewise.")


class PolicyText(Shape):
    text: str = Field(max_length=1 << 20, description="A policy file, as YAML.")
    name: str = Field(default="policy", max_length=300, pattern=ONE_LINE, description="Named in errors.")
    reason: str = Field(default="", max_length=500, pattern=ONE_LINE)
    yes: bool = Field(default=False, description="Also if running jobs would not be allowed where they are.")


class StrandedJob(Shape):
    job: str
    team: str
    offer: str
    rule: str
    where: str


class PolicyApplied(Shape):
    revision: int = Field(description="In force now.")
    changed: bool = Field(description="False: nothing was done.")
    stranded: list[StrandedJob] = Field(description="Running jobs that would not be allowed where they are.")
    raised: list[str] = Field(description="Caps that the file raises: each waits for approval.")
    says: str


class SitesText(Shape):
    text: str = Field(max_length=1 << 20, description="A sites file, as YAML.")
    name: str = Field(default="sites file", max_length=300, pattern=ONE_LINE, description="Named in errors.")
    reason: str = Field(default="", max_length=500, pattern=ONE_LINE)
    yes: bool = Field(default=False, description="Also if running jobs would not be allowed where they are.")


class SitesApplied(Shape):
    changed: bool = Field(description="False: nothing was done.")
    changes: list[str] = Field(description="What is different now, a sentence each.")
    stranded: list[StrandedJob] = Field(description="Running jobs that would not be allowed where they are.")
    raised: list[str] = Field(description="Caps that the file raises: each waits for approval.")
    says: str


class PolicyRevision(Shape):
    revision: int
    at: At
    by: str = Field(description="Who applied it; empty: a start, or a file that changed.")
    reason: str
    digest: str = Field(description="SHA-256 of the policy file; empty: there was none.")
    text: str = Field(description="The file; only where one revision is asked for.")


class VerdictShape(Shape):
    rule: str
    where: str = Field(description="File and line of the rule, or 'built in'.", examples=["policy.yaml:23"])


class OfferVerdictsShape(Shape):
    offer: str
    allowed: bool
    against: list[VerdictShape] = Field(description="All that stands against it; the first is the one on record.")


class JobVerdicts(Shape):
    """Where a job may run under the policy in force. Prices, caps and the moment are weighed when it is placed."""

    job: str
    job_class: str = Field(alias="class")
    team: str
    gpus: int
    offers: list[OfferVerdictsShape]


class PolicyHistory(Shape):
    revisions: list[PolicyRevision]


class Event(Shape):
    """One event of the journal. Streamed with `id` as the server-sent event's id: send it back as Last-Event-ID."""

    id: str = Field(examples=["1042.3"])
    at: At
    kind: str
    job: str
    team: str
    says: str
    event: dict[str, Any]


class Events(Shape):
    """Newest first; `next` is what to send as `before`: the id of the last event that was looked at. Null: no more."""

    events: list[Event]
    next: str | None


class Alarm(Shape):
    at: At
    kind: str
    text: str


class Status(Shape):
    """What the plane is doing now."""

    installation: str
    version: str
    at: At
    number: int
    policy: str
    revision: int
    currency: str
    period: str
    paused: bool
    ready: bool
    says: str
    queued: int
    running: int
    ended: dict[str, int] = Field(examples=[{"succeeded": 12, "failed": 1}])
    alarms: list[Alarm]
    durability: str = Field(default="", description="What the loss of the journal's database, or disk, can lose.")
    failover_loses: bool = Field(default=False, description="A failover of the database may lose what was accepted.")


class Health(Shape):
    ok: bool
    says: str


class Done(Shape):
    number: int = Field(description="The journal's row that holds it.")
    says: str


class TokenAsk(Shape):
    role: Literal["admin", "operator", "approver", "member", "viewer"] = "member"
    team: str = Field(default="", pattern=TEAM, examples=["vision"])
    days: int = Field(default=0, ge=0, le=3650, description="0: until it is revoked.")
    name: str = Field(default="", max_length=200, pattern=ONE_LINE, description="Whom it is for; it can be erased.")


class Token(Shape):
    id: str
    role: str
    team: str
    expires_at: int
    revoked: bool
    name: str


class TokenMade(Token):
    secret: str = Field(description="Told once; only its hash is kept.")


class Link(Shape):
    """Lets one browser in, once, to look at what the token that asked for it may see."""

    path: str = Field(examples=["/login/k3f9x2"])
    seconds: int = Field(description="For so long.")


class TokenList(Shape):
    tokens: list[Token]


class AuditEntry(Shape):
    """Somebody did something. `name`, `address` and `words` are empty once they were erased."""

    id: str = Field(description="Its step's number and its index in the step.", examples=["1042.0"])
    at: At
    who: str = Field(description="A token's id, or the opaque id of a cluster's user; empty: Penstock itself.")
    name: str = Field(description="Whom that token is for.")
    did: str = Field(examples=["cancel"])
    about: str = Field(examples=["finetune-k3f9x2"])
    before: str
    after: str
    reason: str = Field(default="", description="In their own words.")
    asked_by: str = Field(default="", description="Of an approved cap: who asked for it, or the file that says so.")
    asked_by_name: str = Field(default="", description="Whom that token is for.")
    address: str
    words: list[str] = Field(description="Of an exec: the program and its arguments.")


class AuditTrail(Shape):
    """A page, newest first. `next` is what to send as `before` for the next one; null: this is the last."""

    entries: list[AuditEntry]
    next: str | None


class DeniedRequests(Shape):
    """Denied requests of one address or network without a valid token, or of one token."""

    source: str
    requests: int
    first_at: At
    last_at: At
    asked: str
    why: str


class DeniedList(Shape):
    denied: list[DeniedRequests]


class EraseAsk(Shape):
    who: str = Field(min_length=1, max_length=200, description="A token's id, a cluster user's id, or an address.")


class Erasure(Shape):
    who: str
    details: int = Field(description="So many details were erased.")
    denials: int = Field(description="So many lines of denied requests were erased.")


class ProblemShape(Shape):
    type: str
    title: str
    status: int
    detail: str
    errors: Annotated[
        list[dict[str, Any]] | None, Field(description="Of a job: every error, by `line`, `key` and `message`.")
    ] = None
