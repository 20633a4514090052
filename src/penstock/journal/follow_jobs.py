"""What people ask for, in the tables: jobs come, wait, are refused or cancelled. `project` calls these, an event each.

The lives of jobs follow `core.fold`, edge by edge.
"""

from penstock.core import events as e
from penstock.core.model import JobSpec
from penstock.core.units import NEVER, Instant
from penstock.journal import lines as t
from penstock.journal.tables import Tables, as_json


def job_submitted(tables: Tables, event: e.JobSubmitted) -> None:
    jobs = members(event.job, event.spec.count)
    if event.number <= tables.numbered:
        return
    tables.note("numbered", str(event.number))
    if any(tables.live_job(job) for job in (event.job, *jobs)):
        return
    for job in jobs:
        _admit(tables, job, event.spec, event.at)


def _admit(tables: Tables, job: str, spec: JobSpec, at: Instant) -> None:
    words = f"{job} {spec.name} {spec.user} {spec.team}".lower()
    line = t.Job(
        _text(job), tables.count("jobs"), _text(spec.team), _text(spec.name), _text(spec.user), _text(spec.project),
        spec.job_class, spec.priority, spec.gpus, spec.work, at, _text(words),
        origin_site=_text(spec.origin.site) if spec.origin else "",
        origin_uid=_text(spec.origin.uid) if spec.origin else "",
    )  # fmt: skip
    tables.jobs[job] = line
    tables.counted(line, 1)
    tables.changes.put(line)


def _text(found: str) -> str:
    """PostgreSQL cannot hold the one character that people never mean."""
    return found.replace("\0", "\ufffd")


def wait_promised(tables: Tables, event: e.WaitPromised) -> None:
    job = tables.jobs[event.job]
    job.until_at = None if event.until_at == NEVER else event.until_at
    job.short_of, job.because = event.scope, as_json(event.because)
    tables.changes.put(job)


def reserve_promised(tables: Tables, event: e.ReservePromised) -> None:
    """It waits for its nodes now, and for no instant."""
    job = tables.jobs[event.job]
    job.until_at, job.because = None, as_json(event.because)
    tables.changes.put(job)


def job_refused(tables: Tables, event: e.JobRefused) -> None:
    job = tables.jobs[event.job]
    job.because = as_json(event.because)
    end(tables, job, "refused", event.at)


def cancel_requested(tables: Tables, event: e.CancelRequested) -> None:
    job = tables.live_job(event.job)
    if job is None or job.cancelled:
        return
    job.cancelled = 1
    tables.changes.put(job)
    if job.phase in ("waiting", "paused"):
        end(tables, job, "cancelled", event.at)


def end(tables: Tables, job: t.Job, phase: str, at: Instant) -> None:
    tables.enter(job, phase)
    job.ended_at, job.attempt, job.until_at, job.short_of = at, "", None, ""
    tables.changes.put(job)
    tables.over.append(job)


def members(job: str, count: int) -> tuple[str, ...]:
    return (job,) if count == 1 else tuple(f"{job}/{k}" for k in range(count))
