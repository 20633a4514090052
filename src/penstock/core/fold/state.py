"""The state: everything the engine knows and can still change. Only `apply` changes it; `invariants` checks it.

An ended job leaves; totals, learned run times and its team's spend remain. What jobs are taken from (lanes, `newest`,
`pending`) holds each once, and only while it is queued. Heaps of instants may hold stale entries: each entry tells
whether it is valid, so that pruning is never a decision, and the first entry is always valid.
"""

import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, TypeAlias

from penstock.core.fold.demand import HourlyDemand
from penstock.core.fold.fair_share import Use
from penstock.core.fold.job_approvals import JobApprovals
from penstock.core.fold.learned import Losses, Starts, Uplink
from penstock.core.fold.ledger import Lease, Ledger
from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.runtimes import LifeTable, Recent, Runtimes
from penstock.core.fold.shape_key import ShapeKey
from penstock.core.fold.site_clusters import SiteClusters
from penstock.core.fold.warm_pools import WarmPools
from penstock.core.ids import is_ahead
from penstock.core.model.actions import Action, LaunchNode, ReleaseNode, SetDeadline, StartAttempt, StopAttempt
from penstock.core.model.events import CapRaiseAsked, StartPromised
from penstock.core.model.governance import ClassRule, TeamRule
from penstock.core.model.lifecycle import AttemptPhase, Broken, JobPhase, NodePhase
from penstock.core.model.reasons import Reason, StartFailed
from penstock.core.model.types import STANDING, DataSet, JobSpec, Offer, Policy, Site
from penstock.core.units import NEVER, PERMILLE, Instant, Millis, Money
from penstock.core.values import value

OrderKey: TypeAlias = int | tuple[int, ...]


@value
class Setback:
    """A job's starts at one offer that failed in the same way, one after the other."""

    cause: str
    failures: int
    retry_at: Instant  # not there before; past, or now, while it may; NEVER: when `nodes` change
    because: StartFailed
    nodes: tuple[str, ...] = ()  # it is kept from these alone
    not_before: Instant = 0  # however soon they change


class Job:
    __slots__ = (
        "attempt", "attempts", "because", "cancelled", "ended_at", "foretold", "held", "id", "in_vain", "keeper",
        "kept_ms", "key", "losses", "lost", "moved_at", "moves", "next", "offer", "patience_ms", "phase", "queued",
        "queued_at", "ran_ms", "redone_ms", "reserved", "seq", "setbacks", "shape", "short_of", "spec", "spent",
        "started_at", "submitted_at", "told_ms", "until_at",
    )  # fmt: skip

    def __init__(self, job_id: str, seq: int, spec: JobSpec, submitted_at: Instant, shape: "Shape") -> None:
        self.id, self.seq, self.spec, self.submitted_at, self.shape = job_id, seq, spec, submitted_at, shape
        self.phase: JobPhase = "waiting"
        self.key: OrderKey = seq  #: its place in the queue, set by the ordering in force
        self.queued = False  #: in the queue: waiting or paused, and not suspended
        self.queued_at: Instant = submitted_at  #: since when, the last time
        self.attempt: Attempt | None = None
        self.next: Attempt | None = None  #: promised; starts when `attempt` is over
        self.attempts = 0
        self.until_at: Instant = NEVER  #: when it is decided again even without an event; NEVER unless it is queued
        self.patience_ms: Millis = 0
        self.kept_ms: Millis = 0  #: work that its last checkpoint holds
        self.keeper = ""  #: the attempt that wrote that checkpoint
        self.told_ms: Millis | None = None  #: its whole run time, projected from its progress
        self.redone_ms: Millis = 0
        self.ran_ms: Millis = 0  #: by the clock, in all its attempts that are over
        self.lost = ""  #: its preempted attempt, until it runs again
        self.short_of = ""  #: the scope whose cap binds it
        self.moves = 0
        self.moved_at: Instant = -NEVER
        self.cancelled = False
        self.reserved: tuple[str, tuple[int, ...]] | None = None  #: standing offer, and the nodes reserved for it
        self.setbacks: dict[str, Setback] | None = None  #: by offer: its starts that failed there without progress
        self.in_vain: dict[str, int] | None = None  #: by rented offer: attempts in a row that ended and kept no work
        #: Its forecast: made at, p50 and p90 delay until its start.
        self.foretold: tuple[Instant, Millis, Millis] | None = None
        self.spent: Money = 0  #: its share of what was charged; approvals count it
        # For display only: no decision reads these.
        self.because: Reason | None = None  #: the latest reason
        self.offer = ""  #: of `attempt`, or of its last one
        self.started_at: Instant | None = None  #: its first start
        self.ended_at: Instant | None = None
        self.losses = 0
        self.held: Money = 0  #: by the holds that were opened for its attempts


class Attempt:
    __slots__ = (
        "after", "asked", "because", "copies", "ended_at", "ends_by", "held", "id", "job", "kept_ms", "lease",
        "missing", "nodes", "not_on", "offer", "outcome", "phase", "promised_at", "resume_ms", "seen", "seq", "slots",
        "speed_permille", "spent", "started_at", "then", "width", "yielded",
    )  # fmt: skip

    def __init__(self, promise: StartPromised, job: Job, offer: Offer, seq: int) -> None:
        self.id, self.job, self.offer, self.promised_at = promise.attempt, job, offer, promise.at
        self.seq = seq  #: the order of promising
        self.phase: AttemptPhase = "promised"
        self.width, self.speed_permille = promise.width, promise.speed_permille
        self.resume_ms = self.kept_ms = promise.resume_ms
        self.slots: Slots = promise.slots
        self.asked: Slots = promise.slots  #: what its site was asked for; it may have put the attempt elsewhere
        self.seen = False  #: its site said where it is
        self.not_on: tuple[str, ...] = ()  #: nodes that were reserved for others when it was asked for
        self.nodes: tuple[str, ...] = ()
        self.lease = ""  #: the hold's id, where the site sells by the attempt
        self.missing: tuple[str, ...] = ()  #: nodes not ready yet
        self.after: tuple[str, ...] = ()  #: attempts that must be over first
        self.copies: tuple[str, ...] = ()  #: data sets still being copied
        self.ends_by: Instant = promise.ends_by  #: of a backfill: as `StartPromised` says
        self.started_at: Instant | None = None
        self.then = ""  #: what its job does after the stop
        self.yielded: Slots = ()  #: GPUs promised to others, in use until it has stopped
        # For display only: no decision reads these.
        self.because: Reason = promise.because  #: why there
        self.ended_at: Instant | None = None
        self.outcome = ""  #: how it ended: done, failed, stopped, lost, refused, dropped
        self.held: Money = 0
        self.spent: Money = 0

    def done_ms(self, now: Instant) -> Millis:
        """Work done so far, in the job's own run time."""
        if self.started_at is None:
            return self.resume_ms
        return self.resume_ms + (now - self.started_at) * self.speed_permille // PERMILLE

    @property
    def ready(self) -> bool:
        return self.phase == "promised" and not (self.missing or self.after or self.copies)


class Node:
    """A rented node, with a hold of its own from the launch until the provider confirms the release.

    Its payer may put more jobs on it; the hold does not grow.
    """

    __slots__ = (
        "asked_at", "attempt", "because", "free", "gpus", "id", "idle_at", "leaves", "offer", "on", "open", "payer",
        "phase",
    )  # fmt: skip

    def __init__(
        self, node_id: str, offer: Offer, gpus: int, attempt: str, asked_at: Instant, payer: tuple[str, ...]
    ) -> None:
        self.id, self.offer, self.gpus, self.attempt, self.asked_at = node_id, offer, gpus, attempt, asked_at
        self.payer = payer  #: the scopes of its hold
        self.phase: NodePhase = "asked"
        self.idle_at: Instant | None = None
        self.on: dict[str, int] = {}  #: its attempts, running or promised, each with its GPUs here
        self.open = True  #: whether other jobs may join
        self.free = 0  #: spare GPUs, its key in `State.seats`
        self.leaves = False  #: the output of the attempt it was launched for has left
        self.because: Reason | None = None  #: for display: why a pool rented or kept it

    @property
    def to_spare(self) -> int:
        return self.gpus - sum(self.on.values()) if self.open else 0


class BillShare:
    """An attempt's share of a hold: its GPUs, and their milliseconds since the last charge."""

    __slots__ = ("attempt", "gpu_ms", "gpus")

    def __init__(self, attempt: Attempt, gpus: int) -> None:
        self.attempt, self.gpus, self.gpu_ms = attempt, gpus, 0


class Bill:
    """The attempt that a hold was opened for, and those that share its cost: a rented node may have several.

    An ended attempt stays here until its use is charged. A warm node has no owner: its pool's budget pays.
    """

    __slots__ = ("counted_to", "offer", "owner", "shares")

    def __init__(self, owner: Attempt | None, gpus: int, opened_at: Instant, offer: str = "") -> None:
        self.owner, self.counted_to = owner, opened_at
        self.offer = offer if owner is None else owner.offer.id  #: for display
        self.shares = {} if owner is None else {owner.id: BillShare(owner, gpus)}

    def count(self, at: Instant) -> None:
        """Add up GPU-time up to now; call it before anybody joins or leaves."""
        ms, self.counted_to = at - self.counted_to, at
        for share in self.shares.values():
            share.gpu_ms += share.gpus * ms


class Shape:
    """Jobs that every rule and offer treats alike. Verdicts and quotes are made once for all of them."""

    __slots__ = (
        "barred", "base", "excluded", "judged", "key", "lane", "number", "pending", "rates", "rented", "scopes", "spec",
        "standing", "stays", "unfit", "ways", "without",
    )  # fmt: skip

    def __init__(self, number: int, key: ShapeKey, spec: JobSpec) -> None:
        self.number, self.key, self.spec = number, key, spec
        project = ("project:" + spec.project,) if spec.project else ()
        self.scopes: tuple[str, ...] = ("org", "team:" + spec.team, *project)
        self.judged = False
        self.standing: tuple[str, ...] = ()
        self.rented: tuple[str, ...] = ()
        self.excluded: tuple[tuple[str, str, str], ...] = ()
        self.lane: Lane | None = None
        #: Of jobs whose starts failed: their shape without these offers, and without all rented ones if they stay.
        self.base: Shape | None = None
        self.without: tuple[str, ...] = ()
        self.stays = False
        self.unfit: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: by standing offer: nodes that could not take them
        self.barred: dict[str, int] = {}  #: by standing offer: nodes that do not suit them; empty where all do
        self.pending: dict[Job, None] = {}  #: queued jobs, while there is no verdict
        #: Caches of `quotes`: each offer's cost for this shape, and the rented ones with their rates.
        self.rates: dict[str, Any] = {}
        self.ways: tuple[tuple[Offer, Any], ...] | None = None


class Lane:
    """Queued jobs that fit exactly where the lane's others fit, in the policy's order.

    A job stands here once, from `add` to `remove`, which are called as it joins and leaves the queue: whoever takes a
    job from a lane takes one that is queued.
    """

    __slots__ = ("barred", "job_class", "jobs", "keys", "limited", "number", "pools", "starts", "team", "width")

    def __init__(self, number: int, width: int, pools: tuple[tuple[str, Pool], ...], starts: Starts, team: str) -> None:
        self.number, self.width, self.pools, self.starts, self.team = number, width, pools, starts, team
        self.job_class = ""  #: of its jobs, if headroom is kept for that class
        self.limited = False  #: whether headroom, or a team's limit on GPUs, may keep its jobs from free ones
        self.barred: tuple[int, ...] = ()  #: for each pool, nodes that do not suit its jobs; empty where all do
        self.jobs: dict[OrderKey, Job] = {}  #: by key
        self.keys: list[Any] = []  #: of its jobs, in order

    def add(self, job: Job) -> None:
        key = job.key
        if key in self.jobs:
            raise Broken(f"job {job.id} joins lane {self.number}, in which {self.jobs[key].id} has its place {key}")
        self.jobs[key] = job
        insort(self.keys, key)
        self.starts.waiting += 1

    def remove(self, job: Job) -> None:
        key = job.key
        if self.jobs.pop(key, None) is not job:
            raise Broken(f"job {job.id} leaves lane {self.number}, in which it is not")
        del self.keys[bisect_left(self.keys, key)]
        self.starts.waiting -= 1

    def head(self) -> Job | None:
        return self.jobs[self.keys[0]] if self.keys else None

    def first(self, most: int) -> list[Job]:
        """The first so many, in order."""
        jobs = self.jobs
        return [jobs[key] for key in self.keys[:most]]

    def fits(self) -> bool:
        width = self.width
        if self.barred:
            return self._fits_on_some()
        for _, pool in self.pools:  # noqa: SIM110 - any() with a generator takes twice as long, and this is asked often
            if pool.free_gpus >= width and pool.fits(width):
                return True
        return False

    def seen(self) -> tuple[tuple[str, Pool], ...]:
        """The pools as its jobs see them."""
        if not self.barred:
            return self.pools
        return tuple([(name, pool.without(no)) for no, (name, pool) in zip(self.barred, self.pools, strict=True)])

    def _fits_on_some(self) -> bool:
        pools = zip(self.barred, self.pools, strict=True)
        return any(pool.fits_without(barred, self.width) for barred, (_, pool) in pools)


class Aim:
    """Measurements for a target; older ones decay with every review."""

    __slots__ = ("delay_ms", "jobs", "next_at", "since_at", "spent")

    def __init__(self, since_at: Instant = 0) -> None:
        self.jobs, self.delay_ms = 0, 0  #: done lately, in thousandths, and what they were delayed together, likewise
        self.spent: Money = 0  #: in all, by `since_at`
        self.since_at = since_at
        self.next_at: Instant = NEVER  #: the next review; NEVER where the policy names no target


class StepChanges:
    """What this step's facts changed: the input of `cycle`, and the actions that follow."""

    __slots__ = ("actions", "arrived", "closing", "freed", "rare", "review")

    def __init__(self) -> None:
        self.arrived: list[Job] = []  #: jobs to decide: new, preempted, or stopped and queued again
        self.freed = False  #: standing GPUs were freed
        self.review: list[str] = []  #: rented things with a new lease, or that somebody left while others stay
        self.closing: list[tuple[Lease, bool, bool]] = []  #: gone; was it billed; does its output leave
        self.actions: list[Action] = []
        self.rare = RareChanges()  #: only what `note_rare` returns is written to

    def note_rare(self) -> "RareChanges":
        """To note something rare in."""
        self.rare.noted = True
        return self.rare


class RareChanges:
    """Changes that few steps have, kept apart so that other steps need not look at each."""

    __slots__ = (
        "failed", "idle", "noted", "noticed", "open_spot", "readings", "refused", "requests", "room", "shortened",
        "stale", "suspends",
    )  # fmt: skip

    def __init__(self) -> None:
        self.noted = False  #: False: all of these are empty
        self.idle: list[Node] = []
        self.noticed: list[tuple[Node | Attempt, str]] = []  #: will be taken away; the site's words
        self.open_spot: dict[str, None] = {}  #: spot offers that were seen to have capacity
        self.room: dict[str, None] = {}  #: scopes with more money available than before
        self.refused: list[tuple[Offer, Millis]] = []
        #: Starts: cause, the site's words, its pause, nodes that could not take it.
        self.failed: list[tuple[Attempt, str, str, Millis, tuple[str, ...]]] = []
        self.requests: list[tuple[str, str]] = []  #: job, offer it was asked to move to, empty to cancel
        self.suspends: list[str] = []  #: jobs to stop
        self.shortened: list[tuple[Lease, Instant]] = []
        self.readings: list[tuple[Lease, Money]] = []  #: the provider's own meter
        self.stale = False  #: a cap was lowered: leases may have to be shortened


class Touched:
    """What a step changed for display, also of things that left the state: the journal's projection reads it.

    Only `apply` writes it, where it makes the change, and no decision reads it.
    """

    __slots__ = ("attempts", "bills", "charges", "jobs", "leases", "nodes", "offers", "spend")

    def __init__(self) -> None:
        self.jobs: dict[Job, str] = {}  #: with the phase before this step; empty: it is new
        self.attempts: dict[Attempt, AttemptPhase] = {}  #: with the phase before this step
        self.nodes: dict[Node, None] = {}
        self.offers: dict[str, None] = {}  #: closed, or open again
        self.leases: dict[Lease, None] = {}
        self.bills: dict[str, Bill] = {}  #: of those leases
        self.spend: dict[tuple[tuple[str, ...], str], None] = {}  #: scopes and period whose accounts changed
        self.charges: list[tuple[str, str, Money]] = []  #: offer and team of a hold that was charged, and how much


class State:
    __slots__ = (
        "aim", "alarms", "approvals", "at", "at_once", "attempts", "away", "bills", "busy_since", "changes",
        "class_heights", "class_rules", "class_stops", "closed", "clusters", "data", "delay_costs", "demand", "egress",
        "ended", "followers", "gated", "governed", "history", "hours", "idle", "in_use", "jobs", "lane_of", "lanes",
        "leaving", "ledger", "line", "losses", "lost_sites", "newest", "nodes", "numbered", "offers", "on_demand",
        "on_node", "owed", "paused", "policy", "pools", "probing", "promised", "raises", "refusals", "renewals",
        "replicas", "reserved", "retries", "revision", "run_ends", "seats", "seq", "shape_list", "shapes", "short",
        "sites", "skipped", "stale_shapes", "starts", "steps", "suspended", "team_rules", "team_shares", "timers",
        "touched", "unproved", "uses", "value_per_hour", "waiting", "warm", "yielding",
    )  # fmt: skip

    def __init__(self) -> None:
        self.at: Instant = 0
        self.steps = 0
        self.seq = 0
        self.promised = 0  #: attempts so far
        self.numbered = -1  #: the last submission's number
        self.skipped: list[tuple[int, int]] = []  #: numbers that nobody has: first and last of each lost stretch
        self.revision = 0
        self.policy = Policy("none")
        self.value_per_hour: Money = 0  #: the cost of delay: the policy's, or as adjusted by its target
        self.aim = Aim()
        self.paused = False  #: a person paused placements
        self.leaving: dict[
            str, bool
        ] = {}  #: home clusters that get their Jobs back; True: what runs elsewhere goes home
        self.suspended: dict[str, None] = {}  #: jobs that a person suspended: once their attempt is over, not queued
        self.approvals: dict[str, JobApprovals] = {}  #: by job; of few, and only under a policy that asks for them
        self.raises: dict[str, CapRaiseAsked] = {}  #: scope -> the higher cap that somebody asks for
        self.alarms: list[tuple[Instant, str, str]] = []  #: at, kind, text; the newest few
        self.sites: dict[str, Site] = {}
        self.offers: dict[str, Offer] = {}
        self.pools: dict[str, Pool] = {}  #: of standing offers
        self.lost_sites: dict[str, None] = {}
        self.closed: dict[str, Instant] = {}  #: offer -> closed until
        self.unproved: dict[str, None] = {}  #: offers whose watchman nobody has seen lately: caps are soft there
        self.refusals: dict[str, int] = {}
        self.probing: dict[str, str] = {}  #: offer -> the attempt that probes it
        self.in_use: dict[tuple[str, int], int] = {}  #: rented nodes per offer and size
        self.jobs: dict[str, Job] = {}
        self.attempts: dict[str, Attempt] = {}
        self.away: dict[int, dict[str, Attempt]] = {}  #: by width, rented and movable, longest there first
        self.on_demand: dict[str, Attempt] = {}  #: of those, the ones that are not on spot
        self.on_node: dict[str, list[dict[str, Attempt]]] = {}  #: standing offer -> node -> its attempts
        self.nodes: dict[str, Node] = {}
        self.seats: dict[tuple[str, tuple[str, ...], int], dict[str, Node]] = {}  #: by offer, payer and spare GPUs
        self.followers: dict[str, list[Attempt]] = {}
        self.yielding: dict[str, Attempt] = {}  #: stopping attempts whose GPUs are promised already
        self.shapes: dict[ShapeKey, Shape] = {}
        self.shape_list: list[Shape] = []
        self.stale_shapes: list[Shape] = []  #: need a verdict
        self.lanes: list[Lane] = []
        self.lane_of: dict[tuple[object, ...], Lane] = {}
        self.waiting = 0  #: jobs queued
        self.newest: dict[Job, None] = {}  #: queued jobs by arrival; kept only for a policy with a queue cap
        self.timers: list[tuple[Instant, int, Job]] = []
        self.renewals: list[tuple[Instant, str, Lease]] = []
        self.retries: list[tuple[Instant, int, str, Job]] = []  #: when a job may be started at an offer again
        self.reserved: dict[str, Job] = {}  #: jobs with reserved nodes
        self.short: dict[str, dict[str, Job]] = {}  #: scope -> jobs that wait for money in it
        # What a policy file says of the moment; all of these are empty without one. `fold/governed` keeps them.
        self.governed = False  #: something of the moment is to be noted as time passes
        self.gated = False  #: a burst needs more than offers and money
        self.team_rules: dict[str, TeamRule] = {}  #: by team, of those with a limit
        self.team_shares = False  #: a team has a share of the owned GPUs
        self.class_rules: dict[str, ClassRule] = {}  #: by class, of those with a limit, or without triggers
        self.class_stops: dict[str, tuple[str, ...]] = {}  #: by class, of those that may: whose jobs it may stop
        self.class_heights: dict[str, int] = {}  #: of those: how many classes stand in a row below it
        self.delay_costs: dict[str, Money] = {}  #: by class, of those with a cost of delay of their own
        self.hours: dict[str, tuple[tuple[Instant, Instant], ...]] = {}  #: by window: when it is open, not yet over
        self.at_once: dict[str, int] = {}  #: by team with a limit: GPUs that its jobs have or are promised
        self.egress: dict[tuple[str, str], int] = {}  #: by team with a limit, and period: bytes of declared outputs
        self.busy_since: dict[int, Instant] = {}  #: by a trigger's threshold: since when utilisation has reached it
        self.run_ends: list[tuple[Instant, int, Attempt]] = []  #: when attempts must stop for their class's limit
        self.idle: dict[str, Node] = {}  #: rented nodes that are kept though nothing is on them
        self.clusters = SiteClusters()  #: transient ones; empty where no site has one
        self.warm = WarmPools()  #: empty where no offer has one
        self.demand = HourlyDemand()
        self.ledger = Ledger()
        self.bills: dict[str, Bill] = {}  #: by hold, while it is open
        self.history: Runtimes = Recent()
        self.starts: dict[tuple[tuple[str, ...], int], Starts] = {}  #: by standing offers and width
        self.losses: dict[str, Losses] = {}  #: by rented offer
        self.uses: dict[str, Use] = {}  #: by team: its use of standing GPUs
        self.data: dict[str, DataSet] = {}
        self.replicas: dict[tuple[str, str], Instant] = {}
        #: Unanswered actions that no phase or lease implies, with the attempts that wait for the answer.
        self.owed: dict[Action, list[Attempt]] = {}
        self.line = Uplink()
        self.ended: dict[str, int] = {}
        self.changes = StepChanges()
        self.touched: Touched | None = None  #: None: this state has no projection

    def watch(self) -> None:
        """From the next step on, note changes for the journal's projection."""
        self.touched = Touched()

    def expect(self, job: Job) -> Millis:
        """The job's whole run time: from its progress, or from history."""
        return self.history.expect(job.spec) if job.told_ms is None else job.told_ms

    def remaining(self, job: Job, done_ms: Millis) -> Millis:
        """How long it still runs, having done so much."""
        return self.history.remaining(job.spec, done_ms) if job.told_ms is None else max(0, job.told_ms - done_ms)

    def standing(self, offer: Offer) -> bool:
        return offer.term in STANDING

    # --- what was promised and not yet answered ----------------------------------------------------------------------

    def outstanding(self) -> Iterator[Action]:
        """Actions to repeat after a crash, derived from the state alone."""
        for node in self.nodes.values():
            if node.phase == "asked":
                yield launch_action(self, node)
            elif node.phase == "returning":
                yield ReleaseNode(node.id)
        for attempt in self.attempts.values():
            if attempt.phase == "starting":
                yield start_action(self, attempt)
            elif attempt.phase == "stopping":
                yield StopAttempt(attempt.id, attempt.job.spec.grace_ms)
        for lease in self.ledger.leases.values():
            if lease.unconfirmed:
                yield SetDeadline(lease.hold.id, lease.wanted_at)
        yield from self.owed

    def owe(self, action: Action) -> list[Attempt]:
        """Note an action until it is answered; returns the list of attempts that wait for it."""
        if action not in self.owed:
            self.owed[action] = []
            self.changes.actions.append(action)
        return self.owed[action]

    # --- equality ----------------------------------------------------------------------------------------------------

    def digest(self) -> str:
        """Equal digests: the same knowledge in the same order, hence the same next decisions."""
        sha = hashlib.sha256()
        for part in self.canonical():
            sha.update(repr(part).encode())
        return sha.hexdigest()

    def meaning(self) -> str:
        """A version-independent digest: jobs, attempts, nodes and money, not how they are indexed."""
        ledger = self.ledger
        content = (
            self.at,
            sorted(self.ended.items()),
            [(job.id, job.phase, job.kept_ms, job.moves) for job in self.jobs.values()],
            [(a.id, a.offer.id, a.phase, a.width, a.slots, a.nodes) for a in self.attempts.values()],
            [(node.id, node.phase, node.gpus) for node in self.nodes.values()],
            [(name, pool.free) for name, pool in self.pools.items()],
            [(key, account.cap, account.held, account.spent) for key, account in sorted(ledger.accounts.items())],
            [(lease.hold.id, lease.held, lease.charged, lease.deadline_at) for lease in ledger.leases.values()],
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def canonical(self) -> Iterator[object]:
        yield (self.at, self.steps, self.seq, self.promised, self.numbered, self.revision, self.waiting, self.policy)
        yield (self.paused, self.alarms)
        yield (list(self.sites.values()), list(self.lost_sites), list(self.closed.items()), list(self.refusals.items()))
        yield (list(self.probing.items()), list(self.in_use.items()), list(self.ended.items()))
        yield from ((name, pool.free, _bits(pool.up), _bits(pool.kept)) for name, pool in self.pools.items())
        yield from ((p.names, p.others, p.owed) for p in self.pools.values() if p.names)
        yield from (list(p.unsuited.items()) for p in self.pools.values() if p.unsuited)
        yield from (_plain(job, ("attempt", "next", "setbacks", "shape")) for job in self.jobs.values())
        yield from ((job.id, list(job.setbacks.items())) for job in self.jobs.values() if job.setbacks)
        yield from ((j.shape.number, j.attempt and j.attempt.id, j.next and j.next.id) for j in self.jobs.values())
        yield from (_plain(attempt, ("job", "offer", "seen")) for attempt in self.attempts.values())
        yield from (attempt.id for attempt in self.attempts.values() if attempt.seen)
        yield from (_plain(node, ("because", "offer")) for node in self.nodes.values())
        yield [(key, list(nodes)) for key, nodes in self.seats.items()]
        yield from ((shape.number, shape.standing, shape.rented, shape.judged) for shape in self.shape_list)
        yield from (sorted([job.seq for job in lane.jobs.values()]) for lane in self.lanes)
        yield sorted((at, seq) for at, seq, job in self.timers if job.until_at == at)
        yield sorted((at, name) for at, name, lease in self.renewals if lease.renew_at == at)
        yield (list(self.reserved), self.value_per_hour, _plain(self.aim, ()))
        yield [(scope, list(jobs)) for scope, jobs in self.short.items() if jobs]
        yield (list(self.data.values()), list(self.replicas.items()))
        yield [(key, [attempt.id for attempt in waiting]) for key, waiting in self.owed.items()]
        yield (self.line.size_bytes, self.line.ms)
        ledger = self.ledger
        yield (ledger.periods, list(ledger.caps.items()), list(ledger.rate_caps.items()))
        yield (list(ledger.frozen), ledger.overrun)
        if self.unproved:
            yield list(self.unproved)
        if self.suspended:  # older journals have none, and keep their digests
            yield list(self.suspended)
        if self.skipped:
            yield self.skipped
        if self.leaving:
            yield list(self.leaving.items())
        if self.hours or self.at_once or self.egress or self.busy_since or self.idle:
            yield (list(self.hours.items()), list(self.at_once.items()), list(self.egress.items()))
            yield (sorted(self.busy_since.items()), list(self.idle))
        if self.run_ends:
            yield sorted((at, seq) for at, seq, attempt in self.run_ends if attempt.phase == "running")
        if self.approvals:
            yield [(job, *known.canonical()) for job, known in self.approvals.items()]
        if self.raises:
            yield list(self.raises.items())
        yield from self.warm.canonical()
        if self.warm.offers or self.warm.numbered:
            yield (self.warm.forecast, _plain(self.demand, ()))
        yield from self.clusters.canonical()
        if ledger.file_caps:  # older journals have none, and keep their digests
            yield list(ledger.file_caps.items())
        yield [(key, a.cap, a.held, a.spent) for key, a in ledger.accounts.items()]
        yield list(ledger.rates.items())
        yield from (_plain(lease, ()) for lease in ledger.leases.values())
        yield from (
            (
                "" if bill.owner is None else bill.owner.id,
                bill.counted_to,
                [(name, share.gpus, share.gpu_ms) for name, share in bill.shares.items()],
            )
            for bill in self.bills.values()
        )
        yield from (_plain(starts, ()) for starts in self.starts.values())
        yield [(name, _plain(losses, ())) for name, losses in self.losses.items()]
        yield [(team, _plain(use, ())) for team, use in self.uses.items()]
        yield [(width, list(attempts)) for width, attempts in self.away.items()]
        yield from _known(self.history)


def _bits(nodes: int) -> int | str:
    """A set of nodes. Python writes no number of more than 4,300 digits, which 15,000 nodes have."""
    return nodes if nodes.bit_length() < 10_000 else hex(nodes)


def _plain(thing: object, without: tuple[str, ...]) -> list[tuple[str, object]]:
    """By name, so that the compiled core, which orders fields itself, gives the same."""
    kind = type(thing)
    names: tuple[str, ...] = getattr(kind, "__mypyc_attrs__", None) or kind.__slots__  # type: ignore[attr-defined]  # all are slotted
    return [(name, getattr(thing, name)) for name in sorted(names) if name not in without]


def _known(history: Runtimes) -> Iterator[object]:
    if isinstance(history, LifeTable):
        for table in ({"": history.all}, history.by_width, history.by_team, history.by_name):
            yield [(key, _plain(lives, ())) for key, lives in table.items()]
    else:
        yield _plain(history, ())


def start_action(state: State, attempt: Attempt) -> StartAttempt:
    lease_id = attempt.lease or (attempt.nodes[0] if attempt.nodes else "")
    lease = state.ledger.leases.get(lease_id) if lease_id else None
    return StartAttempt(
        attempt.id,
        attempt.job.id,
        attempt.offer.id,
        attempt.width,
        attempt.speed_permille,
        attempt.resume_ms,
        attempt.asked,
        attempt.nodes,
        lease.wanted_at if lease else NEVER,
        attempt.job.keeper,
        _places(state, attempt) if attempt.asked else (),
        bool(attempt.asked and attempt.ends_by),
        attempt.not_on,
    )


def _places(state: State, attempt: Attempt) -> tuple[str, ...]:
    names = state.pools[attempt.offer.id].names
    return tuple(names[node] for node, _ in attempt.asked) if names else ()


def note_reserved(state: State, attempt: Attempt) -> None:
    """Call when its site is asked: nobody but a backfill may be put on nodes that are reserved for others."""
    pool = state.pools[attempt.offer.id]
    if pool.kept and not attempt.ends_by:
        attempt.not_on = tuple([name for node, name in enumerate(pool.names) if pool.kept >> node & 1])


def launch_action(state: State, node: Node) -> LaunchNode:
    """One that was rented ahead is asked for alike after a job has taken it: it is for nobody in particular."""
    attempt = "" if is_ahead(node.id) else node.attempt
    return LaunchNode(node.id, node.offer.id, node.gpus, attempt, state.ledger.leases[node.id].wanted_at)


def without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple([other for other in names if other != name])
