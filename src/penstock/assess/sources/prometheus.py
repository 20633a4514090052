"""Reads a month from Prometheus: which pods had GPUs (kube-state-metrics), and how much they used them (NVIDIA's DCGM
exporter). `penstock assess --prometheus` calls it; `promql` does the asking.

Pods of one Job or other controller are one job; a pod without one is one by itself. A pod runs from its start time to
its completion time; one without a completion ends with its last sample. Both are as exact as the server's scrape
interval.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from penstock.assess.history import IDLE_PERMILLE, Evidence, JobRecord, MeasuredHour, OwnedGpus, SourceReading
from penstock.assess.sources.promql import Prometheus, Series
from penstock.assess.sources.reading import coverage_of, numbered, recurring_key
from penstock.core.units import HOUR, MINUTE, PERMILLE, SECOND, Instant, Millis
from penstock.kube.gpu_models import WHOLE
from penstock.sim.traces.rows import EPOCH_LIKE, MOST_GPUS, UNPRINTABLE

Pod: TypeAlias = tuple[str, str]  #: namespace and name

STEP_MS: Final[Millis] = 5 * MINUTE
PAUSE_MS: Final[Millis] = 15 * MINUTE  #: pods of one name further apart than this are two runs
GPUS: Final = f'resource=~"{"|".join(re.sub("[./]", "_", name) for name in WHOLE)}"'
#: The exporter's own pod is in `pod` where the server renames what it exports.
OF_POD: Final = "namespace, pod, exported_namespace, exported_pod"
JOB_LABELS: Final = ("label_batch_kubernetes_io_job_name", "label_job_name")
TEAM_LABELS: Final = ("label_penstock_dev_team", "label_team")
UNOWNED: Final = (None, "", "<none>", "Node")  #: kinds of an owner that is none; a node owns its static pods
REQUESTS: Final = "kube_pod_container_resource_requests"
UTILISATION: Final = "DCGM_FI_DEV_GPU_UTIL"

# Each names the metric for people, and is asked once an hour for the hour before: its values do not change.
_WITH_GPUS: Final = f"and on ({OF_POD}) last_over_time({REQUESTS}{{{GPUS}}}[1h])"
ONCE_AN_HOUR: Final[Mapping[str, str]] = {
    name: f"max by ({OF_POD}{more}) (last_over_time({name}[1h]) {_WITH_GPUS})"
    for name, more in {
        "kube_pod_start_time": "",
        "kube_pod_completion_time": "",
        "kube_pod_created": "",
        "kube_pod_labels": ", " + ", ".join((*JOB_LABELS, *TEAM_LABELS)),
        "kube_pod_owner": ", owner_kind, owner_name",
    }.items()
}
MEMORY: Final = (
    f"avg by ({OF_POD}) (avg_over_time(DCGM_FI_DEV_FB_USED[1h])"
    " / (avg_over_time(DCGM_FI_DEV_FB_USED[1h]) + avg_over_time(DCGM_FI_DEV_FB_FREE[1h])))"
)
QUERIES: Final = 4 + len(ONCE_AN_HOUR) + 1  #: each over the whole span, for a progress bar


def read_prometheus(
    server: Prometheus, from_at: Instant, to_at: Instant, advance: Callable[[Millis], None] = lambda _: None
) -> SourceReading:
    """From one full hour to another."""
    source = f"Prometheus {server.host}"
    month = _Month(server, from_at // HOUR * HOUR, -(-to_at // HOUR) * HOUR, min(to_at, -(-to_at // HOUR) * HOUR))
    month.ask(advance)
    records = month.records(source)
    missing = [*server.missing, *month.lacks(), *(f"Some answers are partial: {words}." for words in server.warnings)]
    seen = bool(month.pods)
    coverage = coverage_of(
        source,
        records,
        from_at=month.first_at // HOUR * HOUR if seen else None,
        to_at=month.last_at if seen else None,
        missing=missing,
    )
    by = "kube_node_status_allocatable" if month.owned else ""
    return SourceReading(coverage, tuple(records), tuple(month.owned), by, month.measured())


class _Life:
    """One pod, as its series show it."""

    __slots__ = ("completed_at", "created_at", "first_at", "gpus", "job", "last_at", "started_at", "team")

    def __init__(self) -> None:
        self.first_at: Instant = 1 << 62
        self.last_at: Instant = 0
        self.gpus = 0
        self.created_at: Instant | None = None
        self.started_at: Instant | None = None
        self.completed_at: Instant | None = None
        self.job = self.team = ""


class _Month:
    def __init__(self, server: Prometheus, from_at: Instant, to_at: Instant, now: Instant) -> None:
        self.server, self.from_at, self.to_at, self.now = server, from_at, to_at, now
        self.pods: dict[Pod, _Life] = {}
        self.seen: dict[str, int] = {}  #: series seen by metric
        self.used: dict[tuple[Pod, Instant], list[float]] = {}  #: pod and hour -> GPU-ms measured, used
        self.memory: dict[Pod, list[float]] = {}
        self.owned: list[OwnedGpus] = []
        self.pods_of: dict[str, list[Pod]] = {}  #: by the id of the record
        self.first_at: Instant = 1 << 62
        self.last_at: Instant = 0

    # --- questions ---------------------------------------------------------------------------------------------------

    def ask(self, advance: Callable[[Millis], None]) -> None:
        self._each(REQUESTS, f"sum by ({OF_POD}) ({REQUESTS}{{{GPUS}}})", STEP_MS, self._requested, advance)
        if not self.pods and self.server.missing:
            return  # it does not answer: the other questions would fare no better
        for name, query in ONCE_AN_HOUR.items():
            self._each(name, query, HOUR, getattr(self, f"_{name}"), advance)
        self._each(
            "kube_node_status_allocatable", f"sum(kube_node_status_allocatable{{{GPUS}}})", HOUR, self._owned, advance
        )
        if not self.pods:
            return
        self._each(UTILISATION, f"count by ({OF_POD}) ({UTILISATION})", STEP_MS, self._counted, advance)
        self._each(UTILISATION, f"sum by ({OF_POD}) ({UTILISATION})", STEP_MS, self._utilised, advance)
        self._each("DCGM_FI_DEV_FB_USED", MEMORY, HOUR, self._remembered, advance)

    def _each(
        self, name: str, query: str, step_ms: Millis, note: Callable[[Series], None], advance: Callable[[Millis], None]
    ) -> None:
        # A question about the hour before is asked at its end.
        late = HOUR if step_ms == HOUR else 0
        for series in self.server.ranges(name, query, self.from_at + late, self.to_at + late, step_ms, advance):
            self.seen[name] = self.seen.get(name, 0) + 1
            note(series)

    def _requested(self, series: Series) -> None:
        pod = _pod_of(series.labels)
        points = [(when, number) for when, number in series.points if 1 <= number <= MOST_GPUS]
        if pod is None or not points:
            return
        at = [when for when, _ in points]
        life = self.pods.setdefault(pod, _Life())
        life.first_at, life.last_at = min(life.first_at, at[0]), max(life.last_at, at[-1])
        life.gpus = max(life.gpus, round(max(number for _, number in points)))
        self.first_at, self.last_at = min(self.first_at, at[0]), max(self.last_at, at[-1])

    def _kube_pod_start_time(self, series: Series) -> None:
        if life := self._known(series):
            life.started_at = self._instant(series)

    def _kube_pod_completion_time(self, series: Series) -> None:
        if life := self._known(series):
            life.completed_at = self._instant(series)

    def _kube_pod_created(self, series: Series) -> None:
        if life := self._known(series):
            life.created_at = self._instant(series)

    def _kube_pod_labels(self, series: Series) -> None:
        if life := self._known(series):
            life.job = next((series.labels[key] for key in JOB_LABELS if series.labels.get(key)), life.job)
            life.team = next((series.labels[key] for key in TEAM_LABELS if series.labels.get(key)), life.team)

    def _kube_pod_owner(self, series: Series) -> None:
        life = self._known(series)
        if life and not life.job and series.labels.get("owner_kind") not in UNOWNED:
            life.job = series.labels.get("owner_name", "")

    def _owned(self, series: Series) -> None:
        for at, number in series.points:
            if 0 <= number <= MOST_GPUS and (not self.owned or self.owned[-1].gpus != round(number)):
                self.owned.append(OwnedGpus(at, round(number)))

    def _counted(self, series: Series) -> None:
        self._sample(series, 0, 1.0)

    def _utilised(self, series: Series) -> None:
        self._sample(series, 1, 0.01)

    def _remembered(self, series: Series) -> None:
        pod = _pod_of(series.labels)
        if pod in self.pods:
            self.memory.setdefault(pod, []).extend(number for _, number in series.points if 0 <= number <= 1)

    def _sample(self, series: Series, column: int, scale: float) -> None:
        pod = _pod_of(series.labels)
        if pod is None or pod not in self.pods:
            return
        life = self.pods[pod]
        begin, end = life.started_at or 0, life.completed_at or 1 << 62
        for at, number in series.points:
            if not begin <= at < end or number < 0:
                continue  # a server shows the last sample for five minutes, also after the pod has ended
            self.used.setdefault((pod, at // HOUR * HOUR), [0.0, 0.0])[column] += number * scale * STEP_MS

    def _instant(self, series: Series) -> Instant | None:
        """None for what no pod of this month can have: that of another clock is not known."""
        at = round(series.points[-1][1] * SECOND)
        return at if EPOCH_LIKE <= at <= self.to_at + HOUR else None

    def _known(self, series: Series) -> _Life | None:
        pod = _pod_of(series.labels)
        return None if pod is None else self.pods.get(pod)

    # --- answers -----------------------------------------------------------------------------------------------------

    def records(self, source: str) -> list[JobRecord]:
        self._measure()
        runs = [(job, pods) for job, all_pods in sorted(self._jobs().items()) for pods in _runs(all_pods, self.pods)]
        records = numbered(self._record(job, pods, source) for job, pods in runs)
        self.pods_of = {record.id: pods for record, (_, pods) in zip(records, runs, strict=True)}
        return records

    def _jobs(self) -> dict[str, list[Pod]]:
        jobs: dict[str, list[Pod]] = defaultdict(list)
        for pod, life in self.pods.items():
            jobs[f"{pod[0]}/{life.job or pod[1]}"].append(pod)
        return jobs

    def _record(self, job: str, pods: list[Pod], source: str) -> JobRecord:
        lives = [self.pods[pod] for pod in pods]
        namespace, name = job.split("/", 1)
        team = next((life.team for life in lives if life.team), namespace)
        started_at, started_by, cut_start = self._started(lives)
        ended_at, ended_by, goes_on = self._ended(lives, started_at)
        created = [life.created_at for life in lives if life.created_at is not None]
        measured, used, idle = self._use_of(pods)
        memory = [share for pod in pods for share in self.memory.get(pod, ())]
        return JobRecord(
            id=job,
            source=source,
            gpus=_at_once(lives),
            name=name,
            team=team,
            key=recurring_key(team, name),
            submitted_at=min(created, default=None),
            started_at=started_at,
            ended_at=ended_at,
            submitted_by="pod" if created else "",
            started_by=started_by,
            ended_by=ended_by,
            outcome="queued" if started_at is None else "running" if goes_on else "unknown",
            cut=("both" if goes_on else "start") if cut_start else "end" if goes_on else "",
            used_gpu_ms=used if measured else None,
            measured_gpu_ms=measured,
            idle_gpu_ms=idle,
            memory_permille=round(PERMILLE * sum(memory) / len(memory)) if memory else None,
        )

    def _started(self, lives: list[_Life]) -> tuple[Instant | None, Evidence, bool]:
        if "kube_pod_start_time" in self.seen:
            known = [life.started_at for life in lives if life.started_at is not None]
            return min(known, default=None), "pod" if known else "", False
        first = min(life.first_at for life in lives)
        return first, "samples", first < self.first_at + STEP_MS

    def _ended(self, lives: list[_Life], started_at: Instant | None) -> tuple[Instant | None, Evidence, bool]:
        if started_at is None:
            return None, "", False
        goes_on = any(life.completed_at is None and life.last_at > self.last_at - 2 * STEP_MS for life in lives)
        if goes_on:
            return self.now, "samples", True
        if all(life.completed_at is not None for life in lives):
            return max(life.completed_at or 0 for life in lives), "pod", False
        return max(life.completed_at or life.last_at for life in lives), "samples", False

    def _measure(self) -> None:
        """Use is measured only while a pod has its GPUs, so no hour has more of it than the pod's GPUs."""
        for (pod, _), measured in self.used.items():
            most = self.pods[pod].gpus * HOUR
            measured[0], measured[1] = min(measured[0], most), min(measured[1], measured[0], most)

    def _use_of(self, pods: Iterable[Pod]) -> tuple[Millis, Millis, Millis]:
        """GPU-ms measured, used and idle; an hour is judged for all pods of the job together."""
        hours = self._by_hour(pods)
        measured, used = (sum(sums[k] for sums in hours.values()) for k in (0, 1))
        idle = sum(sums[0] for sums in hours.values() if sums[1] * PERMILLE < sums[0] * IDLE_PERMILLE)
        return round(measured), round(used), round(idle)

    def _by_hour(self, pods: Iterable[Pod]) -> dict[Instant, list[float]]:
        hours: dict[Instant, list[float]] = {}
        for pod in pods:
            for hour in self._hours_of(pod):
                sums = hours.setdefault(hour, [0.0, 0.0])
                sums[0] += self.used[pod, hour][0]
                sums[1] += self.used[pod, hour][1]
        return hours

    def _hours_of(self, pod: Pod) -> Iterable[Instant]:
        life = self.pods[pod]
        first = min(life.first_at, life.started_at or life.first_at) // HOUR * HOUR
        return (at for at in range(max(first, self.from_at), life.last_at + HOUR, HOUR) if (pod, at) in self.used)

    def measured(self) -> tuple[MeasuredHour, ...]:
        return tuple(
            MeasuredHour(job, at, round(measured), round(used))
            for job, pods in self.pods_of.items()
            for at, (measured, used) in sorted(self._by_hour(pods).items())
        )

    def lacks(self) -> Iterable[str]:
        missing = " ".join(self.server.missing)
        if not self.pods:
            if not missing:
                yield f"It has no series {REQUESTS} with GPUs, so no job is known from it."
            return
        yield "Pods that lived shorter than the scrape interval may be missing."
        for name, then in LACKING.items():
            if name not in self.seen and name not in missing:
                yield f"It has no {name} of these pods, so {then}."
        if UTILISATION in self.seen and not self.used:
            yield f"Its {UTILISATION} names no pod of a job, so it is not known who used what."


LACKING: Final = {
    "kube_pod_start_time": "starts are those of the first sample, and no wait is known",
    "kube_pod_completion_time": "ends are those of the last sample",
    "kube_pod_created": "submissions and waits are not known",
    "kube_node_status_allocatable": "it does not say how many GPUs are owned",
    UTILISATION: "how GPUs were used is not known",
}


def _pod_of(labels: Mapping[str, str]) -> Pod | None:
    name = labels.get("exported_pod") or labels.get("pod", "")
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    return (namespace, name) if name and not UNPRINTABLE.search(namespace + name) else None


def _begin(life: _Life) -> Instant:
    return life.started_at if life.started_at is not None else life.first_at


def _end(life: _Life) -> Instant:
    return max(life.completed_at or life.last_at, _begin(life))


def _runs(pods: list[Pod], lives: Mapping[Pod, _Life]) -> Iterable[list[Pod]]:
    """Pods of one name: those that overlap or follow each other closely are one run."""
    run: list[Pod] = []
    until = 0
    for pod in sorted(pods, key=lambda pod: (_begin(lives[pod]), pod)):
        if run and min(_begin(lives[pod]), lives[pod].created_at or 1 << 62) > until + PAUSE_MS:
            yield run
            run = []
        run.append(pod)
        until = max(until, _end(lives[pod]))
    yield run


def _at_once(lives: list[_Life]) -> int:
    """The most GPUs that its pods had at one time."""
    turns: list[tuple[Instant, int]] = []
    for life in lives:
        turns += [(_begin(life), life.gpus), (max(_end(life), _begin(life) + 1), -life.gpus)]
    most = held = 0
    for _, change in sorted(turns):
        held += change
        most = max(most, held)
    return most
