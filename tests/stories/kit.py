"""Stories: tell Penstock what happened, in words, and compare its whole answer.

    penstock = given(site("lab", nodes=1), offer("cloud", price="20"))
    assert penstock.hears(submitted("a", gpus=8), at="09:00") == [start("a.1", on="lab")]

`hears` takes facts without their instant and answers with every action, in order. After each one the kit checks what
must always hold: the state's own invariants, that folding the record gives the same state, that the record survives
the journal's codec, and that what was said and not yet answered is what `outstanding` would say again.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.core.engine import Engine, Step, replay
from penstock.core.fold.invariants import check
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.model.reasons import Obstacle, Reason, Shortage
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
    Waiting,
)
from penstock.core.units import DAY, GB, HOUR, MINUTE, SECOND, Instant, Millis, Money
from penstock.core.units import money as usd
from penstock.explain.story import tell
from penstock.journal import codec
from penstock.policy.rules import PolicyRules
from tests.core.owed import Owed

Told: TypeAlias = Callable[[Instant], e.Fact]  #: a fact that wants to know when it happened
MONTH: Millis = 30 * DAY


class like:  # noqa: N801 - reads as a word in a story
    """Any action of this kind whose named fields are these."""

    def __init__(self, kind: type, **named: object) -> None:
        self.kind, self.named = kind, named

    def __eq__(self, other: object) -> bool:
        return type(other) is self.kind and all(getattr(other, name) == value for name, value in self.named.items())

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(f'{name}={value!r}' for name, value in self.named.items())})"


class Penstock:
    """An engine, what it was told, and what it answered."""

    def __init__(self) -> None:
        self.engine = Engine(PolicyRules())
        self.steps: list[Step] = []
        self.owed = Owed()
        self.submissions = 0

    def hears(self, *undated: Told, at: str) -> list[a.Action]:
        facts = [self._numbered(fact(clock(at))) for fact in undated]
        return self.takes(*facts)

    def takes(self, *facts: e.Fact) -> list[a.Action]:
        step = self.engine.handle(*facts)
        self.steps.append(step)
        self._must_hold(step)
        return list(step.actions)

    def _numbered(self, fact: e.Fact) -> e.Fact:
        if isinstance(fact, e.JobSubmitted) and fact.number < 0:
            fact = e.JobSubmitted(fact.at, self.submissions, fact.job, fact.spec)
            self.submissions += 1
        return fact

    def _must_hold(self, step: Step) -> None:
        check(self.engine.state)
        self.owed.hear(step)
        assert self.owed.is_what(self.engine.outstanding()), "what is owed is not what would be said again"
        assert codec.decode(codec.encode(step.inputs)) == step.inputs
        assert codec.decode(codec.encode(step.outputs)) == step.outputs
        again = replay((s.at, s.inputs, s.outputs) for s in self.steps)
        assert list(map(repr, again.state.canonical())) == list(map(repr, self.engine.state.canonical()))

    # --- what it said --------------------------------------------------------------------------------------------

    @property
    def promises(self) -> list[e.Promise]:
        """All of the last answer's promises but the verdicts on shapes."""
        return [event for event in self.steps[-1].outputs if not isinstance(event, e.ShapeJudged)]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.promises]

    def promise(self, kind: type) -> Any:
        """The one promise of this kind in the last answer."""
        (promise,) = [event for event in self.promises if type(event) is kind]
        return promise

    def why(self, job: str) -> Reason:
        """The last reason on record for the job or one of its attempts."""
        reasons: list[Reason] = []
        for step in self.steps:
            for event in step.outputs:
                if getattr(event, "job", "") == job or getattr(event, "attempt", "").startswith(job + "."):
                    reasons += [event.because] if hasattr(event, "because") else []
        return reasons[-1]

    def story(self, job: str) -> list[str]:
        return [line.text for line in tell(self.steps, job)]

    # --- what it knows ---------------------------------------------------------------------------------------------

    def phase(self, job: str) -> str:
        known = self.engine.state.jobs.get(job)
        return known.phase if known else "ended"

    def wakes(self) -> Instant | None:
        return self.engine.next_deadline()

    def account(self, scope: str, period: str = "month 1") -> tuple[Money, Money]:
        """Held and spent."""
        known = self.engine.state.ledger.accounts.get((scope, period))
        return (known.held, known.spent) if known else (0, 0)

    def held(self) -> Money:
        return self.engine.state.ledger.exposure()[0]

    def until(self, thing: str) -> Instant:
        return self.engine.state.ledger.leases[thing].deadline_at


def given(*undated: Told) -> Penstock:
    """Two open months, the policy (of no patience unless told) and what else there is, all before day 1 begins."""
    penstock = Penstock()
    facts = [fact(0) for fact in undated]
    if not any(isinstance(fact, e.PolicySet) for fact in facts):
        facts.append(policy()(0))
    if not any(isinstance(fact, e.PeriodOpened) for fact in facts):
        facts += [month(1)(0), month(2)(0)]
    assert penstock.takes(*facts) == []
    return penstock


def clock(text: str) -> Instant:
    """`09:00`, `09:00:30`, `day 3, 14:05`: day 1 is the first."""
    day, comma, hours = text.rpartition(", ")
    hour, minute, *second = (float(part) for part in hours.split(":"))
    days = int(day.removeprefix("day ")) - 1 if comma else 0
    return days * DAY + round(hour * HOUR + minute * MINUTE + (second[0] if second else 0) * SECOND)


def span(text: str) -> Millis:
    """`90s`, `10m`, `2h`."""
    return int(text[:-1]) * {"s": SECOND, "m": MINUTE, "h": HOUR}[text[-1]]


# --- what there is ---------------------------------------------------------------------------------------------------


def site(name: str, nodes: int | None = 1, gpus: int = 8, **more: Any) -> Told:
    """A cluster one owns: one offer, called as the site is."""
    about = {key: more.pop(key) for key in ("location", "law", "front_door") if key in more}
    owned = Offer(name, name, more.pop("term", "owned"), (NodeShape(gpus, nodes),), **more)
    return lambda at: e.SiteJoined(at, Site(name, (owned,), **{"front_door": True, **about}))


def offer(
    name: str,
    price: str = "1",
    sizes: tuple[int, ...] = (8,),
    count: int | None = None,
    start: str = "0s",
    most: str | None = None,
    egress: str = "0",
    **more: Any,
) -> Told:
    """A site that rents out one kind of node; `price` is for a GPU and an hour."""
    about = {key: more.pop(key) for key in ("location", "law", "has", "cloud", "region") if key in more}
    shapes = tuple(
        NodeShape(
            gpus, count, list_per_hour=usd(price) * gpus, most_per_hour=None if most is None else usd(most) * gpus
        )
        for gpus in sizes
    )
    sold = Offer(name, name, more.pop("term", "on_demand"), shapes, start_ms=span(start), **more)
    tiers = (EgressTier(None, usd(egress)),) if egress != "0" else ()
    return lambda at: e.SiteJoined(at, Site(name, (sold,), egress=tiers, **about))


def policy(patience: str = "", revision: int = 1, **more: Any) -> Told:
    if patience:
        more["waiting"] = Waiting("constant", span(patience), queue_cap=more.pop("queue_cap", None))
    return lambda at: e.PolicySet(at, revision, Policy("story", **more))


def cap(scope: str, amount: str | None, per_hour: str | None = None) -> Told:
    return lambda at: e.CapSet(
        at, scope, None if amount is None else usd(amount), None if per_hour is None else usd(per_hour)
    )


def month(number: int) -> Told:
    return lambda at: e.PeriodOpened(at, f"month {number}", (number - 1) * MONTH, number * MONTH)


def data(name: str, at_site: str, data_class: str = "", gb: int = 1) -> Told:
    return lambda at: e.DataSetRegistered(at, DataSet(name, gb * GB, at_site, data_class))


def rule(data_class: str, *sites: str, locations: tuple[str, ...] = (), laws: tuple[str, ...] = ()) -> DataRule:
    return DataRule(data_class, sites, locations, laws)


# --- what happens ----------------------------------------------------------------------------------------------------


def submitted(job: str, gpus: int = 8, run: str = "1h", checkpoint: str | None = "15m", **more: Any) -> Told:
    if "models" in more:
        more["gpu_models"] = tuple(GpuChoice(*choice) for choice in more.pop("models"))
    for name in ("cap",):
        if isinstance(more.get(name), str):
            more[name] = usd(more[name])
    for name in ("grace_ms", "lease_max_ms", "restart_ms"):
        if isinstance(more.get(name), str):
            more[name] = span(more[name])
    every = None if checkpoint is None else span(checkpoint)
    spec = JobSpec(gpus, expected_run_ms=span(run), checkpoint_every_ms=every, **more)
    return lambda at: e.JobSubmitted(at, -1, job, spec)


def nothing(at: Instant) -> e.Fact:
    return e.Woke(at)


def started(attempt: str) -> Told:
    return lambda at: e.AttemptStarted(at, attempt)


def ended(attempt: str, failed: bool = False) -> Told:
    return lambda at: e.AttemptEnded(at, attempt, "failed" if failed else "done")


def stopped(attempt: str, kept: str = "0s") -> Told:
    return lambda at: e.AttemptStopped(at, attempt, span(kept))


def lost(attempt: str, kept: str = "0s") -> Told:
    return lambda at: e.AttemptLost(at, attempt, span(kept))


def refused(attempt: str, retry: str = "5m", shortage: Shortage = "", words: str = "") -> Told:
    return lambda at: e.AttemptRefused(at, attempt, span(retry), words=words, shortage=shortage)


def obstructed(attempt: str, obstacle: Obstacle, words: str = "", retry: str = "30s") -> Told:
    return lambda at: e.AttemptRefused(at, attempt, span(retry), obstacle, words)


def stuck(attempt: str, words: str) -> Told:
    return lambda at: e.AttemptStuck(at, attempt, words)


def checkpointed(attempt: str, kept: str) -> Told:
    return lambda at: e.AttemptCheckpointed(at, attempt, span(kept))


def ready(node: str) -> Told:
    return lambda at: e.NodeReady(at, node)


def gone(node: str) -> Told:
    return lambda at: e.NodeGone(at, node)


def node_lost(node: str) -> Told:
    return lambda at: e.NodeLost(at, node)


def node_refused(node: str, retry: str = "5m", words: str = "", shortage: Shortage = "", billed: bool = False) -> Told:
    return lambda at: e.NodeRefused(at, node, span(retry), words, shortage, billed)


def node_notice(node: str, words: str = "") -> Told:
    return lambda at: e.NodeNotice(at, node, words)


def confirmed(thing: str, until: str | Instant) -> Told:
    deadline = clock(until) if isinstance(until, str) else until
    return lambda at: e.DeadlineSet(at, thing, deadline)


def metered(thing: str, amount: str) -> Told:
    return lambda at: e.Metered(at, thing, usd(amount))


def cancelled(job: str) -> Told:
    return lambda at: e.CancelRequested(at, job)


def asked_to_move(job: str, to: str) -> Told:
    return lambda at: e.MoveRequested(at, job, to)


def landed(data_set: str, at_site: str, expires: str = "day 8, 00:00") -> Told:
    return lambda at: e.ReplicaLanded(at, data_set, at_site, clock(expires))


def site_lost(name: str) -> Told:
    return lambda at: e.SiteLost(at, name)


def site_back(name: str) -> Told:
    return lambda at: e.SiteBack(at, name)


def seen(offer: str, **nodes: int) -> Told:
    """The site names its nodes, each with the GPUs that are ours to use."""
    return lambda at: e.NodesSeen(at, offer, tuple(nodes.items()))


# --- what it answers -------------------------------------------------------------------------------------------------


def start(attempt: str, on: str, **more: object) -> like:
    return like(a.StartAttempt, attempt=attempt, offer=on, **more)


def launch(node: str, at: str, **more: object) -> like:
    return like(a.LaunchNode, node=node, offer=at, **more)


def stop(attempt: str, grace: str = "2m") -> a.StopAttempt:
    return a.StopAttempt(attempt, span(grace))


def release(node: str) -> a.ReleaseNode:
    return a.ReleaseNode(node)


def set_deadline(thing: str, until: str | Instant | None = None) -> like | a.SetDeadline:
    if until is None:
        return like(a.SetDeadline, thing=thing)
    return a.SetDeadline(thing, clock(until) if isinstance(until, str) else until)


def copy(data_set: str, to: str) -> a.CopyData:
    return a.CopyData(data_set, to)


__all__ = [
    "Extras",
    "Penstock",
    "Told",
    "asked_to_move",
    "cancelled",
    "cap",
    "checkpointed",
    "clock",
    "confirmed",
    "copy",
    "data",
    "ended",
    "given",
    "gone",
    "landed",
    "launch",
    "like",
    "lost",
    "metered",
    "month",
    "node_lost",
    "node_notice",
    "node_refused",
    "nothing",
    "obstructed",
    "offer",
    "policy",
    "ready",
    "refused",
    "release",
    "rule",
    "set_deadline",
    "site",
    "site_back",
    "site_lost",
    "span",
    "start",
    "started",
    "stop",
    "stopped",
    "stuck",
    "submitted",
    "usd",
]
