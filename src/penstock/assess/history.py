"""One observed month as values: what `penstock assess` knows of it, and how well. Readers make a `SourceReading` each,
`join` makes one `MonthHistory` of them, and every part of the report is computed from that.

Instants are milliseconds since 1970 in UTC, or since the file's own zero if the one source has no calendar
(`MonthHistory.calendar`). GPU time is in GPU-milliseconds: 8 GPUs for an hour are 8 * HOUR.

What is not known is None or empty, and never a guess. A run that goes on beyond what a source shows is `cut`: its
`started_at` or `ended_at` is then a bound. Each time says which kind of evidence it comes from, the best there was.
"""

from typing import Any, Final, Literal, TypeAlias

from penstock.core.units import Instant, Millis
from penstock.core.values import value

#: Where a time comes from, the best first. `join` keeps the better one.
#: `containers`: the pods' containers; `kueue`: a Workload's conditions; `pod`: Prometheus, by kube-state-metrics;
#: `samples`: first or last sample of a series; `job`: the Job's own status, whose start is not that of its pods.
#: `submission`: the run time is known and the start is not, so that the run is counted from its submission.
Evidence: TypeAlias = Literal[
    "journal", "containers", "sacct", "kueue", "pod", "csv", "samples", "job", "submission", ""
]
EVIDENCE: Final[tuple[Evidence, ...]] = (
    "journal", "containers", "sacct", "kueue", "pod", "csv", "samples", "job", "submission", "",
)  # fmt: skip
#: A start known only by these is no end of a wait.
VAGUE_START: Final[frozenset[Evidence]] = frozenset({"samples", "job", "submission", ""})
Outcome: TypeAlias = Literal["succeeded", "failed", "cancelled", "running", "queued", "unknown"]
#: Which end of a run lies outside what was seen.
Cut: TypeAlias = Literal["", "start", "end", "both"]


@value
class JobRecord:
    """One job that asked for GPUs. Made by keyword."""

    id: str  # `NAMESPACE/NAME`, or the source's own id; a second run of the same id ends in `#2`
    source: str  # what it was read from, like "sacct march.txt"; several joined by " + "
    gpus: int  # over all pods or tasks that run at once
    name: str = ""
    team: str = ""  # empty: unknown
    user: str = ""
    gpu_model: str = ""
    key: str = ""  # equal for runs of one script, template or CronJob of one team; empty: not recurring as far as known
    submitted_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    submitted_by: Evidence = ""
    started_by: Evidence = ""
    ended_by: Evidence = ""
    outcome: Outcome = "unknown"
    rented: bool = False  # it ran on rented GPUs, beside those that are owned
    uid: str = ""  # of the Kubernetes Job, where there is one
    cut: Cut = ""
    used_gpu_ms: Millis | None = None  # GPU time at full use; None: nobody measured it
    measured_gpu_ms: Millis = 0  # of its allocated GPU time, what `used_gpu_ms` was measured over
    idle_gpu_ms: Millis = 0  # of the measured time, what lies in hours with under `IDLE_PERMILLE` of use
    memory_permille: int | None = None  # of its GPUs' memory, the mean share in use
    checkpoints: bool | None = None  # were any seen; None: nothing that would show them was read
    volumes: tuple[str, ...] | None = None  # claims it mounts, by name; None: not read
    data: tuple[str, ...] | None = None  # data sets it names; None: not read
    priority: str | None = None  # its priority class, Slurm's QOS or a number; empty: the usual one; None: not read

    @property
    def run_ms(self) -> Millis | None:
        """How long it ran; if `cut`, the least it can have been. None: it never started, or nobody saw it."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0, self.ended_at - self.started_at)

    @property
    def counts_from_submission(self) -> bool:
        """Its run time is known, and neither its start nor its end."""
        return self.started_by == self.ended_by == "submission"

    @property
    def wait_ms(self) -> Millis | None:
        """From submission to start, where both are known well enough. None otherwise; also while it is queued."""
        if self.submitted_at is None or self.started_at is None:
            return None
        if self.cut in ("start", "both") or self.started_by in VAGUE_START:
            return None
        return max(0, self.started_at - self.submitted_at)


IDLE_PERMILLE: Final = 50  #: GPUs used less than this in an hour are idle in it


@value
class OwnedGpus:
    """From this instant on so many GPUs of this model are owned, until the next row of the model."""

    at: Instant
    gpus: int
    model: str = ""


@value
class HourOfUse:
    """GPU time of one team in one hour."""

    at: Instant  # the hour's beginning
    team: str
    allocated_gpu_ms: Millis
    measured_gpu_ms: Millis = 0  # of that, where use was measured
    used_gpu_ms: Millis = 0  # of the measured


@value
class MeasuredHour:
    """What a source measured of one job's GPUs in one hour."""

    job: str  # its id in this source
    at: Instant
    measured_gpu_ms: Millis
    used_gpu_ms: Millis


@value
class Coverage:
    """What one source showed, and what it did not. Made by keyword."""

    source: str
    from_at: Instant | None  # None: it showed nothing
    to_at: Instant | None
    jobs: int = 0
    cut: int = 0  # jobs whose run goes on beyond what it shows
    unknown_starts: int = 0  # jobs that ran and whose wait it cannot tell
    left_out: tuple[tuple[str, int], ...] = ()  # rows that are no job with GPUs, by reason
    missing: tuple[str, ...] = ()  # whole sentences


@value
class Disagreement:
    """Two sources say different things of the same jobs. `kept` won, by its evidence."""

    field: str  # started, ended, gpus, owned GPUs
    kept: str
    other: str
    count: int
    example: str  # one job's id, the widest apart
    worst: int  # how far apart they are: milliseconds, or GPUs


@value
class SourceReading:
    """What one reader returns."""

    coverage: Coverage
    jobs: tuple[JobRecord, ...] = ()
    owned: tuple[OwnedGpus, ...] = ()
    owned_by: str = ""  # how the owned GPUs are known, like "the cluster's nodes today"
    measured: tuple[MeasuredHour, ...] = ()  # allocated time follows from the jobs
    manifests: tuple[tuple[str, Any], ...] = ()  # a Kubernetes Job for each `JobRecord.key`, the latest
    calendar: bool = True  # False: instants count from the file's own zero


@value
class MonthHistory:
    """All that is known of the month. Made by `join`."""

    from_at: Instant
    to_at: Instant
    jobs: tuple[JobRecord, ...]  # by submission, or the first time seen
    owned: tuple[OwnedGpus, ...]  # by instant; empty: unknown
    owned_by: str
    use: tuple[HourOfUse, ...]  # by hour, then team
    coverage: tuple[Coverage, ...]
    disagreements: tuple[Disagreement, ...] = ()
    manifests: tuple[tuple[str, Any], ...] = ()  # as in `SourceReading`
    calendar: bool = True

    @property
    def span_ms(self) -> Millis:
        return self.to_at - self.from_at
