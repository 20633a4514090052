"""How each job of one simulated run fared: rent, wait, delay, data moved, what denied it, and the recorded reasons.

`policy_diff` watches two runs with it. The words are those of `report`; sums count whole jobs, per team and overall.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.core.decide.rules import UNTIL_CHANGED
from penstock.core.engine import Engine, Step
from penstock.core.ids import members
from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.model.reasons import Reason
from penstock.core.model.types import Part
from penstock.core.units import HOUR, MICRO, NEVER, Instant, Millis, Money
from penstock.core.values import value
from penstock.explain.sentences import Say, sentence
from penstock.sim.engine.report import percentile
from penstock.sim.traces.trace import TraceJob

#: What stands instead of a delay.
REFUSED: Final = -1
UNFINISHED: Final = -2
STOPPED: Final = -3
FATES: Final = {REFUSED: "refused", UNFINISHED: "queued", STOPPED: "stopped"}
BUILT_IN: Final = "built in"


def of_policy(because: Reason) -> tuple[str, str] | None:
    """What of a policy file keeps a job from bursting or running now, and its file and line. None: nothing."""
    match because:
        case r.ApprovalDenied():
            return "nobody approved it in time", because.source
        case r.AwaitsApproval():
            return "it needs an approval", because.source
        case r.EgressSpent():
            return "its team's output of this month", because.source
        case r.HeadroomKept():
            return "GPUs are kept free", because.source
        case r.InQuietHours():
            return "quiet hours", because.source
        case r.NoTriggerHolds():  # triggers are one rule, however many there are
            return "no trigger of burst_when holds", because.seen[0].source if because.seen else ""
        case r.RanTooLong():
            return "it ran as long as its class may", because.source
        case r.TeamAtLimit():
            return "its team's GPUs at once", because.source
        case r.TooDear():
            return "above the highest price", because.source
        case _:
            return None


class Fared:
    """One job's outcome."""

    __slots__ = (
        *("attempt", "capped", "cost", "delay_ms", "denied", "id", "offer", "queued_at", "ran_ms", "rented", "run_ms"),
        *("shape", "started", "submitted_at", "team", "wait_ms", "waited_for", "waits_for"),
    )

    def __init__(self, job: str, team: str, run_ms: Millis, submitted_at: Instant) -> None:
        self.id, self.team, self.run_ms, self.submitted_at = job, team, run_ms, submitted_at
        self.cost: Money = 0
        self.wait_ms: Millis = 0
        self.delay_ms: Millis = UNFINISHED
        self.ran_ms: Millis = 0
        self.offer = self.attempt = ""  #: the last it was promised
        self.rented = self.capped = self.denied = False
        self.shape = -1
        self.started: Reason | None = None  #: why it first ran where it did, or was refused
        self.queued_at: Instant | None = submitted_at  #: since when it waits; None: it has a place
        self.waits_for: tuple[Instant, Reason] | None = None  #: the last "not yet" of this wait: until when, and why
        self.waited_for: tuple[Millis, Instant, Reason] | None = None  #: of its longest wait, with how long it took

    def placed(self, at: Instant) -> None:
        """Its wait is over; the longest is remembered."""
        if self.waits_for is not None and self.queued_at is not None:
            waited_ms = at - self.queued_at
            if waited_ms and (self.waited_for is None or waited_ms > self.waited_for[0]):
                self.waited_for = (waited_ms, *self.waits_for)
        self.queued_at = self.waits_for = None


@value
class Sums:
    """What happened to the jobs of one team, or to all."""

    jobs: int = 0
    ended: int = 0
    refused: int = 0
    stopped: int = 0  # they ran as long as their class may
    unfinished: int = 0
    burst: int = 0
    cost: float = 0.0  # rent, in the currency
    estimated_cost: float = 0.0  # of it: of jobs whose run time is an estimate
    mean_wait_h: float = 0.0
    p95_wait_h: float = 0.0
    mean_delay_h: float = 0.0
    p95_delay_h: float = 0.0
    denied: int = 0  # jobs to which a rule of the policy closed an offer, or everything
    capped: int = 0  # jobs that a cap held back at least once
    moved_bytes: int = 0  # copied to a site, or brought home from a rented one


@value
class RuleCount:
    """How many jobs a rule denied something, by its words and its file and line."""

    rule: str
    where: str
    jobs: int


@value
class Outcomes:
    """One run, summed up: small enough to send from process to process."""

    everybody: Sums
    teams: Mapping[str, Sums]
    rules: tuple[RuleCount, ...]
    caps: Mapping[str, int]  # scope -> jobs that it held back
    costs: "array[int]"  # by job, in the trace's order
    delays: "array[int]"  # likewise; one of FATES instead


@value
class Story:
    """One job in one run, for people."""

    outcome: str  # ended, refused, stopped, queued
    offer: str
    cost: float
    wait_h: float
    delay_h: float | None
    reasons: tuple[str, ...]  # recorded: why it waited longest, and why it first ran where it did, or was refused


class Watch:
    """Gets every step of a run."""

    def __init__(self, jobs: Iterable[TraceJob], data: Mapping[str, int], currency: str) -> None:
        self.currency = currency
        self.data = data  #: sizes
        self.runs = {job.id: job.run_ms for job in jobs}  #: of a submission
        self.fared: dict[str, Fared] = {}
        self.live: dict[str, tuple[Fared, Instant, bool, int]] = {}  #: attempt: whose, started, rented, output
        self.promised: dict[str, e.StartPromised] = {}
        self.payers: dict[str, tuple[Fared | None, str]] = {}  #: of a hold: the job, if any, and the team that pays
        self.outputs: dict[str, int] = {}  #: of jobs that have some
        self.copying: dict[tuple[str, str], str] = {}  #: data set and site: the team that asked first
        self.team_cost: dict[str, Money] = {}
        self.moved: dict[str, int] = {}
        self.excluded: dict[int, tuple[tuple[str, str], ...]] = {}  #: by shape: rule and where, ours left out
        self.rules: dict[tuple[str, str], int] = {}
        self.moments: dict[tuple[str, str], dict[str, None]] = {}  #: the same of the moment: by whom
        self.caps: dict[str, dict[str, None]] = {}

    def see(self, step: Step, engine: Engine) -> None:
        for event in step.inputs:
            note = NOTE.get(type(event))
            if note is not None:
                note(self, event)
        for promise in step.outputs:
            note = NOTE.get(type(promise))
            if note is not None:
                note(self, promise)
        for event in step.inputs:
            if type(event) is e.JobSubmitted:
                self._shapes(event, engine)

    def _shapes(self, event: e.JobSubmitted, engine: Engine) -> None:
        for name in members(event.job, event.spec.count):
            job = engine.state.jobs.get(name)
            if job is not None:
                self.fared[name].shape = job.shape.number

    # --- events ------------------------------------------------------------------------------------------------------

    def submitted(self, event: e.JobSubmitted) -> None:
        run_ms = self.runs[event.job]
        for job in members(event.job, event.spec.count):
            self.fared[job] = Fared(job, event.spec.team, run_ms, event.at)
            if event.spec.output_bytes:
                self.outputs[job] = event.spec.output_bytes

    def judged(self, event: e.ShapeJudged) -> None:
        rules = tuple(
            dict.fromkeys((rule, where) for _, rule, where in event.excluded if where not in (BUILT_IN, UNTIL_CHANGED))
        )
        if rules:
            self.excluded[event.shape] = rules

    def refused(self, event: e.JobRefused) -> None:
        fared = self.fared[event.job]
        fared.delay_ms, fared.started = REFUSED, event.because
        if isinstance(event.because, r.NothingAllowed | r.OnlyOwned) and event.because.where != BUILT_IN:
            fared.denied = True
            self._count_rule(event.because.rule, event.because.where)
        self._note_policy(fared, event.because)

    def waits(self, event: e.WaitPromised) -> None:
        fared = self.fared[event.job]
        fared.waits_for = (event.until_at, event.because)
        self._note_cap(fared, event.because)
        self._note_policy(fared, event.because)

    def stop_promised(self, event: e.StopPromised) -> None:
        live = self.live.get(event.attempt)
        if event.then == "fail" and live is not None:
            live[0].delay_ms, live[0].started = STOPPED, event.because
            self._note_policy(live[0], event.because)

    def failed(self, event: e.JobFailed) -> None:
        fared = self.fared[event.job]
        fared.delay_ms, fared.started = STOPPED, event.because
        self._note_policy(fared, event.because)

    def renewal_denied(self, event: e.RenewalDenied) -> None:
        fared, _ = self.payers[event.hold]
        if fared is not None:
            self._note_cap(fared, event.because)

    def _note_cap(self, fared: Fared, because: Reason) -> None:
        if isinstance(because, r.CapBinds | r.RateBinds | r.Paced):
            fared.capped = True
            self.caps.setdefault(because.scope, {})[fared.id] = None

    def _note_policy(self, fared: Fared, because: Reason) -> None:
        """Once for each job and line."""
        rule = of_policy(because)
        if rule is not None:
            fared.denied = True
            self.moments.setdefault(rule, {})[fared.id] = None

    def starts(self, event: e.StartPromised) -> None:
        fared = self.fared[event.job]
        if fared.started is None:
            fared.started = event.because
        fared.placed(event.at)
        came_home = fared.rented and not event.rented
        fared.rented = fared.rented or event.rented
        fared.offer = event.offer
        fared.attempt = event.attempt
        self.promised[event.attempt] = event
        if event.hold is not None:
            self.payers[event.hold.id] = (fared, _team(event.hold.scopes, fared))
        for ask in event.nodes:
            self.payers[ask.hold.id] = (fared, _team(ask.hold.scopes, fared))
        site = event.offer.partition("/")[0]
        for data_set in event.copies:
            self.copying.setdefault((data_set, site), fared.team)
        if came_home and event.job in self.outputs:
            self._moves(fared.team, self.outputs[event.job])

    def started(self, event: e.AttemptStarted) -> None:
        promise = self.promised.pop(event.attempt, None)
        if promise is not None:
            fared = self.fared[promise.job]
            self.live[event.attempt] = (fared, event.at, promise.rented, self.outputs.get(promise.job, 0))

    def ended(self, event: e.AttemptEnded) -> None:
        live = self._over(event)
        if live is None:
            return
        fared, rented, output = live
        gone_ms = event.at - fared.submitted_at
        fared.wait_ms, fared.delay_ms = gone_ms - fared.ran_ms, max(0, gone_ms - fared.run_ms)
        if rented and output:
            self._moves(fared.team, output)

    def broken_off(self, event: e.AttemptStopped | e.AttemptLost | e.AttemptRefused) -> None:
        """Another place may be promised already: then it does not wait."""
        promise, live = self.promised.get(event.attempt), self._over(event)
        fared = live[0] if live is not None else self.fared[promise.job] if promise is not None else None
        if fared is not None and fared.attempt == event.attempt:
            fared.queued_at = event.at

    def _over(self, event: Any) -> tuple[Fared, bool, int] | None:
        self.promised.pop(event.attempt, None)
        live = self.live.pop(event.attempt, None)
        if live is None:
            return None
        fared, started_at, rented, output = live
        fared.ran_ms += event.at - started_at
        return fared, rented, output

    def rented_ahead(self, event: e.WarmPromised | e.ClusterPromised) -> None:
        self.payers[event.ask.hold.id] = (None, _budget(event.ask.hold.scopes))

    def changes_payer(self, event: e.PayerChanged) -> None:
        self._charge(event.node, event.charged)
        fared, scopes = self.fared.get(event.job), event.hold.scopes
        self.payers[event.node] = (fared, _budget(scopes) if fared is None else _team(scopes, fared))

    def charged(self, event: e.LeaseRenewed | e.Settled) -> None:
        self._charge(event.hold, event.charged)

    def _charge(self, hold: str, charged: tuple[Part, ...]) -> None:
        fared, team = self.payers[hold]
        amount = sum([part.amount for part in charged])
        if fared is not None:
            fared.cost += amount
        self.team_cost[team] = self.team_cost.get(team, 0) + amount

    def settled(self, event: e.Settled) -> None:
        self.charged(event)
        del self.payers[event.hold]

    def landed(self, event: e.ReplicaLanded) -> None:
        team = self.copying.pop((event.data_set, event.site), "")
        self._moves(team, self.data.get(event.data_set, 0))

    def _moves(self, team: str, size_bytes: int) -> None:
        self.moved[team] = self.moved.get(team, 0) + size_bytes

    def _count_rule(self, rule: str, where: str) -> None:
        self.rules[rule, where] = self.rules.get((rule, where), 0) + 1

    # --- the sum -----------------------------------------------------------------------------------------------------

    def outcomes(self, estimated: Mapping[str, str]) -> Outcomes:
        """`estimated`: the jobs whose run time is an estimate."""
        for fared in self.fared.values():
            for rule, where in self.excluded.get(fared.shape, ()):
                fared.denied = True
                self._count_rule(rule, where)
        everybody = list(self.fared.values())
        by_team: dict[str, list[Fared]] = {}
        for fared in everybody:
            by_team.setdefault(fared.team, []).append(fared)
        rules = {**self.rules, **{rule: len(jobs) for rule, jobs in self.moments.items()}}
        counted = sorted(rules.items(), key=lambda pair: (-pair[1], pair[0]))
        return Outcomes(
            everybody=self._sums(everybody, estimated, None),
            teams={team: self._sums(fared_jobs, estimated, team) for team, fared_jobs in sorted(by_team.items())},
            rules=tuple(RuleCount(rule, where, jobs) for (rule, where), jobs in counted),
            caps={scope: len(held_back) for scope, held_back in sorted(self.caps.items())},
            costs=array("q", [fared.cost for fared in everybody]),
            delays=array("q", [fared.delay_ms for fared in everybody]),
        )

    def _sums(self, fared_jobs: list[Fared], estimated: Mapping[str, str], team: str | None) -> Sums:
        """A team pays what was charged to it, also for what another team's job displaced."""
        delays = sorted(fared.delay_ms for fared in fared_jobs if fared.delay_ms >= 0)
        waits = sorted(fared.wait_ms for fared in fared_jobs if fared.delay_ms >= 0)
        ended = max(1, len(delays))
        cost = sum(self.team_cost.values()) if team is None else self.team_cost.get(team, 0)
        return Sums(
            jobs=len(fared_jobs),
            ended=len(delays),
            refused=sum(fared.delay_ms == REFUSED for fared in fared_jobs),
            stopped=sum(fared.delay_ms == STOPPED for fared in fared_jobs),
            unfinished=sum(fared.delay_ms == UNFINISHED for fared in fared_jobs),
            burst=sum(fared.rented for fared in fared_jobs),
            cost=_units(cost),
            estimated_cost=_units(sum(fared.cost for fared in fared_jobs if fared.id in estimated)),
            mean_wait_h=round(sum(waits) / ended / HOUR, 3),
            p95_wait_h=percentile(waits, 95),
            mean_delay_h=round(sum(delays) / ended / HOUR, 3),
            p95_delay_h=percentile(delays, 95),
            denied=sum(fared.denied for fared in fared_jobs),
            capped=sum(fared.capped for fared in fared_jobs),
            moved_bytes=sum(self.moved.values()) if team is None else self.moved.get(team, 0),
        )

    def story(self, job: str) -> Story:
        fared = self.fared[job]
        ended = fared.delay_ms >= 0
        waits = (
            [fared.waits_for] if fared.waits_for and not ended else [fared.waited_for[1:]] if fared.waited_for else []
        )
        reasons = [sentence(because, Say(self.currency, until_at)) for until_at, because in waits]
        if fared.started is not None:
            reasons.append(sentence(fared.started, Say(self.currency, NEVER)))
        return Story(
            outcome=FATES.get(fared.delay_ms, "ended"),
            offer=fared.offer,
            cost=_units(fared.cost),
            wait_h=round(fared.wait_ms / HOUR, 3),
            delay_h=round(fared.delay_ms / HOUR, 3) if ended else None,
            reasons=tuple(reasons),
        )


def _budget(scopes: tuple[str, ...]) -> str:
    """The team, or else the scope, that pays for a warm node."""
    return next((scope[5:] for scope in scopes if scope.startswith("team:")), scopes[-1])


def _team(scopes: tuple[str, ...], fared: Fared) -> str:
    return next((scope[5:] for scope in scopes if scope.startswith("team:")), fared.team)


def _units(amount: Money) -> float:
    return round(amount / MICRO, 2)


NOTE: Final[dict[type, Callable[[Watch, Any], None]]] = {
    e.JobSubmitted: Watch.submitted,
    e.ShapeJudged: Watch.judged,
    e.JobRefused: Watch.refused,
    e.JobFailed: Watch.failed,
    e.WaitPromised: Watch.waits,
    e.RenewalDenied: Watch.renewal_denied,
    e.StopPromised: Watch.stop_promised,
    e.StartPromised: Watch.starts,
    e.AttemptStarted: Watch.started,
    e.AttemptEnded: Watch.ended,
    e.AttemptStopped: Watch.broken_off,
    e.AttemptLost: Watch.broken_off,
    e.AttemptRefused: Watch.broken_off,
    e.LeaseRenewed: Watch.charged,
    e.PayerChanged: Watch.changes_payer,
    e.WarmPromised: Watch.rented_ahead,
    e.ClusterPromised: Watch.rented_ahead,
    e.Settled: Watch.settled,
    e.ReplicaLanded: Watch.landed,
}
