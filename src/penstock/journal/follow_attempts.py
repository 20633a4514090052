"""Attempts in the tables: promised, begun, stopped, lost, over, and what becomes of their jobs. `project` calls these.

The lives of attempts follow `core.fold`, edge by edge; facts that come twice or too late change nothing.
"""

from penstock.core import events as e
from penstock.core.units import DAY, Instant, Millis
from penstock.journal import follow_money as money
from penstock.journal import lines as t
from penstock.journal.follow_jobs import end
from penstock.journal.tables import Tables, as_json, as_list


def start_promised(tables: Tables, event: e.StartPromised) -> None:
    job, because = tables.jobs[event.job], as_json(event.because)
    offer = tables.offers[event.offer]
    attempt = t.Attempt(
        event.attempt, tables.count("attempts"), job.id, job.team, offer.id, offer.site, event.width, event.at,
        event.resume_ms, event.resume_ms, because,
    )  # fmt: skip
    job.attempts += 1
    job.because, job.until_at, job.short_of = because, None, ""
    if job.phase in ("waiting", "paused"):
        tables.enter(job, "placed")
        job.attempt, job.offer = attempt.id, offer.id
    else:
        job.next = attempt.id
        job.moves += 1
    tables.attempts[attempt.id] = attempt
    tables.changes.put(job)
    _note_needs(tables, event, attempt)
    begin_if_ready(tables, attempt)


def _note_needs(tables: Tables, event: e.StartPromised, attempt: t.Attempt) -> None:
    needs = [f"node:{ask.node}" for ask in event.nodes]
    if event.joins and tables.nodes[event.joins].phase == "asked":
        needs.append(f"node:{event.joins}")
    needs += [f"over:{other}" for other in event.after if tables.live_attempt(other)]
    needs += [f"copy:{attempt.site}:{data_set}" for data_set in event.copies]
    attempt.needs = as_json(needs)
    for need in needs:
        tables.awaited.setdefault(need, {})[attempt.id] = None
    left = event.width
    for ask in event.nodes:
        tables.sit(t.Node(ask.node, attempt.id, attempt.offer, ask.gpus, "asked", event.at), attempt.id)
        money.hold(tables, ask.hold, attempt, min(left, ask.gpus))
        left -= ask.gpus
    if event.joins:
        tables.sit(tables.nodes[event.joins], attempt.id)
        money.join(tables, event.joins, attempt, event.at)
    if event.hold is not None:
        money.hold(tables, event.hold, attempt, event.width)


def begin_if_ready(tables: Tables, attempt: t.Attempt) -> None:
    tables.changes.put(attempt)
    if attempt.phase != "promised" or attempt.needs != "[]":
        return
    attempt.phase = "starting"
    for node in tables.rented.get(attempt.id, {}).values():
        node.phase = "busy"
        tables.changes.put(node)


def arrived(tables: Tables, need: str) -> None:
    """What some attempts waited for is there."""
    for attempt_id in tables.awaited.pop(need, ()):
        attempt = tables.live_attempt(attempt_id)
        if attempt is not None:
            attempt.needs = as_json([other for other in as_list(attempt.needs) if other != need])
            begin_if_ready(tables, attempt)


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
    tables.found_room(attempt.offer)


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
    end(tables, job, event.outcome, event.at)


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
    lost(tables, event.attempt, event.at, event.kept_ms, "lost")


def attempt_refused(tables: Tables, event: e.AttemptRefused) -> None:
    attempt = tables.live_attempt(event.attempt)
    if attempt is not None:
        lost(tables, event.attempt, event.at, attempt.resume_ms, "refused")


def stop_promised(tables: Tables, event: e.StopPromised) -> None:
    attempt = tables.attempts[event.attempt]
    job = tables.job_of(attempt)
    tables.enter(job, "leaving")
    job.because, attempt.stop_then = as_json(event.because), event.then
    tables.changes.put(job)
    if attempt.phase == "promised":
        _over(tables, attempt, "dropped", event.at)
        _go_on(tables, job, "paused" if event.then == "pause" else "waiting", event.at)
        return
    attempt.phase = "stopping"
    tables.changes.put(attempt)


def lost(tables: Tables, attempt_id: str, at: Instant, kept_ms: Millis, outcome: str) -> None:
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
    for node in tables.rented.pop(attempt.id, {}).values():
        tables.rise(node, attempt.id)
        money.leave(tables, node.id, attempt, at)
    for need in as_list(attempt.needs):
        tables.awaited.get(need, {}).pop(attempt.id, None)
    attempt.needs = "[]"
    arrived(tables, f"over:{attempt.id}")


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
        end(tables, job, "cancelled", at)
    elif job.next:
        following = tables.attempts[job.next]
        tables.enter(job, "placed")
        job.attempt, job.next, job.offer = following.id, "", following.offer
        following.resume_ms = following.kept_ms = job.kept_ms
        begin_if_ready(tables, following)
    else:
        tables.enter(job, otherwise)
        job.attempt, job.until_at = "", None
