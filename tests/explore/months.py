"""Small random months with every feature on: what `python -m tests.explore` drives the engine through.

A month is a script of facts (what configuration and people say) and what the world keeps to itself: true run times,
when nodes are lost, who refuses. `month(seed)` makes one; `dumped` and `loaded` keep it as JSON, its facts as the
journal writes them, so that a kept case means the same when the generator has long changed.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.core.model import events as e
from penstock.core.model import governance as g
from penstock.core.model.types import (
    DataRule,
    DataSet,
    EgressTier,
    Extras,
    GpuChoice,
    JobSpec,
    NodeShape,
    Offer,
    Policy,
    Site,
    TransientCluster,
    Waiting,
    WarmPool,
)
from penstock.core.units import DAY, GB, HOUR, MICRO, MINUTE, SECOND, Instant, Millis
from penstock.journal import codec
from penstock.policy import hours
from penstock.policy.rules import with_shapes
from penstock.sim.engine.simulator import MONTH_MS, open_month, proofs

CLASSES = ("training", "experiment", "critical", "home")
TEAMS = ("a", "b", "c")
MODELS = ("A100", "H100")


@dataclass(frozen=True)
class Month:
    seed: int
    script: tuple[e.Fact, ...]  # by time; the first instant's open the month
    runs: dict[str, Millis]  # by submission: the true run time
    faults: tuple[tuple[Instant, str, Millis], ...] = ()  # at, a standing node or a site, for how long
    zones: dict[str, list[Instant]] = field(default_factory=dict)  # by spot offer: when it changes, from none
    refuses_permille: int = 0  # of starts
    fails_permille: int = 0  # of jobs
    slow_stops: bool = False  # or a stop is answered in the same instant
    restarts_permille: int = 0  # of steps: the control plane dies after it
    wakes_permille: int = 0  # of pauses: somebody wakes the engine, though nothing is due
    strays_permille: int = 0  # of starts on nodes that have names: the cluster puts them elsewhere
    cramped_permille: int = 0  # of these nodes, for each job: they cannot take it, and nobody was told

    @property
    def zero(self) -> Instant:
        return self.script[0].at

    @property
    def jobs(self) -> list[e.JobSubmitted]:
        return [fact for fact in self.script if isinstance(fact, e.JobSubmitted)]


def month(seed: int) -> Month:
    rng = Random(seed)
    zero = rng.choice([0, 0, 3 * HOUR, MONTH_MS - 5 * HOUR, MONTH_MS - 50 * MINUTE, 7 * MONTH_MS + 11 * DAY])
    sites = list(_sites(rng))
    data = _data(rng, sites)
    policy = _policy(rng, sites)
    first: list[e.Fact] = [open_month(zero, zero // MONTH_MS + k) for k in range(2)]
    first += [fact for fact in _caps(rng, zero) if rng.random() < 0.5]
    first += [e.DataSetRegistered(zero, item) for item in data]
    for site in sites:
        first += [e.SiteJoined(zero, site), *proofs(zero, site)]
    first.append(e.PolicySet(zero, 1, policy))
    jobs, runs = _jobs(rng, zero, data)
    people = list(_people(rng, zero, jobs, sites))
    script = [*first, *sorted([*jobs, *people], key=lambda fact: fact.at)]
    spots = [offer.id for site in sites for offer in site.offers if offer.term == "spot"]
    return Month(
        seed,
        tuple(script),
        runs,
        tuple(_faults(rng, zero, sites)),
        {name: _zone(rng, zero) for name in spots if rng.random() < 0.25},
        refuses_permille=rng.choice([0, 0, 0, 30, 300]),
        fails_permille=rng.choice([0, 0, 50]),
        slow_stops=rng.random() < 0.6,
        restarts_permille=rng.choice([0, 2, 2]),
        wakes_permille=rng.choice([0, 100, 100]),
    )


# --- sites -----------------------------------------------------------------------------------------------------------


def _sites(rng: Random) -> Iterable[Site]:
    if rng.random() < 0.92:
        yield _home(rng, "hq")
    if rng.random() < 0.15:
        yield _home(rng, "lab")
    for name in ("aws", "gcp", "ovh")[: rng.choice([0, 1, 1, 2, 2, 3])]:
        yield _cloud(rng, name)


def _home(rng: Random, name: str) -> Site:
    gpus = rng.choice([1, 2, 4, 8, 8])
    shape = NodeShape(gpus, rng.choice([1, 1, 2, 2, 3, 5]), marginal_per_hour=rng.choice([0, 0, MICRO // 3]))
    offers = [Offer(f"{name}/owned", name, "owned", (shape,), rng.choice(MODELS), start_ms=rng.choice([0, 0, MINUTE]))]
    if rng.random() < 0.2:
        offers.append(Offer(f"{name}/more", name, "reserved", (NodeShape(rng.choice([2, 8]), 1),), rng.choice(MODELS)))
    egress = (EgressTier(None, 50_000),) if rng.random() < 0.3 else ()
    return Site(name, tuple(offers), location="DE", law="EU", egress=egress, front_door=name == "hq")


def _cloud(rng: Random, name: str) -> Site:
    terms = rng.choice([("spot",), ("spot",), ("on_demand",), ("spot", "on_demand")])
    cluster = rng.random() < 0.1
    offers = [_rented(rng, name, term, by_attempt=cluster or rng.random() < 0.15) for term in terms]
    egress = rng.choice([(), (EgressTier(None, 90_000),), (EgressTier(10, 0), EgressTier(None, 90_000))])
    place = rng.choice(["DE", "US"])
    site = Site(name, tuple(offers), location=place, law=place, egress=egress, cloud=name, region=f"{name}-1")
    return replace(site, cluster=_cluster(rng, name)) if cluster else site


def _rented(rng: Random, site: str, term: Any, by_attempt: bool) -> Offer:
    sizes = rng.choice([(1,), (1,), (2,), (8,), (1, 4, 8), (2, 8)])
    price = rng.choice([400_000, 1_550_000, 2_500_000, 6_000_000])
    most = rng.choice([1, 3])
    counts = rng.choice([None, None, None, 4])
    shapes = tuple(
        NodeShape(
            size, counts, price * size + size, most_per_hour=most * (price * size + size) if term == "spot" else None
        )
        for size in sizes
    )
    warm = None
    if not by_attempt and rng.random() < 0.2:
        scopes = rng.choice([("org",), ("org", "team:a")])
        window = hours.window(rng.choice([0, 480]), rng.choice([600, 1200])) if rng.random() < 0.4 else None
        warm = WarmPool(rng.choice([1, 2, 4]), rng.choice(sizes), scopes, window, rng.random() < 0.3)
    return Offer(
        f"{site}/{term}", site, term, shapes, rng.choice(MODELS),
        sold_by="attempt" if by_attempt else "node",
        start_ms=rng.choice([0, 30 * SECOND, 4 * MINUTE, 25 * MINUTE]),
        loss_ppm_per_hour=rng.choice([0, 50_000, 250_000, 1_000_000]) if term == "spot" else rng.choice([0, 0, 20_000]),
        limit_gpus=rng.choice([None, None, None, 16]),
        extras=Extras(disk_per_hour=rng.choice([0, 0, 7_777]), launch_fee=rng.choice([0, 0, 123_457])),
        billing_step_ms=1 if by_attempt else rng.choice([1, SECOND, HOUR]),
        billing_minimum_ms=0 if by_attempt else rng.choice([0, 0, MINUTE]),
        kill_ms=rng.choice([0, 30 * SECOND, 3 * MINUTE]),
        guarantee=rng.choice(["timer", "timer", "max_run_time", "watchman", "none"]),
        renewable=rng.random() > 0.08,
        warm=warm,
    )  # fmt: skip


def _cluster(rng: Random, site: str) -> TransientCluster:
    offer = Offer(
        f"{site}/cluster", site, "on_demand", (NodeShape(0, 1, 90_001),),
        start_ms=rng.choice([0, 4 * MINUTE, 15 * MINUTE]),
        loss_ppm_per_hour=rng.choice([0, 0, 100_000]),
        kill_ms=rng.choice([0, MINUTE]),
        guarantee="timer",
    )  # fmt: skip
    scopes = rng.choice([("org",), ("org", "team:a")])
    return TransientCluster(offer, scopes, rng.choice([0, 10 * MINUTE]), rng.choice([12 * HOUR, 2 * HOUR]))


def _data(rng: Random, sites: list[Site]) -> list[DataSet]:
    if rng.random() < 0.6 or not sites:
        return []
    at = rng.choice(sites).id
    return [DataSet("open", 20 * GB, at, "open"), DataSet("closed", GB, at, "")]


# --- policies --------------------------------------------------------------------------------------------------------


def _policy(rng: Random, sites: list[Site]) -> Policy:
    kind = rng.choice(["worth", "worth", "worth", "nowait", "constant", "compute"])
    waiting = Waiting(
        kind,  # type: ignore[arg-type]  # one of its literals
        {"constant": rng.choice([20 * MINUTE, 5 * HOUR]), "compute": 1}.get(kind, 0),
        {"compute": 10}.get(kind, 1),
        rng.choice([None, None, None, 3]) if kind != "worth" else None,
        value_per_hour=rng.choice([MICRO, 20 * MICRO, 1_000 * MICRO]) if kind == "worth" else 0,
        most_ms=rng.choice([HOUR, 3 * HOUR, 23 * HOUR]),
        target_delay_ms=rng.choice([0, 0, 0, 30 * MINUTE]),
        target_spend=rng.choice([0, 0, 0, 100 * MICRO]),
        look_every_ms=rng.choice([HOUR, 6 * HOUR]),
    )
    return Policy(
        "random",
        ordering=rng.choice(["fair", "fair", "fifo", "priority"]),
        packing=rng.choice(["best_fit", "best_fit", "first_fit", "ends_alike"]),
        backfill=rng.random() < 0.9,
        waiting=waiting,
        estimator=rng.choice(["life_table", "life_table", "recent", "declared"]),
        home=rng.random() < 0.75,
        defragment=rng.random() < 0.6,
        share_nodes=rng.random() < 0.75,
        burst=rng.random() < 0.93,
        pace=rng.random() < 0.15,
        reserve=rng.random() < 0.85,
        preempt=rng.random() < 0.5,
        displace=rng.random() < 0.5,
        data_rules=(DataRule("open", sites=("*",)),),
        exhausted=rng.choice(["checkpoint_stop", "move_home"]),
        require_hard_caps=rng.random() < 0.1,
        least_lease_ms=rng.choice([MINUTE, 10 * MINUTE]),
        settle_ms=rng.choice([0, 5 * MINUTE, 30 * MINUTE]),
        least_left_ms=rng.choice([0, 2 * MINUTE, 30 * MINUTE]),
        governance=_governance(rng, sites) if rng.random() < 0.75 else g.NONE,
    )


def _governance(rng: Random, sites: list[Site]) -> g.Governance:
    night, day = hours.window(22 * 60, 6 * 60, "Europe/Berlin"), hours.window(*rng.choice([(0, 1440), (480, 1080)]))
    homes = [site.id for site in sites if site.offers[0].term == "owned"]
    headroom = homes and rng.random() < 0.25
    quiet = rng.random() < 0.25
    asks = rng.random() < 0.35
    governance = g.Governance(
        classes=_classes(rng) if rng.random() < 0.75 else (),
        teams=tuple(_team(rng, name) for name in TEAMS if rng.random() < 0.6),
        burst_when=tuple(_triggers(rng)) if rng.random() < 0.25 else (),
        never_above=g.PriceLimit(rng.choice([None, 2 * MICRO]), rng.choice([None, 40 * MICRO]))
        if rng.random() < 0.2
        else None,
        allow=g.Allow(clouds=("aws", "gcp")) if rng.random() < 0.1 else None,
        quiet_hours=(g.QuietHours(night.id),) if quiet else (),
        headroom=(g.Headroom(day.id, homes[0], rng.choice([1, 4]), rng.choice(["", "critical"])),) if headroom else (),
        idle_nodes_end_after_ms=rng.choice([None, None, 7 * MINUTE, HOUR]),
        approvals=(g.ApprovalRule("dear", rng.choice(ASKED), "approver", rng.choice([HOUR, 4 * HOUR])),)
        if asks
        else (),
        rules=(g.DenyRule("small", 'job.class == "experiment" && offer.gpu == "H100"'),) if rng.random() < 0.1 else (),
        windows=tuple(window for window, used in ((night, quiet), (day, headroom)) if used),
    )
    return with_shapes(governance)


ASKED = ("quote.cost > 20", "job.gpus > 8", "true")


def _classes(rng: Random) -> tuple[g.ClassRule, ...]:
    def rule(name: str, **more: Any) -> g.ClassRule:
        cost = rng.choice([None, 3 * MICRO, 25 * MICRO, 1_000 * MICRO])
        return g.ClassRule(name, cost_of_delay=cost, longest_ms=rng.choice([None, None, None, 2 * HOUR]), **more)

    spot = rng.choice(["allowed", "allowed", "forbidden", "required"])
    return (
        rule("training", spot=spot),
        rule("experiment", where=rng.choice(["owned_first", "rented"])),
        rule("critical", preempts=rng.choice([(), ("training",), ("training", "experiment")])),
        rule("home", where="owned", preempts=rng.choice([(), (), ("experiment",)])),
    )


def _team(rng: Random, name: str) -> g.TeamRule:
    return g.TeamRule(
        name,
        share_permille=rng.choice([None, 0, 250, 500]),
        gpus_at_once=rng.choice([None, None, 8, 24]),
        per_job=rng.choice([None, None, 60 * MICRO, 600 * MICRO]),
        egress_bytes_per_month=rng.choice([None, None, 41 * GB]),
    )


def _triggers(rng: Random) -> list[g.BurstTrigger]:
    known = [
        g.BurstTrigger("queued_jobs", rng.choice([2, 5])),
        g.BurstTrigger("expected_wait", rng.choice([10, 90]) * MINUTE),
        g.BurstTrigger("utilisation", rng.choice([500, 1000]), rng.choice([0, 15]) * MINUTE),
        g.BurstTrigger("deadline_at_risk", 1),
    ]
    return rng.sample(known, rng.choice([1, 1, 2]))


# --- jobs ------------------------------------------------------------------------------------------------------------


def _jobs(rng: Random, zero: Instant, data: list[DataSet]) -> tuple[list[e.JobSubmitted], dict[str, Millis]]:
    count = rng.choice([6, 12, 20, 30, 45])
    mean = rng.choice([MINUTE, 10 * MINUTE, 40 * MINUTE])
    longest = rng.choice([HOUR, 6 * HOUR, 30 * HOUR])
    widths = rng.choice([(1, 1, 2, 4, 8), (1, 2, 3, 5, 8, 12), (4, 8, 16, 24), (1, 1, 1, 2)])
    at, jobs, runs = zero, [], {}
    for k in range(count):
        at += 0 if rng.random() < 0.15 else int(rng.expovariate(1 / mean))
        run_ms = 1 + int(min(3 * longest, rng.lognormvariate(0, 1.2) * longest / 3))
        jobs.append(e.JobSubmitted(at, k, f"s{k}", _spec(rng, at, run_ms, widths, data)))
        runs[f"s{k}"] = run_ms
    return jobs, runs


def _spec(rng: Random, at: Instant, run_ms: Millis, widths: tuple[int, ...], data: list[DataSet]) -> JobSpec:
    gpus = rng.choice(widths)
    return JobSpec(
        gpus,
        team=rng.choice(TEAMS),
        expected_run_ms=rng.choice([None, None, run_ms, run_ms // 3 + 1, 4 * run_ms]),
        checkpoint_every_ms=rng.choice([None, 2 * MINUTE, 15 * MINUTE, 15 * MINUTE, HOUR]),
        name=f"n{rng.randrange(6)}",
        project=rng.choice(["", "", "", "x"]),
        job_class=rng.choice(CLASSES),
        priority=rng.choice([0, 0, 0, 5, 20]),
        gpu_models=rng.choice([(), (), (), (GpuChoice("A100"),), (GpuChoice("H100", 1800), GpuChoice("A100"))]),
        models_ordered=rng.random() < 0.2,
        scaling=((gpus * 2, 1800), (gpus * 4, 3000)) if rng.random() < 0.15 else (),
        interruptible=rng.random() < 0.88,
        deadline_at=at + rng.choice([1, 2, 5]) * run_ms + HOUR if rng.random() < 0.25 else None,
        penalty_per_hour=rng.choice([0, 50 * MICRO]),
        data=(rng.choice(data).id,) if data and rng.random() < 0.3 else (),
        output_bytes=rng.choice([0, 0, 3 * GB, 40 * GB]),
        cap=rng.choice([None, None, None, None, 3 * MICRO, 60 * MICRO]),
        grace_ms=rng.choice([0, MINUTE, 2 * MINUTE]),
        restart_ms=rng.choice([0, 0, 5 * MINUTE]),
        lease_max_ms=rng.choice([20 * MINUTE, 2 * HOUR, 12 * HOUR]),
        count=rng.choice([1] * 15 + [4]),
    )


# --- what people and the world do ------------------------------------------------------------------------------------


def _caps(rng: Random, at: Instant) -> list[e.CapSet]:
    amounts = (5 * MICRO, 60 * MICRO, 300 * MICRO, 3_000 * MICRO)
    scopes = ("org", "team:a", "team:b", "project:x")
    return [e.CapSet(at, scope, rng.choice(amounts), rng.choice([None, None, 40 * MICRO])) for scope in scopes]


def _people(rng: Random, zero: Instant, jobs: list[e.JobSubmitted], sites: list[Site]) -> Iterable[e.Fact]:
    last = jobs[-1].at - zero + 12 * HOUR
    kinds: list[Callable[[Instant], list[e.Fact]]] = [
        lambda at: [e.CancelRequested(at, _one(rng, jobs))],
        lambda at: _pause_of(rng, at, _one(rng, jobs)),
        lambda at: [e.Paused(at), e.Resumed(at + rng.choice([0, MINUTE, 3 * HOUR]))],
        lambda at: [rng.choice(_caps(rng, at))],
        lambda at: [e.CapSet(at, rng.choice(["org", "team:a"]), None)],
        lambda at: [e.PolicySet(at, rng.randrange(2, 1_000), _policy(rng, sites))],
    ]
    offers = [offer for site in sites for offer in site.offers]
    if sites:
        kinds += [
            lambda at: [e.MoveRequested(at, _one(rng, jobs), rng.choice(offers).id)],
            lambda at: _site_of(rng, at, rng.choice(sites)),
            lambda at: [e.GuaranteeChanged(at, rng.choice(offers).id, rng.choice(["none", "watchman"]))],
        ]
    if any(site.id == "hq" for site in sites):
        kinds.append(lambda at: _others(rng, at, sites[0]))
    transient = [site.id for site in sites if site.cluster is not None]
    if transient:
        kinds.append(lambda at: _cluster_of(at, rng.choice(transient)))
    for _ in range(rng.choice([0, 0, 1, 2, 4, 8])):
        yield from rng.choice(kinds)(zero + 1 + rng.randrange(last))


def _cluster_of(at: Instant, site: str) -> list[e.Fact]:
    return [e.ClusterAsked(at, site, at + HOUR), e.ClusterDismissed(at + 40 * MINUTE, site)]


def _one(rng: Random, jobs: list[e.JobSubmitted]) -> str:
    chosen = rng.choice(jobs)
    return chosen.job if chosen.spec.count == 1 else f"{chosen.job}/{rng.randrange(chosen.spec.count)}"


def _pause_of(rng: Random, at: Instant, job: str) -> list[e.Fact]:
    return [e.SuspendRequested(at, job), e.ResumeRequested(at + rng.choice([0, 1, MINUTE, 3 * HOUR]), job)]


def _site_of(rng: Random, at: Instant, site: Site) -> list[e.Fact]:
    """The sites file changes: prices, an offer that is closed, a site that goes and comes back."""
    if rng.random() < 0.3:
        return [e.SiteRemoved(at, site.id), e.SiteJoined(at + rng.choice([MINUTE, 5 * HOUR]), site)]
    if rng.random() < 0.5:
        closed = tuple(replace(offer, closed="sites.yaml:3") for offer in site.offers)
        return [e.SiteJoined(at, replace(site, offers=closed)), e.SiteJoined(at + 6 * HOUR, site)]
    dearer = tuple(
        replace(
            offer,
            shapes=tuple(
                replace(s, list_per_hour=2 * s.list_per_hour, most_per_hour=s.most_per_hour and 2 * s.most_per_hour)
                for s in offer.shapes
            ),
        )
        for offer in site.offers
    )
    return [e.SiteJoined(at, replace(site, offers=dearer))]


def _others(rng: Random, at: Instant, site: Site) -> list[e.Fact]:
    """Pods that are not ours on owned nodes, and later none."""
    (shape,) = site.offers[0].shapes
    names = [f"node-{k}" for k in range(shape.count or 1)]
    some = tuple((name, rng.randrange(shape.gpus + 1)) for name in names)
    return [
        e.NodesSeen(at, site.offers[0].id, some),
        e.NodesSeen(at + 3 * HOUR, site.offers[0].id, tuple((n, 0) for n in names)),
    ]


def _faults(rng: Random, zero: Instant, sites: list[Site]) -> Iterable[tuple[Instant, str, Millis]]:
    for site in sites:
        if rng.random() < 0.15:
            yield zero + rng.randrange(3 * DAY), site.id, rng.choice([MINUTE, 5 * HOUR])
        if site.offers[0].term == "owned" and rng.random() < 0.2:
            yield zero + rng.randrange(3 * DAY), f"{site.offers[0].id}/0", rng.choice([MINUTE, 5 * HOUR])


def _zone(rng: Random, zero: Instant) -> list[Instant]:
    at, changes = zero, []
    for _ in range(60):
        at += 1 + int(rng.expovariate(1 / (5 * HOUR)))
        changes.append(at)
    return changes


# --- a case that stays -----------------------------------------------------------------------------------------------


def dumped(case: Month, why: str) -> str:
    facts = [json.loads(codec.encode([fact]))[0] for fact in case.script]
    head = {name: getattr(case, name) for name in (*KEPT, *UNEQUAL)}
    return json.dumps({"why": why, **head, "script": facts}, indent=1) + "\n"


def loaded(text: str) -> Month:
    told = json.loads(text)
    script = codec.decode(json.dumps(told["script"]).encode())
    faults = tuple((at, what, lasts_ms) for at, what, lasts_ms in told["faults"])
    unequal = {name: told.get(name, 0) for name in UNEQUAL}
    return Month(**{**{name: told[name] for name in KEPT}, **unequal, "script": script, "faults": faults})


KEPT = (
    "seed",
    "runs",
    "faults",
    "zones",
    "refuses_permille",
    "fails_permille",
    "slow_stops",
    "restarts_permille",
    "wakes_permille",
)
#: Of such a month only if it has unequal nodes.
UNEQUAL = ("strays_permille", "cramped_permille")
