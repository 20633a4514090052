"""Random histories through the real engine and a greedy provider, and everything that must be true of them.

`live(history)` runs one and raises `Violated`, naming the rule, as soon as one is broken. The numbered rules are the
invariants of docs/money.md; each is counted from the provider's side or from the record, not by the engine's own sums.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from penstock.core.decide.rules import Candidate
from penstock.core.engine import Engine, Step, replay
from penstock.core.fold.invariants import check
from penstock.core.model import events as e
from penstock.core.model.governance import (
    NONE,
    BurstTrigger,
    ClassRule,
    DenyRule,
    Governance,
    Headroom,
    PriceLimit,
    QuietHours,
    TeamRule,
)
from penstock.core.model.lifecycle import Broken
from penstock.core.model.reasons import BurstAllowed, JoinsNode, LostNode, NotWorthWaiting, PatienceOver, QueueFull
from penstock.core.model.types import (
    JOB_CLASSES,
    DataRule,
    DataSet,
    EgressTier,
    Extras,
    JobSpec,
    NodeShape,
    Offer,
    Policy,
    Site,
    TransientCluster,
    Waiting,
    WarmPool,
)
from penstock.core.units import DAY, GB, HOUR, MICRO, MINUTE, NEVER, Instant, Millis, Money
from penstock.policy import hours
from penstock.policy.rules import PolicyRules, with_shapes
from tests.core.owed import Owed
from tests.core.provider import Provider
from tests.policy.slow_reading import PIECES, denied_slowly

MONTH: Millis = 30 * DAY
MOST_STEPS = 160
TEAMS = ("red", "blue")
SCOPES = ("org", "team:red", "team:blue", "project:x")


class Violated(AssertionError):
    """A rule of the engine does not hold."""


@dataclass(frozen=True)
class Asked:
    """A job as the world knows it."""

    at: Instant
    id: str
    run_ms: Millis
    spec: JobSpec


@dataclass(frozen=True)
class History:
    zero: Instant
    sites: tuple[Site, ...]
    policy: Policy
    caps: tuple[tuple[str, Money | None, Money | None], ...]
    jobs: tuple[Asked, ...]
    commands: tuple[tuple[Instant, str, Any], ...]
    seed: int
    slow_permille: int
    hears_after_ms: Millis
    refuses_permille: int
    crashes: frozenset[int]
    echoes: bool
    meters: bool  # the provider's own meter is read at every step
    dies_at_step: int | None
    dies_before_acting: bool


# --- strategies ------------------------------------------------------------------------------------------------------


def pick(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


@st.composite
def rented(draw: st.DrawFn, name: str) -> Site:
    sizes = draw(pick((8,), (1, 4, 8), (1,), (2, 8)))
    price = draw(st.integers(100_000, 4_000_000))
    term = draw(pick("on_demand", "on_demand", "spot"))
    ceiling = draw(pick(1, 3)) if term == "spot" else None
    count = draw(pick(None, None, None, 3))
    shapes = tuple(
        NodeShape(gpus, count, price * gpus + gpus, most_per_hour=ceiling and ceiling * (price * gpus + gpus))
        for gpus in sizes
    )
    sold_by = draw(pick("node", "attempt"))
    # An attempt may be asked for later than its hold was opened, and steps and minimum then count from another
    # instant than the engine's: stories/test_money.py has what goes wrong. So it is sold by the millisecond here.
    by_attempt = sold_by == "attempt"
    offer = Offer(
        f"{name}/{term}", name, term, shapes,
        sold_by=sold_by,
        start_ms=draw(pick(0, 5 * MINUTE, 25 * MINUTE)),
        loss_ppm_per_hour=draw(pick(0, 0, 400_000)),
        limit_gpus=draw(pick(None, None, 16)),
        extras=Extras(disk_per_hour=draw(pick(0, 77_777)), launch_fee=draw(pick(0, 123_457)), nat_per_gb=11),
        billing_step_ms=1 if by_attempt else draw(pick(1, 1, MINUTE, HOUR)),
        billing_minimum_ms=0 if by_attempt else draw(pick(0, 0, 90 * 1000, 30 * MINUTE)),
        kill_ms=draw(pick(0, 61_001, 7 * MINUTE)),
    )  # fmt: skip
    egress = draw(pick((), (EgressTier(None, 90_000),), (EgressTier(10, 90_000), EgressTier(None, 50_001))))
    return Site(name, (offer,), egress=egress)


@st.composite
def owned(draw: st.DrawFn) -> Site:
    nodes, gpus = draw(pick((1, 8), (2, 4), (2, 8), (1, 2)))
    offers = [Offer("lab/owned", "lab", "owned", (NodeShape(gpus, nodes),), start_ms=draw(pick(0, MINUTE)))]
    if draw(st.booleans()):
        offers.append(Offer("lab/reserved", "lab", "reserved", (NodeShape(8, 1),)))
    return Site("lab", tuple(offers), front_door=True)


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    run_ms = draw(st.integers(1, 400)) * MINUTE
    gpus = draw(pick(1, 2, 4, 8, 8, 12, 16))
    return JobSpec(
        gpus,
        team=draw(pick(*TEAMS)),
        user=draw(pick("ann", "bob")),
        job_class=draw(pick("training", "training", "experiment")),
        project=draw(pick("", "", "x")),
        expected_run_ms=draw(pick(None, run_ms, run_ms // 2 + 1)),
        checkpoint_every_ms=draw(pick(None, 15 * MINUTE, 15 * MINUTE, 7 * MINUTE)),
        priority=draw(pick(0, 0, 0, 1, 5)),
        interruptible=draw(pick(True, True, True, False)),
        data=draw(pick((), (), (), (), ("open",), ("open",), ("open", "closed"))),
        data_class=draw(pick("", "", "", "", "", "secret")),
        home=draw(pick("", "lab")),
        output_bytes=draw(pick(0, 0, 3 * GB + 1, 40 * GB)),
        scaling=((gpus * 2, 1800),) if draw(pick(False, False, True)) else (),
        cap=draw(pick(None, None, None, 3 * MICRO, 30 * MICRO)),
        grace_ms=draw(pick(0, 2 * MINUTE, 2 * MINUTE, 10 * MINUTE)),
        restart_ms=draw(pick(0, 5 * MINUTE)),
        lease_max_ms=draw(pick(10 * MINUTE, HOUR, 12 * HOUR)),
        count=draw(pick(1, 1, 1, 1, 3)),
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    kind = draw(pick("nowait", "constant", "constant", "compute", "power", "worth", "worth"))
    waiting = Waiting(
        kind,
        {"constant": 20 * MINUTE, "compute": 1, "power": 1}.get(kind, 0),
        {"compute": 10, "power": 20_000}.get(kind, 1),
        draw(pick(None, None, 1)),
        value_per_hour=draw(pick(MICRO, 20 * MICRO)) if kind == "worth" else 0,
        most_ms=draw(pick(2 * HOUR, DAY)),
        target_delay_ms=draw(pick(0, 0, MINUTE)),
        target_spend=draw(pick(0, 0, 100 * MICRO)),
        look_every_ms=draw(pick(HOUR, 6 * HOUR)),
    )
    return Policy(
        "random",
        ordering=draw(pick("fifo", "priority", "fair")),
        pace=draw(st.booleans()),
        reserve=draw(st.booleans()),
        packing=draw(pick("first_fit", "best_fit", "ends_alike")),
        backfill=draw(st.booleans()),
        waiting=waiting,
        estimator=draw(pick("recent", "life_table", "declared")),
        home=draw(st.booleans()),
        defragment=draw(st.booleans()),
        share_nodes=draw(pick(True, True, False)),
        burst=draw(pick(True, True, True, True, False)),
        preempt=draw(st.booleans()),
        displace=draw(st.booleans()),
        data_rules=(DataRule("open", sites=("*",)),),
        exhausted=draw(pick("checkpoint_stop", "move_home")),
        least_lease_ms=draw(pick(MINUTE, 10 * MINUTE, 10 * MINUTE)),
        settle_ms=draw(pick(0, 30 * MINUTE)),
        governance=draw(governances()) if draw(st.booleans()) else NONE,
    )


@st.composite
def governances(draw: st.DrawFn) -> Governance:
    """What a policy file may say of classes, teams and rules."""
    classes = [
        ClassRule(
            name,
            where=draw(pick("owned_first", "owned_first", "owned", "rented")),
            spot=draw(pick("allowed", "allowed", "required", "forbidden")),
            cost_of_delay=draw(pick(None, 3 * MICRO)),
            preempts=draw(pick((), ("experiment",), ("training",))),
        )
        for name in ("training", "experiment")
    ]
    teams = [TeamRule(team, share_permille=draw(pick(None, 0, 250, 500))) for team in TEAMS]
    rules = [DenyRule(text, text) for text in draw(st.lists(pick(*[text for text, _ in PIECES]), max_size=1))]
    return with_shapes(
        Governance(
            classes=tuple(classes) if draw(st.booleans()) else (),
            teams=tuple(teams) if draw(st.booleans()) else (),
            never_above=draw(pick(None, None, PriceLimit(per_gpu_hour=2 * MICRO))),
            rules=tuple(rules),
        )
    )


def tense(history: History) -> History:
    """The same with everybody in each other's way: small jobs that come together, preempt, and are slow to leave."""
    jobs = tuple(
        replace(job, at=history.zero + (job.at - history.zero) // 10, spec=_pushing(job.spec, k))
        for k, job in enumerate(history.jobs)
    )
    policy = replace(history.policy, preempt=True, displace=True, backfill=True)
    commands = tuple(entry for entry in history.commands if entry[1] != "policy")
    return replace(history, jobs=jobs, policy=policy, commands=commands, slow_permille=1000, dies_at_step=None)


def packed(history: History) -> History:
    """The same with small jobs that come together and burst at once, where only nodes of eight GPUs are sold."""
    jobs = tuple(
        replace(job, at=history.zero + (job.at - history.zero) // 5, spec=_small(job.spec, k))
        for k, job in enumerate(history.jobs)
    )
    sites = tuple(_by_eight(site) for site in history.sites if site.id != "lab")
    policy = replace(history.policy, share_nodes=True, burst=True, waiting=Waiting("nowait"), pace=False)
    kinds = ("cancel", "cap", "site")
    commands = tuple(entry for entry in history.commands if entry[1] in kinds and entry[2][0] != "lab")
    return replace(history, sites=sites, jobs=jobs, policy=policy, commands=commands)


def warm(history: History) -> History:
    """The same with a pool of warm nodes at each rented offer, on a team's budget or the organisation's."""
    seed = history.seed + 7 * len(history.jobs) + 3 * len(history.commands)  # simple histories have few seeds
    jobs = tuple(
        replace(job, at=job.at + 10 * MINUTE, run_ms=1 + job.run_ms // 4, spec=_narrow(job.spec, k))
        for k, job in enumerate(history.jobs)
    )
    sites = tuple(replace(site, offers=tuple(_pooled(offer, seed) for offer in site.offers)) for site in history.sites)
    commands = tuple(
        entry if entry[1] != "leave" else (entry[0], "leave", (_of(sites, entry[2][0]), entry[2][1]))
        for entry in history.commands
    )
    policy = replace(history.policy, burst=True)
    if seed % 2:
        policy = replace(policy, waiting=Waiting("nowait"), pace=False)
    return replace(history, sites=sites, jobs=jobs, commands=commands, policy=policy)


def transient(history: History) -> History:
    """The same with clusters that come and go at each rented site, and people who ask for them."""
    seed = history.seed + 7 * len(history.jobs) + 3 * len(history.commands)
    jobs = tuple(
        replace(job, run_ms=1 + job.run_ms // 4, spec=replace(job.spec, data=(), data_class="")) for job in history.jobs
    )
    sites = tuple(_come_and_go(site, seed) if site.id != "lab" else site for site in history.sites)
    commands = [
        entry if entry[1] != "leave" else (entry[0], "leave", (_of(sites, entry[2][0]), entry[2][1]))
        for entry in history.commands
    ]
    names = [site.id for site in sites if site.cluster is not None]
    for k, name in enumerate(names):
        at = history.zero + (20 + seed % 50 * (k + 1)) * MINUTE
        commands += [(at, "up", (name, at + HOUR)), (at + (1 + seed % 3) * 40 * MINUTE, "down", name)][: 1 + seed % 2]
    policy = replace(history.policy, burst=True)
    if seed % 3:
        policy = replace(policy, waiting=Waiting("nowait"), pace=False)
    return replace(history, sites=sites, jobs=jobs, commands=tuple(commands), policy=policy)


def _come_and_go(site: Site, seed: int) -> Site:
    shape = NodeShape(0, 1, 90_001 + seed % 7 * 1_000_000)
    offer = Offer(
        f"{site.id}/cluster", site.id, "on_demand", (shape,),
        start_ms=(0, 15 * MINUTE, 4 * MINUTE)[seed % 3],
        loss_ppm_per_hour=(0, 0, 300_000)[seed % 5 % 3],
        extras=Extras(launch_fee=seed % 4 * 111_111),
        billing_step_ms=(1, HOUR, MINUTE)[seed % 7 % 3],
        kill_ms=(0, 61_001, 7 * MINUTE)[seed % 11 % 3],
    )  # fmt: skip
    scopes = (("org", "team:red"), ("org", "team:platform"), ("org",))[seed % 5 % 3]
    idle_ms, most_ms = (0, 10 * MINUTE)[seed % 2], (12 * HOUR, 50 * MINUTE)[seed % 13 % 2]
    by_attempt = tuple(
        replace(sold, sold_by="attempt", billing_step_ms=1, billing_minimum_ms=0) for sold in site.offers
    )
    return replace(site, offers=by_attempt, cluster=TransientCluster(offer, scopes, idle_ms, most_ms))


def _of(sites: tuple[Site, ...], site: Site) -> Site:
    return next(candidate for candidate in sites if candidate.id == site.id)


def _pooled(offer: Offer, seed: int) -> Offer:
    if offer.term in ("owned", "reserved"):
        return offer
    scopes = (("org", "team:red"), ("org", "team:platform"), ("org",))[seed % 5 % 3]
    open_hours = (None, hours.window(0, 240), None, hours.window(30, 240, "Europe/Berlin"))[seed % 7 % 4]
    pool = WarmPool(1 + seed % 2, offer.shapes[seed % len(offer.shapes)].gpus, scopes, open_hours)
    # Where there are no more than the pool has, a node that a job leaves is the only one to be had.
    shapes = tuple(replace(shape, count=pool.nodes if seed % 3 else shape.count) for shape in offer.shapes)
    return replace(offer, sold_by="node", renewable=seed % 4 != 0, shapes=shapes, warm=pool)


def _narrow(spec: JobSpec, k: int) -> JobSpec:
    return replace(spec, gpus=(1, 2, 4, 8)[k % 4], scaling=(), output_bytes=spec.output_bytes if k % 2 else 0)


def _small(spec: JobSpec, k: int) -> JobSpec:
    return replace(
        spec, gpus=1 + k % 3, team=TEAMS[k % 5 % 2], project="", cap=None, data=(), data_class="", scaling=(),
        lease_max_ms=HOUR,
    )  # fmt: skip


def _by_eight(site: Site) -> Site:
    offers = tuple(replace(offer, sold_by="node", shapes=(_eight(offer.shapes[-1]),)) for offer in site.offers)
    return replace(site, offers=offers)


def _eight(shape: NodeShape) -> NodeShape:
    times = 8 // shape.gpus
    most = shape.most_per_hour and shape.most_per_hour * times
    return NodeShape(8, shape.count, shape.list_per_hour * times, most_per_hour=most)


def _pushing(spec: JobSpec, k: int) -> JobSpec:
    grace = max(spec.grace_ms, 2 * MINUTE)
    return replace(spec, gpus=min(spec.gpus, 8), priority=k, grace_ms=grace, checkpoint_every_ms=7 * MINUTE, scaling=())


@st.composite
def governances_of_the_moment(draw: st.DrawFn) -> Governance:
    """What a policy file may say of the moment."""
    night, day = hours.window(60, 150, "Europe/Berlin"), hours.window(*draw(pick((0, 1440), (10, 300), (0, 90))))
    triggers = [
        BurstTrigger("queued_jobs", draw(st.integers(2, 5)), source="p:1"),
        BurstTrigger("expected_wait", draw(pick(10, 90)) * MINUTE, source="p:2"),
        BurstTrigger("utilisation", draw(pick(500, 1000)), draw(pick(0, 15)) * MINUTE, source="p:3"),
        BurstTrigger("deadline_at_risk", 1, source="p:4"),
    ]
    red = TeamRule(
        "red",
        gpus_at_once=draw(pick(16, 8, None)),
        per_job=draw(pick(40 * MICRO, None, 3 * MICRO)),
        egress_bytes_per_month=draw(pick(41 * GB, 3 * GB, None)),
        source="p:5",
    )
    return Governance(
        classes=(
            ClassRule("experiment", where=draw(pick("owned_first", "rented")), longest_ms=draw(pick(20, 90)) * MINUTE),
            *(ClassRule(name) for name in JOB_CLASSES if name != "experiment"),
        ),
        teams=draw(pick((), (red,), (red,), (red, TeamRule("blue", gpus_at_once=12, source="p:6")))),
        burst_when=tuple(draw(st.lists(pick(*triggers), min_size=draw(pick(0, 1, 1)), max_size=2, unique=True))),
        never_above=draw(pick(PriceLimit(per_job=20 * MICRO, source="p:7"), None, None)),
        quiet_hours=draw(pick((), (QuietHours(night.id, "p:8"),))),
        headroom=draw(pick((Headroom(day.id, "lab", 4, draw(pick("inference", "")), "p:9"),), ())),
        idle_nodes_end_after_ms=draw(pick(None, 7 * MINUTE, HOUR)),
        windows=(night, day),
    )


def governed(history: History, governance: Governance) -> History:
    """The same under one policy file for all of its time, with jobs of all classes that come together."""
    jobs = tuple(
        replace(job, at=history.zero + (job.at - history.zero) // 6, spec=_classed(job, k))
        for k, job in enumerate(history.jobs)
    )
    commands = tuple(entry for entry in history.commands if entry[1] != "policy")
    return replace(history, jobs=jobs, commands=commands, policy=replace(history.policy, governance=governance))


def limited_later(history: History, minutes: int, per_job: Money) -> History:
    """The same with a limit for one job of a team that comes while jobs run. Nobody pays for another."""
    red = TeamRule("red", per_job=per_job, source="p:5")
    policy = replace(history.policy, share_nodes=False, displace=False, governance=NONE)
    limited = replace(policy, governance=Governance(teams=(red,), version=1))
    kept = [entry for entry in history.commands if entry[1] != "policy"]
    commands = sorted([*kept, (history.zero + minutes * MINUTE, "policy", limited)], key=lambda entry: entry[0])
    jobs = tuple(
        replace(job, at=history.zero + (job.at - history.zero) // 6, spec=replace(job.spec, team=TEAMS[k % 3 // 2]))
        for k, job in enumerate(history.jobs)
    )
    return replace(history, policy=policy, commands=tuple(commands), jobs=jobs)


def _classed(job: Asked, k: int) -> JobSpec:
    return replace(
        job.spec,
        team=TEAMS[k % 3 // 2],
        job_class=("training", "experiment", "inference")[k % 4 % 3],
        deadline_at=(None, job.at + 4 * HOUR)[k % 2],
        output_bytes=(0, 2 * GB, 40 * GB)[k % 5 % 3],
        data=(),
        data_class="",
    )


AMOUNTS = (0, MICRO // 2, 2 * MICRO + 1, 8 * MICRO, 30 * MICRO, 150 * MICRO)


@st.composite
def histories(draw: st.DrawFn) -> History:
    zero = draw(pick(0, 0, MONTH - 3 * HOUR, MONTH - 50 * MINUTE, 2 * MONTH - 13 * HOUR))
    sites = [draw(rented(name)) for name in ("alpha", "beta")[: draw(pick(1, 1, 2))]]
    if draw(pick(True, True, False)):
        sites.append(draw(owned()))
    jobs = []
    for k in range(draw(st.integers(1, 6))):
        spec = draw(specs())
        run_ms = draw(st.integers(1, 400)) * MINUTE + draw(pick(0, 1, 999))
        jobs.append(Asked(zero + draw(st.integers(0, 180)) * MINUTE, f"j{k}", run_ms, spec))
    jobs.sort(key=lambda job: job.at)
    caps = [
        (
            scope,
            draw(pick(None, *AMOUNTS[1:], 5_000 * MICRO, 5_000 * MICRO)),
            draw(pick(None, None, 5 * MICRO, 20 * MICRO)),
        )
        for scope in SCOPES
        if draw(st.booleans())
    ]
    names = [f"{job.id}/{k}" if job.spec.count > 1 else job.id for job in jobs for k in range(job.spec.count)]
    commands = [draw(command(zero, names, sites)) for _ in range(draw(st.integers(0, 5)))]
    if draw(pick(False, False, True)):  # free spending, and then a squeeze
        caps = []
        commands.append(
            (zero + draw(st.integers(10, 200)) * MINUTE, "cap", (draw(pick(*SCOPES[:3])), AMOUNTS[1], None))
        )
    return History(
        zero, tuple(sites), draw(policies()), tuple(caps), tuple(jobs),
        tuple(sorted(commands, key=lambda entry: entry[0])),
        seed=draw(st.integers(0, 999)),
        slow_permille=draw(pick(0, 500, 1000, 1000)),
        hears_after_ms=draw(pick(0, 1, 40_000, 3 * MINUTE)),
        refuses_permille=draw(pick(0, 0, 250)),
        crashes=frozenset(draw(st.lists(st.integers(1, 60), max_size=2))),
        echoes=draw(pick(False, False, True)),
        meters=draw(st.booleans()),
        dies_at_step=draw(pick(None, None, 3, 9, 20, 40)),
        dies_before_acting=draw(st.booleans()),
    )  # fmt: skip


@st.composite
def command(draw: st.DrawFn, zero: Instant, names: list[str], sites: list[Site]) -> tuple[Instant, str, Any]:
    at = zero + draw(st.integers(1, 400)) * MINUTE + draw(pick(0, 0, 17))
    kind = draw(
        pick(
            "cancel", "suspend", "move", "move", "cap", "cap", "cap", "node", "site", "leave", "policy", "seen", "seen"
        )
    )
    offers = [offer for site in sites for offer in site.offers]
    match kind:
        case "cancel":
            return at, kind, draw(pick(*names))
        case "suspend":
            return at, kind, (draw(pick(*names)), draw(pick(0, MINUTE, HOUR)))
        case "move":
            return at, kind, (draw(pick(*names)), draw(pick(*offers)).id)
        case "cap":
            return at, kind, (draw(pick(*SCOPES)), draw(pick(None, *AMOUNTS)), draw(pick(None, None, 9 * MICRO)))
        case "node":
            return at, kind, (draw(st.integers(0, 1)), draw(pick(MINUTE, HOUR)))
        case "site":
            return at, kind, (draw(pick(*sites)).id, draw(pick(MINUTE, 2 * HOUR)))
        case "leave":
            return at, kind, (draw(pick(*sites)), draw(pick(0, MINUTE, 2 * HOUR, MONTH)))
        case "seen":
            there = draw(st.lists(pick("ada", "bob", "cid"), unique=True))
            return at, kind, tuple((name, draw(st.integers(0, 9))) for name in there)
        case _:
            return at, kind, draw(policies())


# --- a life ----------------------------------------------------------------------------------------------------------


def live(history: History) -> "Life":
    life = Life(history)
    life.run()
    return life


class Life:
    def __init__(self, history: History) -> None:
        self.history = history
        self.jobs: dict[str, tuple[Millis, JobSpec]] = {}
        for job in history.jobs:
            for k in range(job.spec.count):
                self.jobs[f"{job.id}/{k}" if job.spec.count > 1 else job.id] = (job.run_ms, job.spec)
        self.provider = Provider(
            history.sites, self.jobs, history.seed, history.slow_permille, history.hears_after_ms,
            history.refuses_permille,
        )  # fmt: skip
        self.engine = Engine(PolicyRules())
        self.steps: list[Step] = []
        self.owed = Owed()
        self.submitted: list[str] = []
        self.ended: dict[str, str] = {}
        self.charged: dict[str, Money] = {}
        self.booked: dict[str, dict[str, Money]] = {}  #: by hold and period: what was charged
        self.paid_before: dict[str, dict[str, Money]] = {}  #: the same, by those who no longer pay
        self.lowered: dict[str, None] = {}
        self.before: dict[object, Money] | None = {}  #: committed at the last step; None: caps have just changed
        self.month = history.zero // MONTH + 2
        self.periods = [(m * MONTH, (m + 1) * MONTH, f"month {m}") for m in (self.month - 2, self.month - 1)]
        self.coming: list[tuple[Instant, int, str, Any]] = sorted(
            [(job.at, k, "submit", (k, job)) for k, job in enumerate(history.jobs)]
            + [(at, k, kind, about) for k, (at, kind, about) in enumerate(history.commands, 1_000)],
            key=lambda entry: entry[:2],
        )
        self.revision = 1
        self.said: list[e.Fact] = []

    def run(self) -> None:
        for action in self.step(*self.opening()).actions:  # pools are filled at once
            self.provider.do(action, self.history.zero)
        while len(self.steps) < MOST_STEPS:
            deadline = self.engine.next_deadline()
            now = min(
                self.coming[0][0] if self.coming else NEVER,
                self.provider.next_at(),
                NEVER if deadline is None else deadline,
            )
            over = not self.coming and not self.engine.state.jobs and not self.engine.state.nodes
            if over or now > self.history.zero + 2 * MONTH:
                break
            self.meter_is_covered(now)
            facts = self.facts(now)
            step = self.step(*(facts or [e.Woke(now)]))
            if len(self.steps) == self.history.dies_at_step:
                self.die(step)
                return
            for action in step.actions:
                self.provider.do(action, now)
            if len(self.steps) in self.history.crashes:
                self.crash(now)
        self.finish()

    def opening(self) -> list[e.Fact]:
        at, history = self.history.zero, self.history
        facts: list[e.Fact] = [e.PeriodOpened(at, name, start, end) for start, end, name in self.periods]
        facts += [e.CapSet(at, *cap) for cap in history.caps]
        facts += [e.DataSetRegistered(at, DataSet("open", 20 * GB, "lab", "open"))]
        facts += [e.DataSetRegistered(at, DataSet("closed", GB, "lab", ""))]
        facts += [e.SiteJoined(at, site) for site in history.sites]
        facts += [e.PolicySet(at, 1, history.policy)]
        return [*facts, *hours.due(self.engine.state, facts, at)]

    def facts(self, now: Instant) -> list[e.Fact]:
        facts, earlier = self.provider.happen(now), self.said
        self.said = facts.copy()
        if self.history.echoes:  # what it said last time, once more
            facts += [replace(fact, at=now) for fact in earlier]
        if self.history.meters:
            things = self.provider.things.values()
            facts += [e.Metered(now, thing.id, thing.bill(now)) for thing in things if thing.until in (None, now)]
        while self.coming and self.coming[0][0] <= now:
            _, _, kind, about = self.coming.pop(0)
            facts += self.told(kind, about, now)
        if (self.month - 1) * MONTH <= now:
            start = self.month * MONTH
            self.periods.append((start, start + MONTH, f"month {self.month}"))
            facts.append(e.PeriodOpened(now, f"month {self.month}", start, start + MONTH))
            self.month += 1
        return [*facts, *hours.due(self.engine.state, facts, now)]

    def told(self, kind: str, about: Any, now: Instant) -> list[e.Fact]:
        match kind:
            case "submit":
                number, job = about
                many = job.spec.count > 1
                self.submitted += [f"{job.id}/{k}" for k in range(job.spec.count)] if many else [job.id]
                return [e.JobSubmitted(now, number, job.id, job.spec)]
            case "cancel":
                return [e.CancelRequested(now, about)]
            case "suspend":
                job, lasts = about
                self.provider.later(now + lasts, lambda at: [e.ResumeRequested(at, job)])
                return [e.SuspendRequested(now, job)]
            case "move":
                return [e.MoveRequested(now, *about)]
            case "cap":
                return [e.CapSet(now, *about)]
            case "node":
                number, lasts = about
                return self.break_node(number, lasts, now)
            case "site":
                self.provider.later(now + about[1], lambda at: [e.SiteBack(at, about[0])])
                return [e.SiteLost(now, about[0])]
            case "leave":
                site, away = about
                self.provider.later(now + away, lambda at: [e.SiteJoined(at, site)])
                return [e.SiteRemoved(now, site.id)]
            case "up":
                return [e.ClusterAsked(now, *about)]
            case "down":
                return [e.ClusterDismissed(now, about)]
            case "seen":
                return [e.NodesSeen(now, "lab/owned", about)]
            case _:
                self.revision += 1
                return [e.PolicySet(now, self.revision, about)]

    def break_node(self, number: int, lasts: Millis, now: Instant) -> list[e.Fact]:
        standing = [offer for offer in self.provider.offers.values() if offer.id == "lab/owned"]
        if not standing or number >= (standing[0].shapes[0].count or 0):
            return []
        self.provider.later(now + lasts, lambda at: [e.NodeReady(at, f"lab/owned/{number}")])
        return self.provider.lose_standing("lab/owned", number, now)

    def step(self, *facts: e.Fact) -> Step:
        state = self.engine.state
        due = self.engine.next_deadline()
        exposed = state.ledger.exposure()[0]
        lowered = self.note_caps(facts)
        before = Before(state)
        try:
            step = self.engine.handle(*facts)
        except Broken as broken:
            raise Violated(f"refused where it is applied: {broken}") from broken
        self.steps.append(step)
        if lowered and (due is None or due > step.at) and all(isinstance(fact, e.CapSet) for fact in facts):
            rule(state.ledger.exposure()[0] <= exposed, "12 lowering a cap never raises exposure")
        self.owed.hear(step)
        self.check(step)
        if self.history.policy.governance.windows:
            obeys(self, step, before)
        return step

    def note_caps(self, facts: Iterable[e.Fact]) -> bool:
        """True if caps were lowered and none was raised."""
        lowered, ledger = True, self.engine.state.ledger
        for fact in facts:
            if isinstance(fact, e.CapSet):
                self.before = None
                old, new = ledger.caps.get(fact.scope), fact.per_period
                old_rate, new_rate = ledger.rate_caps.get(fact.scope), fact.per_hour
                falls = new is not None and (old is None or new <= old)
                if falls and self.steps:
                    self.lowered[fact.scope] = None
                lowered = lowered and falls and (new_rate is not None or old_rate is None)
                if old_rate is not None and new_rate is not None and new_rate > old_rate:
                    lowered = False
            if isinstance(fact, e.PolicySet) and any(team.per_job for team in fact.policy.governance.teams):
                self.before, lowered = None, False
                if self.steps:
                    self.lowered |= {f"job:{job}": None for job in self.jobs}
        return lowered

    # --- after every step --------------------------------------------------------------------------------------------

    def check(self, step: Step) -> None:
        state, ledger = self.engine.state, self.engine.state.ledger
        try:
            check(state)
        except AssertionError as broken:
            raise Violated(f"the state's own check: {broken}") from broken
        outstanding = list(self.engine.outstanding())
        rule(self.owed.is_what(outstanding), "owed", self.owed.differs(outstanding))
        self.caps_hold()
        for promise in step.outputs:
            if isinstance(promise, (e.LeaseRenewed, e.Settled, e.PayerChanged)):
                hold = promise.node if isinstance(promise, e.PayerChanged) else promise.hold
                amount = sum(part.amount for part in promise.charged)
                self.charged[hold] = self.charged.get(hold, 0) + amount
                for part in promise.charged:
                    booked = self.booked.setdefault(hold, {})
                    booked[part.period] = booked.get(part.period, 0) + part.amount
                rule(all(part.amount >= 0 for part in promise.charged), "11 nothing negative is charged")
            if isinstance(promise, e.PayerChanged):
                self.paid_before[promise.node] = dict(self.booked.get(promise.node, {}))
                self.provider.pays(promise.node, promise.job, step.at)
            rule(not isinstance(promise, e.OverrunFound), "2 no meter shows more than is held", str(promise))
            if isinstance(promise, e.Settled):
                self.closed_is_gone(promise)
                self.splits_are_exact(promise, step.at)
            if isinstance(promise, e.StartPromised):
                self.is_allowed(promise)
        for thing in self.provider.things.values():
            rule(thing.until is not None or thing.id in ledger.leases, "8 every live thing has a hold", thing.id)
        self.worst_is_covered()
        self.jobs_are_conserved(step)
        rule(not self.provider.twice(), "never two attempts at once", str(self.provider.twice()))
        rule(not self.provider.overfull(), "capacity", str(self.provider.overfull()))
        rule(not self.provider.homeless(), "one cluster for what runs there", str(self.provider.homeless()))
        rule(not self.provider.guests(), "only who pays for a node is on it", str(self.provider.guests()))

    def caps_hold(self) -> None:
        """1 and 7: within the cap; after it was lowered below what is committed, at least never more than before."""
        ledger = self.engine.state.ledger
        before, now = self.before, dict[object, Money]()
        for key, account in ledger.accounts.items():
            now[key] = committed = account.held + account.spent
            cap = ledger.caps.get(key[0])
            rule(cap == account.cap, "an account's cap is its scope's", str(key))
            fine = cap is None or committed <= cap or before is None or committed <= before.get(key, 0)
            rule(fine, "1 held + spent <= cap", f"{key}: {committed} of {cap}")
        live: dict[str, Money] = {}
        for lease in ledger.leases.values():
            for scope in lease.hold.scopes:
                live[scope] = live.get(scope, 0) + lease.hold.terms.most_per_hour
        for scope, rate in live.items():
            limit = ledger.rate_caps.get(scope)
            now["rate", scope] = rate
            fine = limit is None or rate <= limit or before is None or rate <= before.get(("rate", scope), 0)
            rule(fine, "7 rates of live things <= rate cap", f"{scope}: {rate} of {limit}")
        self.before = now

    def is_allowed(self, start: e.StartPromised) -> None:
        """By the second reading of the policy in force."""
        state = self.engine.state
        offer, spec = state.offers[start.offer], self.jobs[start.job][1]
        asked = Candidate(spec, state.sites[offer.site], offer, (), state.policy)
        rules = [holds for text, holds in PIECES if text in [rule.deny for rule in state.policy.governance.rules]]
        rule(
            not denied_slowly(asked, rules),
            "13 nothing starts where the policy forbids it",
            f"{start.job} at {offer.id}: {type(start.because).__name__}",
        )

    def closed_is_gone(self, settled: e.Settled) -> None:
        thing = self.provider.things.get(settled.hold)
        rule(thing is None or thing.until is not None, "6 closed implies gone", settled.hold)

    def splits_are_exact(self, settled: e.Settled, now: Instant) -> None:
        thing, charged = self.provider.things.get(settled.hold), self.charged[settled.hold]
        rule(settled.returned >= 0, "2 what is charged was held", f"{settled.hold}: {settled.returned}")
        if thing is not None and thing.until == now:
            bill = thing.bill(now)
            rule(charged >= bill, "2 the final charge covers the bill", f"{settled.hold}: {charged} of {bill}")
            opened = next(lease for lease in self.holds() if lease.id == settled.hold).opened_at
            if opened == thing.since:
                fine = charged in (bill, bill + thing.egress)
                rule(fine, "11 charges sum exactly to the bill", f"{settled.hold}: {charged}, not {bill}")

    def holds(self) -> Iterable[Any]:
        for step in self.steps:
            for event in step.outputs:
                if isinstance(event, e.StartPromised):
                    yield from [ask.hold for ask in event.nodes] + ([event.hold] if event.hold else [])
                elif isinstance(event, (e.WarmPromised, e.ClusterPromised)):
                    yield event.ask.hold

    def worst_is_covered(self) -> None:
        """2, if the control plane died now: to the deadlines that the provider knows, and all that takes."""
        ledger = self.engine.state.ledger
        by_account: dict[tuple[str, str], Money] = {}
        for thing in self.provider.things.values():
            if thing.until is not None:
                continue
            lease = ledger.leases[thing.id]
            worst = thing.bill(thing.worst_at()) + thing.egress
            covered = lease.held + lease.charged
            rule(worst <= covered, "2 the meter never passes what is held", f"{thing.id}: {worst} of {covered}")
            paid = self.paid_before.get(thing.id, {})
            for period, whole in thing.by_period(thing.worst_at(), self.periods).items():
                amount = max(0, whole - paid.get(period, 0))
                for scope in lease.hold.scopes:
                    key = (scope, "" if scope.startswith("job:") else period)
                    by_account[key] = by_account.get(key, 0) + amount
        for key, amount in by_account.items():
            account = ledger.accounts.get(key)
            booked = account.held + account.spent if account else 0
            rule(amount <= booked, "2 in every scope and month", f"{key}: {amount} of {booked}")

    def meter_is_covered(self, now: Instant) -> None:
        """2, as it is."""
        ledger = self.engine.state.ledger
        for thing in self.provider.things.values():
            lease = ledger.leases.get(thing.id)
            covered = lease.held + lease.charged if lease else self.charged.get(thing.id, 0)
            rule(thing.bill(now) <= covered, "2 the meter never passes what is held", f"{thing.id} at {now}")

    def jobs_are_conserved(self, step: Step) -> None:
        state = self.engine.state
        for job in self.submitted:
            if job not in state.jobs and job not in self.ended:
                self.ended[job] = "ended"
            elif job in state.jobs:
                rule(job not in self.ended, "a job that has ended stays ended", job)
        strangers = [job for job in state.jobs if job not in self.submitted]
        rule(not strangers, "jobs come from people only", str(strangers))
        rule(sum(state.ended.values()) == len(self.ended), "every job ends exactly once", f"step {step.number}")

    # --- endings -----------------------------------------------------------------------------------------------------

    def crash(self, now: Instant) -> None:
        """4: the fold of the record is the state; 5: what is outstanding is said again, and nothing happens twice."""
        again = replay(((step.at, step.inputs, step.outputs) for step in self.steps), Engine(PolicyRules()))
        mine, theirs = (list(map(repr, engine.state.canonical())) for engine in (self.engine, again))
        rule(mine == theirs, "4 the state is the fold of the record")
        self.engine = again
        for action in list(again.outstanding()):
            self.provider.do(action, now)

    def die(self, step: Step) -> None:
        """The control plane is dead: the provider runs on by itself, and no meter passes what was held."""
        if not self.history.dies_before_acting:
            for action in step.actions:
                self.provider.do(action, step.at)
        for _ in range(1_000):
            now = self.provider.next_at()
            if now == NEVER:
                break
            self.meter_is_covered(now)
            self.provider.happen(now)
            self.meter_is_covered(now)
        live = [thing.id for thing in self.provider.things.values() if thing.until is None]
        rule(not live, "2 everything rented ends by itself", str(live))

    def finish(self) -> None:
        state = self.engine.state
        if not state.jobs and not state.nodes:
            rule(not state.ledger.leases, "10 all jobs ended implies nothing held", str(list(state.ledger.leases)))
        self.crash(state.at)
        for thing in self.provider.things.values():
            if thing.until is not None:
                rule(self.charged.get(thing.id, 0) >= thing.bill(thing.until), "3 the final bill is paid", thing.id)
        for (scope, period), account in state.ledger.accounts.items():
            fine = account.cap is None or account.spent <= account.cap or scope in self.lowered
            rule(fine, "3 the final bill <= cap", f"{scope} {period}")


# --- a policy file, read slowly --------------------------------------------------------------------------------------


class Before:
    """What a step finds."""

    def __init__(self, state: Any) -> None:
        self.gpus = at_once(state)
        self.free = free_gpus(state, "lab")


def at_once(state: Any) -> dict[str, int]:
    gpus: dict[str, int] = {}
    for job in state.jobs.values():
        if job.attempt is not None:
            gpus[job.spec.team] = gpus.get(job.spec.team, 0) + job.attempt.width
    return gpus


def free_gpus(state: Any, site: str) -> int:
    return sum(pool.free_gpus for name, pool in state.pools.items() if name.startswith(site + "/"))


def is_open(state: Any, window: str, at: Instant) -> bool:
    """By the calendar itself, and not by what the engine was told."""
    (named,) = [candidate for candidate in state.policy.governance.windows if candidate.id == window]
    starts, ends = next(hours.occurrences(named, at))
    return starts <= at < ends


def obeys(life: Life, step: Step, before: Before) -> None:
    """Everything that a policy file says of the moment, asked of the record and of the state after each step."""
    state, governance = life.engine.state, life.history.policy.governance
    now = step.at
    starts = [promise for promise in step.outputs if isinstance(promise, e.StartPromised)]
    for team in governance.teams:
        used, limit = at_once(state).get(team.team, 0), team.gpus_at_once
        fine = limit is None or used <= max(limit, before.gpus.get(team.team, 0))
        rule(fine, "a team has only so many GPUs at once", f"{team.team}: {used} of {limit}")
    for promise in starts:
        job = promise.job
        _, spec = life.jobs[job]
        if promise.rented:
            quiet = [window.id for window in governance.quiet_hours if is_open(state, window.id, now)]
            rule(not quiet, "nothing new is rented in quiet hours", str(promise))
            bursts_by_a_trigger(life, promise, spec)
            brings_little_out(life, spec, now)
    kept_free_for_others(life, step, before, starts)
    for attempt in state.attempts.values():
        longest = next(
            (job_class.longest_ms for job_class in governance.classes if job_class.name == attempt.job.spec.job_class),
            None,
        )
        if longest is not None and attempt.phase == "running" and attempt.started_at is not None:
            ran = attempt.job.ran_ms + now - attempt.started_at
            rule(ran == 0 or ran < longest - attempt.job.spec.grace_ms, "a class runs only so long", attempt.id)
    for node in state.nodes.values():
        idle = node.phase == "idle" and not node.on
        rested = now - (node.idle_at or 0) >= (governance.idle_nodes_end_after_ms or 0)
        rule(not (idle and rested), "an idle node is kept only so long", node.id)


def bursts_by_a_trigger(life: Life, promise: e.StartPromised, spec: JobSpec) -> None:
    governance, because = life.history.policy.governance, promise.because
    weighed = isinstance(because, (PatienceOver, NotWorthWaiting, JoinsNode, QueueFull, LostNode, BurstAllowed))
    free = any(job_class.name == spec.job_class and job_class.where == "rented" for job_class in governance.classes)
    shape = life.engine.state.jobs[promise.job].shape
    if not governance.burst_when or not weighed or free or not (shape.base or shape).standing:
        return
    rule(isinstance(because, BurstAllowed) and because.trigger is not None, "a burst needs a trigger", str(promise))
    seen: Any = because.trigger  # type: ignore[union-attr]  # just asked
    late = seen.trigger == "deadline_at_risk" and seen.seen <= promise.at
    rule(late or seen.seen >= seen.threshold, "the trigger held", str(seen))
    rule(seen.held_ms >= seen.for_ms, "the trigger held for so long", str(seen))


def brings_little_out(life: Life, spec: JobSpec, now: Instant) -> None:
    """Outputs of all rented attempts of the month that ran, or may still."""
    limit = next(
        (team.egress_bytes_per_month for team in life.history.policy.governance.teams if team.team == spec.team), None
    )
    if limit is None:
        return
    start, end = next((start, end) for start, end, _ in life.periods if start <= now < end)
    ran = {event.attempt for step in life.steps for event in step.inputs if isinstance(event, e.AttemptStarted)}
    total = 0
    for step in life.steps:
        for event in step.outputs:
            if isinstance(event, e.StartPromised) and event.rented and start <= event.at < end:
                theirs = life.jobs[event.job][1]
                counts = event.attempt in ran or event.attempt in life.engine.state.attempts
                total += theirs.output_bytes if counts and theirs.team == spec.team else 0
    rule(
        total <= limit or not spec.output_bytes, "only so much leaves rented sites", f"{spec.team}: {total} of {limit}"
    )


def kept_free_for_others(life: Life, step: Step, before: Before, starts: list[e.StartPromised]) -> None:
    """Unless the kept ones were not free before: what others leave may be promised on."""
    state = life.engine.state
    for headroom in life.history.policy.governance.headroom:
        owned = [start for start in starts if not start.rented]
        others = [
            start
            for start in owned
            if not headroom.job_class or life.jobs[start.job][1].job_class != headroom.job_class
        ]
        changed = any(isinstance(fact, (e.NodesSeen, e.NodeLost, e.SiteJoined, e.SiteRemoved)) for fact in step.inputs)
        reserved = any(isinstance(promise, e.ReservePromised) for promise in step.outputs)
        if others and others == owned and not changed and not reserved and is_open(state, headroom.id, step.at):
            free = free_gpus(state, headroom.site)
            rule(
                free >= min(headroom.gpus, before.free), "headroom is kept free", f"{free} of {headroom.gpus}: {others}"
            )


def rule(holds: bool, name: str, about: str = "") -> None:
    if not holds:
        raise Violated(f"{name}: {about}" if about else name)
