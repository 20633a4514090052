"""Shadow mode: what Penstock would have done with the Jobs of a cluster that it only watches. `penstock shadow` calls
it.

`Followed` records Jobs and the real start of their pods; nothing is written to the cluster. `lives` estimates the run
time of Jobs that have not ended, learned from those that have. `compare` feeds all of them to the engine, with the
sites file's sites as the world, and compares waits and costs with what happened.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from penstock.core.engine import Engine, Step
from penstock.core.fold.runtimes import LifeTable
from penstock.core.ids import job_of
from penstock.core.model import events as e
from penstock.core.model.types import GpuChoice, NodeShape, Part, Policy, Site
from penstock.core.units import DAY, HOUR, SECOND, Instant, Millis, Money
from penstock.core.values import value
from penstock.data.plain_files import replace_with
from penstock.kube import annotations
from penstock.kube.gpu_requests import WHOLE
from penstock.kube.job_needs import job_needs, known_gpus
from penstock.sim.scenario import Scenario, run
from penstock.sim.traces.kube_jobs import end_of, row_of
from penstock.sim.traces.rows import NOT_A_JOB, Row, TraceRow, Unreadable
from penstock.sim.traces.trace import TraceJob

Json = dict[str, Any]
JOB_OF_POD: Final = "batch.kubernetes.io/controller-uid"
KEPT: Final = ("name", "generateName", "namespace", "uid", "labels", "creationTimestamp")


@value
class DaySummary:
    """Jobs submitted on one day. For live Jobs the remaining run time and its cost are estimates; waits count up to
    now.
    """

    day: str
    jobs: int
    running: int  # still running
    waiting: int
    gpu_hours: float
    waited_hours: float  # the real waits, summed
    would_wait_hours: float
    would_burst: int
    would_cost: Money
    stays_home: int  # jobs that no rule would let leave

    @property
    def saved_hours(self) -> float:
        return self.waited_hours - self.would_wait_hours


# --- what is seen -----------------------------------------------------------------------------------------------------


class Followed:
    """Jobs by uid, also those that the cluster has deleted since. Stored in a file, so that a restart continues."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.jobs: dict[str, Json] = {}
        self.node_gpus: list[int] = []  #: GPUs of each node now
        if path is not None and path.exists():
            self.jobs = {job["metadata"]["uid"]: job for job in json.loads(path.read_text("utf-8"))["items"]}

    def see_job(self, _before: Json | None, job: Json | None) -> None:
        """The informer's callback. A deleted Job keeps its last state; our execution Jobs are ignored."""
        if job is None or annotations.EXECUTION in (job["metadata"].get("labels") or {}):
            return
        began = self.jobs.get(job["metadata"]["uid"], {}).get("began", "")
        metadata = {key: job["metadata"][key] for key in KEPT if key in job["metadata"]}
        spec, status = job["spec"], job.get("status") or {}
        self.jobs[metadata["uid"]] = {
            "kind": "Job",
            "metadata": metadata,
            "spec": spec,
            "status": status,
            "began": began,
        }

    def see_pod(self, _before: Json | None, pod: Json | None) -> None:
        """Record when a Job's first container started. The Job's own start is only when its controller first saw it."""
        job = self.jobs.get(str(((pod or {}).get("metadata", {}).get("labels") or {}).get(JOB_OF_POD)))
        began = _began(pod or {})
        if job is not None and began and (not job["began"] or began < job["began"]):
            job["began"] = began

    def see_nodes(self, nodes: Iterable[Json]) -> None:
        counts = [(node.get("status") or {}).get("allocatable") or {} for node in nodes]
        self.node_gpus = [sum(int(count.get(kind, 0)) for kind in WHOLE) for count in counts]

    def save(self) -> None:
        if self.path is not None:
            replace_with(self.path, self.text())

    def text(self) -> str:
        """The format of `kubectl get jobs -o json`, with real starts; `penstock simulate` reads it, too."""
        return json.dumps({"kind": "List", "items": list(self.by_name().values())})

    def by_name(self) -> dict[str, Json]:
        """By `NAMESPACE/NAME`; a second Job of the same name gets a prefix of its uid."""
        named: dict[str, Json] = {}
        for uid, job in self.jobs.items():
            name = f"{job['metadata'].get('namespace', 'default')}/{job['metadata']['name']}"
            if name in named:
                name = f"{name}.{uid[:8]}"
                job = {**job, "metadata": {**job["metadata"], "name": name.partition("/")[2]}}
            named[name] = _with_real_start(job)
        return named


def _began(pod: Json) -> str:
    states = [container.get("state") or {} for container in (pod.get("status") or {}).get("containerStatuses") or ()]
    begun = [(state.get("running") or state.get("terminated") or {}).get("startedAt") or "" for state in states]
    return min((at for at in begun if at), default="")


def _with_real_start(job: Json) -> Json:
    return {**job, "status": {**job["status"], "startTime": job["began"]}} if job["began"] else job


# --- how long it takes ------------------------------------------------------------------------------------------------


@value
class ObservedJob:
    """A Job with its end, observed or estimated."""

    job: Json
    phase: Literal["ended", "running", "waiting"]
    created_at: Instant
    waited_ms: Millis  # the real wait, up to now


def lives(followed: Followed, now: Instant) -> dict[str, ObservedJob]:
    """All observed Jobs. The engine's own estimator supplies the rest of a run."""
    jobs, table = followed.by_name(), LifeTable()
    for job in jobs.values():
        if end_of(job)[0] and isinstance(row := _read(job), TraceRow):
            table.learn(row.spec, row.run_ms)
    return {name: _life(job, table, now) for name, job in jobs.items()}


def _life(job: Json, table: LifeTable, now: Instant) -> ObservedJob:
    created_at = _instant(job["metadata"]["creationTimestamp"])
    began = job["began"] or (job["status"].get("startTime") if job["status"].get("ready") else "")
    if end_of(job)[0]:
        began = began or job["status"].get("startTime")
        return ObservedJob(job, "ended", created_at, max(0, _instant(began) - created_at) if began else 0)
    began_at = min(_instant(began), now) if began else now
    row = _read(_ended(job, began_at, began_at + SECOND))
    left_ms = table.remaining(row.spec, now - began_at) if isinstance(row, TraceRow) else SECOND
    expected = _ended(job, began_at, now + max(left_ms, SECOND))
    return ObservedJob(expected, "running" if began else "waiting", created_at, max(0, began_at - created_at))


def _read(job: Json) -> Row:
    try:
        return row_of(job)
    except Unreadable:
        return NOT_A_JOB


def _ended(job: Json, began_at: Instant, ended_at: Instant) -> Json:
    status = {**job["status"], "startTime": _text(began_at), "completionTime": _text(ended_at)}
    return {**job, "status": status}


def _text(at: Instant) -> str:
    return f"{datetime.fromtimestamp(at // SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"


# --- what would have happened -----------------------------------------------------------------------------------------


def compare(
    followed: Followed, jobs: Mapping[str, "ObservedJob"], scenario: Scenario, policy: Policy, home: str
) -> list[DaySummary]:
    """`scenario`: the observed jobs from `lives`, at the sites of the sites file."""
    known = known_gpus(offer for site in scenario.sites for offer in site.offers)
    bound = [_at_home(job, jobs.get(job.id), home, known) for job in scenario.jobs]
    seen = _Seen()
    sites = tuple(_counted(site, followed.node_gpus) if site.id == home else site for site in scenario.sites)
    run(replace(scenario, jobs=tuple(bound), sites=sites), policy, seen.see)
    zero = min(jobs[job.id].created_at for job in bound if job.id in jobs)
    first = min(job.submit_at for job in bound)
    days: dict[str, list[TraceJob]] = {}
    for job in bound:
        days.setdefault(_day(job.submit_at - first + zero), []).append(job)
    return [_sum_up(day, of_day, jobs, seen) for day, of_day in sorted(days.items())]


def _counted(site: Site, node_gpus: list[int]) -> Site:
    """Where the sites file leaves the node count to the cluster, use the cluster's."""
    offers = [
        replace(offer, shapes=tuple(_with_count(shape, node_gpus) for shape in offer.shapes)) for offer in site.offers
    ]
    return replace(site, offers=tuple(offers))


def _with_count(shape: NodeShape, node_gpus: list[int]) -> NodeShape:
    return shape if shape.count is not None else replace(shape, count=sum(gpus == shape.gpus for gpus in node_gpus))


def _at_home(job: TraceJob, known: "ObservedJob | None", home: str, gpus: list[str]) -> TraceJob:
    """The job with its references and GPU models, so that it leaves only for offers that have them."""
    if known is None:
        return job
    asked = job_needs(known.job, gpus)
    models = tuple(GpuChoice(model) for model in asked.models)
    return replace(job, spec=replace(job.spec, home=home, needs=asked.needs, gpu_models=models))


class _Seen:
    """When each job first ran, whether it burst, and the cost."""

    def __init__(self) -> None:
        self.began: dict[str, Instant] = {}
        self.submitted: dict[str, Instant] = {}
        self.burst: dict[str, None] = {}
        self.kept_home: dict[str, None] = {}
        self.cost: dict[str, Money] = {}
        self.payers: dict[str, str] = {}  #: of nodes that were warm: the job that took one
        self.note: Mapping[type, Callable[[Any], None]] = {
            e.JobSubmitted: lambda event: self.submitted.__setitem__(event.job, event.at),
            e.AttemptStarted: self._started,
            e.StartPromised: self._promised,
            e.WaitPromised: self._waits,
            e.LeaseRenewed: self._charged,
            e.PayerChanged: self._changes_payer,
            e.Settled: self._charged,
        }

    def see(self, step: Step, _: Engine) -> None:
        for event in (*step.inputs, *step.outputs):
            if type(event) in self.note:
                self.note[type(event)](event)

    def _started(self, event: e.AttemptStarted) -> None:
        self.began.setdefault(job_of(event.attempt), event.at)

    def _promised(self, event: e.StartPromised) -> None:
        if event.rented:
            self.burst[event.job] = None

    def _waits(self, event: e.WaitPromised) -> None:
        if event.because.kind == "OnlyOwned":
            self.kept_home[event.job] = None

    def _charged(self, event: e.LeaseRenewed | e.Settled) -> None:
        self._charge(event.hold, event.charged)

    def _changes_payer(self, event: e.PayerChanged) -> None:
        self._charge(event.node, event.charged)
        self.payers[event.node] = event.job

    def _charge(self, hold: str, charged: tuple[Part, ...]) -> None:
        """Of a warm node that no job has taken: nobody's."""
        job = self.payers.get(hold, job_of(hold))
        self.cost[job] = self.cost.get(job, 0) + sum(part.amount for part in charged)

    def waited_ms(self, job: str) -> Millis:
        return self.began.get(job, self.submitted.get(job, 0)) - self.submitted.get(job, 0)


def _sum_up(day: str, of_day: list[TraceJob], known: Mapping[str, "ObservedJob"], seen: _Seen) -> DaySummary:
    ids = [job.id for job in of_day]
    phases = [known[job_id].phase for job_id in ids if job_id in known]
    return DaySummary(
        day=day,
        jobs=len(of_day),
        running=phases.count("running"),
        waiting=phases.count("waiting"),
        gpu_hours=sum(job.spec.gpus * job.run_ms for job in of_day) / HOUR,
        waited_hours=sum(known[job_id].waited_ms for job_id in ids if job_id in known) / HOUR,
        would_wait_hours=sum(_would_wait(seen.waited_ms(job_id), known.get(job_id)) for job_id in ids) / HOUR,
        would_burst=sum(job_id in seen.burst for job_id in ids),
        would_cost=sum(seen.cost.get(job_id, 0) for job_id in ids),
        stays_home=sum(job_id in seen.kept_home for job_id in ids),
    )


def _would_wait(waited_ms: Millis, known: "ObservedJob | None") -> Millis:
    """Up to now for jobs that really still wait."""
    return min(waited_ms, known.waited_ms) if known is not None and known.phase == "waiting" else waited_ms


def _instant(text: str) -> Instant:
    return int(datetime.fromisoformat(text).timestamp() * SECOND)


def _day(at: Instant) -> str:
    return datetime.fromtimestamp(at // DAY * DAY // SECOND, UTC).date().isoformat()
