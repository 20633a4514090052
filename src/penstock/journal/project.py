"""What a step changes in the tables: pure, and the same for every database. `keeper` writes what it says.

    changes = project(tables, steps)

`Tables` holds the lines that can still change, as they are in the database; the answer is which lines to put, drop and
add to. The lives of jobs and attempts follow `core.fold`, edge by edge: after any history a job's line says what the
engine's state says of it (`tests/journal/test_project.py`). Like `fold`, it takes facts that come twice or too late,
and they change nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from penstock.core import events as e
from penstock.core.lifecycle import ENDED
from penstock.core.model import Hold as HeldMoney
from penstock.core.model import JobSpec, Part
from penstock.core.state import reason_scope
from penstock.core.units import DAY, NEVER, Instant, Millis
from penstock.journal import lines as t


def project(tables: "Tables", steps: Iterable[Any]) -> "Changes":
    """Take in these steps (or rows read back), and say what that changes."""
    changes = tables.changes = Changes()
    for step in steps:
        for part, event in enumerate((*step.inputs, *step.outputs)):
            for job in _concerned(tables, event):
                changes.put(t.Happened(step.number, part, job, type(event).__name__))
            follow = FOLLOW.get(type(event))
            if follow is not None:
                follow(tables, event)
        tables.forget_ended()  # after each, so that how steps are grouped changes nothing
    return changes


class Changes:
    """By table: lines to put by key, keys to drop, amounts to add by key."""

    def __init__(self) -> None:
        self.puts: dict[type[Any], dict[tuple[Any, ...], t.Line]] = {}
        self.drops: dict[type[Any], dict[tuple[Any, ...], None]] = {}

    def put(self, line: t.Line) -> None:
        kind, key = type(line), _key(line)
        self.puts.setdefault(kind, {})[key] = line
        self.drops.get(kind, {}).pop(key, None)

    def drop(self, line: t.Line) -> None:
        kind, key = type(line), _key(line)
        self.puts.get(kind, {}).pop(key, None)
        self.drops.setdefault(kind, {})[key] = None

    def add(self, line: t.Spend | t.Used) -> None:
        known: Any = self.puts.setdefault(type(line), {}).setdefault(_key(line), line)
        if known is not line:
            for name in t.TABLES[type(line)].adds:
                setattr(known, name, getattr(known, name) + getattr(line, name))


def _key(line: t.Line) -> tuple[Any, ...]:
    return t.TABLES[type(line)].key_of(line)


class Tables:
    """The lines that can still change: of jobs that have not ended or for which money is still held."""

    def __init__(self, loaded: Iterable[t.Line] = ()) -> None:
        self.jobs: dict[str, t.Job] = {}
        self.attempts: dict[str, t.Attempt] = {}
        self.nodes: dict[str, t.Node] = {}
        self.rented: dict[str, dict[str, t.Node]] = {}  #: attempt -> its nodes
        self.holds: dict[str, t.Hold] = {}
        self.offers: dict[str, t.Offer] = {}
        self.closed: dict[str, t.Closed] = {}
        self.notes: dict[str, str] = {}
        self.awaited: dict[str, dict[str, None]] = {}  #: what an attempt needs -> who needs it
        self.over: list[t.Job | t.Attempt] = []
        self.changes = Changes()
        for line in loaded:
            self._take(line)

    def _take(self, line: t.Line) -> None:
        match line:
            case t.Job():
                self.jobs[line.id] = line
            case t.Attempt():
                self.attempts[line.id] = line
                for need in _list(line.needs):
                    self.awaited.setdefault(need, {})[line.id] = None
            case t.Node():
                self.take_node(line)
            case t.Hold():
                self.holds[line.id] = line
            case t.Offer():
                self.offers[line.id] = line
            case t.Closed():
                self.closed[line.offer] = line
            case t.Note():
                self.notes[line.name] = line.text
            case _:
                pass  # the rest is only ever put or added to

    def take_node(self, node: t.Node) -> None:
        self.nodes[node.id] = node
        self.rented.setdefault(node.attempt, {})[node.id] = node

    @property
    def numbered(self) -> int:
        """The last submission's number."""
        return int(self.notes.get("numbered", "-1"))

    def live_job(self, job: str) -> t.Job | None:
        found = self.jobs.get(job)
        return found if found is not None and found.phase not in ENDED else None

    def live_attempt(self, attempt: str) -> t.Attempt | None:
        found = self.attempts.get(attempt)
        return found if found is not None and found.phase != "over" else None

    def job_of(self, attempt: t.Attempt) -> t.Job:
        return self.jobs[attempt.job]

    def count(self, name: str) -> int:
        """The next number of this name."""
        number = int(self.notes.get(name, "0"))
        self.note(name, str(number + 1))
        return number

    def note(self, name: str, text: str) -> None:
        self.notes[name] = text
        self.changes.put(t.Note(name, text))

    def forget_ended(self) -> None:
        """They are in the database, and nothing can change them any more."""
        for line in self.over:
            known: Any = self.jobs if isinstance(line, t.Job) else self.attempts
            if line.holds == 0 and known.get(line.id) is line:
                del known[line.id]
        self.over = []  # for which money is still held: `settled` names them again


# --- who is concerned ------------------------------------------------------------------------------------------------


def _concerned(tables: Tables, event: Any) -> Iterable[str]:
    """The jobs this event is about; `""` if it is about all of them; none if it is not worth telling."""
    kind = type(event)
    if kind in UNTOLD:
        return ()
    if kind is e.JobSubmitted:
        return _members(event.job, event.spec.count) if event.number > tables.numbered else ()
    if hasattr(event, "job"):
        return (event.job,)
    if hasattr(event, "attempt"):
        attempt = tables.attempts.get(event.attempt)
        return (attempt.job,) if attempt else ()
    thing = getattr(event, "hold", None) or getattr(event, "node", "")
    if not thing:
        return ("",)
    hold = tables.holds.get(thing)
    return (tables.attempts[hold.attempt].job if hold else "",)


#: Said often, and of no interest once the next one is said.
UNTOLD: Final = (e.Woke, e.Metered, e.DeadlineSet, e.ShapeJudged)


def _members(job: str, count: int) -> tuple[str, ...]:
    return (job,) if count == 1 else tuple(f"{job}/{k}" for k in range(count))


# --- what people decide ----------------------------------------------------------------------------------------------


def policy_set(tables: Tables, event: e.PolicySet) -> None:
    if tables.notes.get("currency") != event.policy.currency:
        tables.note("currency", event.policy.currency)


def period_opened(tables: Tables, event: e.PeriodOpened) -> None:
    tables.changes.put(t.Period(event.period, event.starts_at, event.ends_at))


def cap_set(tables: Tables, event: e.CapSet) -> None:
    cap = t.Cap(event.scope, event.per_period, event.per_hour)
    if event.per_period is None and event.per_hour is None:
        tables.changes.drop(cap)
    else:
        tables.changes.put(cap)


def site_joined(tables: Tables, event: e.SiteJoined) -> None:
    for offer in event.site.offers:
        line = tables.offers[offer.id] = t.Offer(offer.id, offer.site, offer.term, offer.gpu_model)
        tables.changes.put(line)


def replica_landed(tables: Tables, event: e.ReplicaLanded) -> None:
    _arrived(tables, f"copy:{event.site}:{event.data_set}")


# --- jobs ------------------------------------------------------------------------------------------------------------


def job_submitted(tables: Tables, event: e.JobSubmitted) -> None:
    members = _members(event.job, event.spec.count)
    if event.number <= tables.numbered:
        return
    tables.note("numbered", str(event.number))
    if any(tables.live_job(job) for job in (event.job, *members)):
        return
    for job in members:
        _admit(tables, job, event.spec, event.at)


def _admit(tables: Tables, job: str, spec: JobSpec, at: Instant) -> None:
    words = f"{job} {spec.name} {spec.user} {spec.team}".lower()
    line = t.Job(
        _text(job), tables.count("jobs"), _text(spec.team), _text(spec.name), _text(spec.user), _text(spec.project),
        spec.job_class, spec.priority, spec.gpus, spec.work, at, _text(words),
    )  # fmt: skip
    tables.jobs[job] = line
    tables.changes.put(line)


def _text(found: str) -> str:
    """PostgreSQL cannot hold the one character that people never mean."""
    return found.replace("\0", "\ufffd")


def wait_promised(tables: Tables, event: e.WaitPromised) -> None:
    job = tables.jobs[event.job]
    job.until_at = None if event.until_at == NEVER else event.until_at
    job.short_of, job.because = reason_scope(event.because), _json(event.because)
    tables.changes.put(job)


def reserve_promised(tables: Tables, event: e.ReservePromised) -> None:
    """It waits for its nodes now, and for no instant."""
    job = tables.jobs[event.job]
    job.until_at, job.because = None, _json(event.because)
    tables.changes.put(job)


def job_refused(tables: Tables, event: e.JobRefused) -> None:
    job = tables.jobs[event.job]
    job.because = _json(event.because)
    _end(tables, job, "refused", event.at)


def cancel_requested(tables: Tables, event: e.CancelRequested) -> None:
    job = tables.live_job(event.job)
    if job is None or job.cancelled:
        return
    job.cancelled = 1
    tables.changes.put(job)
    if job.phase in ("waiting", "paused"):
        _end(tables, job, "cancelled", event.at)


def _end(tables: Tables, job: t.Job, phase: str, at: Instant) -> None:
    job.phase, job.ended_at, job.attempt, job.until_at, job.short_of = phase, at, "", None, ""
    tables.changes.put(job)
    tables.over.append(job)


def start_promised(tables: Tables, event: e.StartPromised) -> None:
    job, because = tables.jobs[event.job], _json(event.because)
    offer = tables.offers[event.offer]
    attempt = t.Attempt(
        event.attempt, tables.count("attempts"), job.id, job.team, offer.id, offer.site, event.width, event.at,
        event.resume_ms, event.resume_ms, because,
    )  # fmt: skip
    job.attempts += 1
    job.because, job.until_at, job.short_of = because, None, ""
    if job.phase in ("waiting", "paused"):
        job.phase, job.attempt, job.offer = "placed", attempt.id, offer.id
    else:
        job.next = attempt.id
        job.moves += 1
    tables.attempts[attempt.id] = attempt
    tables.changes.put(job)
    _note_needs(tables, event, attempt)
    _begin_if_ready(tables, attempt)


def _note_needs(tables: Tables, event: e.StartPromised, attempt: t.Attempt) -> None:
    needs = [f"node:{ask.node}" for ask in event.nodes]
    needs += [f"over:{other}" for other in event.after if tables.live_attempt(other)]
    needs += [f"copy:{attempt.site}:{data_set}" for data_set in event.copies]
    attempt.needs = _json(needs)
    for need in needs:
        tables.awaited.setdefault(need, {})[attempt.id] = None
    for ask in event.nodes:
        node = t.Node(ask.node, attempt.id, attempt.offer, ask.gpus, "asked", event.at)
        tables.take_node(node)
        tables.changes.put(node)
        _hold(tables, ask.hold, attempt)
    if event.hold is not None:
        _hold(tables, event.hold, attempt)


def _begin_if_ready(tables: Tables, attempt: t.Attempt) -> None:
    tables.changes.put(attempt)
    if attempt.phase != "promised" or attempt.needs != "[]":
        return
    attempt.phase = "starting"
    for node in tables.rented.get(attempt.id, {}).values():
        node.phase = "busy"
        tables.changes.put(node)


def _arrived(tables: Tables, need: str) -> None:
    """What some attempts waited for is there."""
    for attempt_id in tables.awaited.pop(need, ()):
        attempt = tables.live_attempt(attempt_id)
        if attempt is not None:
            attempt.needs = _json([other for other in _list(attempt.needs) if other != need])
            _begin_if_ready(tables, attempt)


# --- attempts --------------------------------------------------------------------------------------------------------


def attempt_started(tables: Tables, event: e.AttemptStarted) -> None:
    attempt = tables.live_attempt(event.attempt)
    if attempt is None:
        return
    if attempt.phase == "starting":
        attempt.phase = "running"
    if attempt.started_at is None:
        attempt.started_at = event.at
    job = tables.job_of(attempt)
    if job.started_at is None:
        job.started_at = event.at
        tables.changes.put(job)
    tables.changes.put(attempt)
    _found_room(tables, attempt.offer)


def attempt_checkpointed(tables: Tables, event: e.AttemptCheckpointed) -> None:
    attempt = tables.live_attempt(event.attempt)
    if attempt is not None:
        attempt.kept_ms = max(attempt.kept_ms, event.kept_ms)
        tables.changes.put(attempt)


def attempt_ended(tables: Tables, event: e.AttemptEnded) -> None:
    attempt = tables.live_attempt(event.attempt)
    if attempt is None or attempt.phase == "promised":
        return
    job = tables.job_of(attempt)
    _drop_next(tables, job, event.at)
    _over(tables, attempt, event.outcome, event.at)
    _end(tables, job, event.outcome, event.at)


def attempt_stopped(tables: Tables, event: e.AttemptStopped) -> None:
    attempt = tables.live_attempt(event.attempt)
    if attempt is None or attempt.phase == "promised":
        return
    job = tables.job_of(attempt)
    _keep(tables, job, attempt, event.kept_ms)
    if job.cancelled:
        _drop_next(tables, job, event.at)
    _over(tables, attempt, "stopped", event.at)
    _go_on(tables, job, "paused" if (attempt.stop_then or "pause") == "pause" else "waiting", event.at)


def attempt_lost(tables: Tables, event: e.AttemptLost) -> None:
    _lost(tables, event.attempt, event.at, event.kept_ms, "lost")


def attempt_refused(tables: Tables, event: e.AttemptRefused) -> None:
    attempt = tables.live_attempt(event.attempt)
    if attempt is not None:
        _lost(tables, event.attempt, event.at, attempt.resume_ms, "refused")


def stop_promised(tables: Tables, event: e.StopPromised) -> None:
    attempt = tables.attempts[event.attempt]
    job = tables.job_of(attempt)
    job.phase, job.because, attempt.stop_then = "leaving", _json(event.because), event.then
    tables.changes.put(job)
    if attempt.phase == "promised":
        _over(tables, attempt, "dropped", event.at)
        _go_on(tables, job, "paused" if event.then == "pause" else "waiting", event.at)
        return
    attempt.phase = "stopping"
    tables.changes.put(attempt)


def _lost(tables: Tables, attempt_id: str, at: Instant, kept_ms: Millis, outcome: str) -> None:
    attempt = tables.live_attempt(attempt_id)
    if attempt is None:
        return
    job = tables.job_of(attempt)
    if attempt.id == job.next:
        _drop_next(tables, job, at, outcome)
        if job.attempt:
            tables.attempts[job.attempt].stop_then = "wait"
            tables.changes.put(tables.attempts[job.attempt])
        return
    _keep(tables, job, attempt, kept_ms)
    job.losses += outcome == "lost"
    if job.cancelled:
        _drop_next(tables, job, at)
    _over(tables, attempt, outcome, at)
    _go_on(tables, job, "waiting", at)


def _keep(tables: Tables, job: t.Job, attempt: t.Attempt, kept_ms: Millis) -> None:
    job.kept_ms = attempt.kept_ms = max(kept_ms, attempt.resume_ms)
    following = tables.attempts.get(job.next)
    if following is not None:
        following.resume_ms = following.kept_ms = job.kept_ms
        tables.changes.put(following)


def _drop_next(tables: Tables, job: t.Job, at: Instant, outcome: str = "dropped") -> None:
    if job.next:
        _over(tables, tables.attempts[job.next], outcome, at)
        job.next = ""
        tables.changes.put(job)


def _over(tables: Tables, attempt: t.Attempt, outcome: str, at: Instant) -> None:
    if attempt.started_at is not None:
        _book_time(tables, attempt, attempt.started_at, at)
    attempt.phase, attempt.outcome, attempt.ended_at = "over", outcome, at
    attempt.deadline_at = None
    tables.changes.put(attempt)
    tables.over.append(attempt)
    for node in tables.rented.get(attempt.id, {}).values():
        if node.phase == "busy":
            node.phase = "idle"
            tables.changes.put(node)
    for need in _list(attempt.needs):
        tables.awaited.get(need, {}).pop(attempt.id, None)
    attempt.needs = "[]"
    _arrived(tables, f"over:{attempt.id}")


def _book_time(tables: Tables, attempt: t.Attempt, start: Instant, end: Instant) -> None:
    """GPU time, cut where days meet."""
    while start < end:
        day = start // DAY
        until = min(end, (day + 1) * DAY)
        tables.changes.add(t.Used(day, attempt.offer, attempt.team, (until - start) * attempt.width, 0))
        start = until


def _go_on(tables: Tables, job: t.Job, otherwise: str, at: Instant) -> None:
    """Its attempt is over and the job is not: to its next place if one was promised, otherwise back to the queue."""
    tables.changes.put(job)
    if job.cancelled:
        _end(tables, job, "cancelled", at)
    elif job.next:
        following = tables.attempts[job.next]
        job.attempt, job.next, job.phase, job.offer = following.id, "", "placed", following.offer
        following.resume_ms = following.kept_ms = job.kept_ms
        _begin_if_ready(tables, following)
    else:
        job.phase, job.attempt, job.until_at = otherwise, "", None


# --- nodes and offers ------------------------------------------------------------------------------------------------


def node_ready(tables: Tables, event: e.NodeReady) -> None:
    node = tables.nodes.get(event.node)
    if node is None or node.phase != "asked":
        return
    node.phase = "idle"
    tables.changes.put(node)
    _found_room(tables, node.offer)
    _arrived(tables, f"node:{node.id}")


def node_refused(tables: Tables, event: e.NodeRefused) -> None:
    _gone(tables, event.node, event.at, "refused")


def node_lost(tables: Tables, event: e.NodeLost | e.NodeGone) -> None:
    _gone(tables, event.node, event.at, "lost")


def _gone(tables: Tables, node_id: str, at: Instant, outcome: str) -> None:
    node = tables.nodes.pop(node_id, None)
    if node is None:
        return
    tables.changes.drop(node)
    del tables.rented[node.attempt][node.id]
    if not tables.rented[node.attempt]:
        del tables.rented[node.attempt]
    attempt = tables.live_attempt(node.attempt)
    if attempt is not None and attempt.phase == "promised":
        _lost(tables, attempt.id, at, attempt.resume_ms, outcome)


def release_promised(tables: Tables, event: e.ReleasePromised) -> None:
    node = tables.nodes[event.node]
    node.phase = "returning"
    tables.changes.put(node)


def offer_closed(tables: Tables, event: e.OfferClosed) -> None:
    line = tables.closed[event.offer] = t.Closed(event.offer, event.until_at, event.refusals)
    tables.changes.put(line)


def offer_opened(tables: Tables, event: e.OfferOpened) -> None:
    _found_room(tables, event.offer)


def _found_room(tables: Tables, offer: str) -> None:
    line = tables.closed.pop(offer, None)
    if line is not None:
        tables.changes.drop(line)


# --- money -----------------------------------------------------------------------------------------------------------


def _hold(tables: Tables, hold: HeldMoney, attempt: t.Attempt) -> None:
    beyond = hold.terms.grace_ms + hold.terms.kill_ms
    line = t.Hold(hold.id, attempt.id, _json(hold.scopes), "[]", hold.deadline_at, beyond)
    tables.holds[hold.id] = line
    attempt.holds += 1
    tables.job_of(attempt).holds += 1
    _held(tables, line, hold.parts, hold.deadline_at)


def lease_renewed(tables: Tables, event: e.LeaseRenewed) -> None:
    hold = tables.holds[event.hold]
    _charge(tables, hold, event.charged, event.at)
    _held(tables, hold, event.parts, event.deadline_at)


def lease_shortened(tables: Tables, event: e.LeaseShortened) -> None:
    _held(tables, tables.holds[event.hold], event.parts, event.deadline_at)


def settled(tables: Tables, event: e.Settled) -> None:
    hold = tables.holds.pop(event.hold)
    attempt = tables.attempts[hold.attempt]
    job = tables.job_of(attempt)
    _charge(tables, hold, event.charged, event.at)
    _held(tables, hold, (), hold.deadline_at)
    attempt.holds -= 1
    job.holds -= 1
    tables.over += [line for line in (attempt, job) if line.holds == 0 and line.phase in ("over", *ENDED)]
    tables.changes.drop(hold)


def _held(tables: Tables, hold: t.Hold, parts: Iterable[Part], deadline_at: Instant) -> None:
    """From now on these amounts are held, in place of what was."""
    before: list[tuple[str, int]] = [(period, amount) for period, amount in _list(hold.parts)]
    now = [(part.period, part.amount) for part in parts]
    attempt = tables.attempts[hold.attempt]
    job = tables.job_of(attempt)
    more = sum(amount for _, amount in now) - sum(amount for _, amount in before)
    attempt.held += more
    job.held += more
    for sign, amounts in ((-1, before), (1, now)):
        for scope, period, amount in _accounts(hold, amounts):
            tables.changes.add(t.Spend(scope, period, sign * amount, 0))
    hold.parts, hold.deadline_at = _json(now), deadline_at
    if attempt.phase != "over":
        attempt.deadline_at = deadline_at
    for line in (hold, attempt, job):
        tables.changes.put(line)


def _charge(tables: Tables, hold: t.Hold, charged: tuple[Part, ...], at: Instant) -> None:
    attempt = tables.attempts[hold.attempt]
    total = sum(part.amount for part in charged)
    attempt.spent += total
    tables.job_of(attempt).spent += total
    for scope, period, amount in _accounts(hold, [(part.period, part.amount) for part in charged]):
        tables.changes.add(t.Spend(scope, period, 0, amount))
    tables.changes.add(t.Used(at // DAY, attempt.offer, attempt.team, 0, total))


def _accounts(hold: t.Hold, amounts: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str, int]]:
    """A job's own money is on the job."""
    scopes = [scope for scope in _list(hold.scopes) if not scope.startswith("job:")]
    return [(scope, period, amount) for period, amount in amounts for scope in scopes]


def _json(found: object) -> str:
    return msgspec.json.encode(found).decode()


def _list(text: str) -> list[Any]:
    found: list[Any] = msgspec.json.decode(text) if text != "[]" else []
    return found


FOLLOW: Final[dict[type, Callable[[Tables, Any], None]]] = {
    e.AttemptCheckpointed: attempt_checkpointed,
    e.AttemptEnded: attempt_ended,
    e.AttemptLost: attempt_lost,
    e.AttemptRefused: attempt_refused,
    e.AttemptStarted: attempt_started,
    e.AttemptStopped: attempt_stopped,
    e.CancelRequested: cancel_requested,
    e.CapSet: cap_set,
    e.JobRefused: job_refused,
    e.JobSubmitted: job_submitted,
    e.LeaseRenewed: lease_renewed,
    e.LeaseShortened: lease_shortened,
    e.NodeGone: node_lost,
    e.NodeLost: node_lost,
    e.NodeReady: node_ready,
    e.NodeRefused: node_refused,
    e.OfferClosed: offer_closed,
    e.OfferOpened: offer_opened,
    e.PeriodOpened: period_opened,
    e.PolicySet: policy_set,
    e.ReleasePromised: release_promised,
    e.ReplicaLanded: replica_landed,
    e.Settled: settled,
    e.SiteJoined: site_joined,
    e.StartPromised: start_promised,
    e.ReservePromised: reserve_promised,
    e.StopPromised: stop_promised,
    e.WaitPromised: wait_promised,
}
