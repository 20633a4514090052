"""What history teaches about run times, fed by ended jobs only and kept by replay.

`Recent` is the yardstick's estimate: the mean of the last 200 ended jobs of the same width, before five of those the
mean of all that ended, before any ended one hour.

`LifeTable` asks how long such a job still runs, given how long it has: run times have heavy tails, and one that has run
long will run long. It counts, per bin of age, how many ended in it of those that reached it.
"""

from bisect import bisect_right
from collections import deque
from math import isqrt
from typing import Final, Protocol

from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR, MINUTE, Millis

REMEMBERED: Final = 200
ENOUGH: Final = 5


class Runtimes(Protocol):
    def learn(self, spec: JobSpec, run_ms: Millis) -> None:
        """A job like this ended after running so long, counted at its least width and speed 1."""
        ...

    def expect(self, spec: JobSpec) -> Millis:
        """How long such a job would run."""
        ...

    def remaining(self, spec: JobSpec, age_ms: Millis) -> Millis:
        """How long it still runs, having run so long."""
        ...

    def at_worst(self, spec: JobSpec) -> Millis:
        """The run time that four of five such jobs do not exceed; a stated one is believed."""
        ...

    def nearly_all(self, spec: JobSpec, age_ms: Millis) -> Millis | None:
        """How long 19 of 20 such jobs still run at most, having run so long, stated or not; None: too few ended."""
        ...

    def jobs_ended(self) -> int:
        """How many jobs have taught it; 0: all that it says is a guess."""
        ...


class Recent:
    __slots__ = ("by_width", "ended", "sums", "total")

    def __init__(self) -> None:
        self.by_width: dict[int, deque[Millis]] = {}
        self.sums: dict[int, Millis] = {}
        self.ended = 0
        self.total: Millis = 0

    def learn(self, spec: JobSpec, run_ms: Millis) -> None:
        width = spec.gpus
        recent = self.by_width.get(width)
        if recent is None:
            recent = self.by_width[width] = deque()
            self.sums[width] = 0
        if len(recent) == REMEMBERED:
            self.sums[width] -= recent.popleft()
        recent.append(run_ms)
        self.sums[width] += run_ms
        self.ended += 1
        self.total += run_ms

    def expect(self, spec: JobSpec) -> Millis:
        if spec.expected_run_ms is not None:
            return spec.expected_run_ms
        recent = self.by_width.get(spec.gpus)
        if recent is not None and len(recent) >= ENOUGH:
            return self.sums[spec.gpus] // len(recent)
        return self.total // self.ended if self.ended else HOUR

    def remaining(self, spec: JobSpec, age_ms: Millis) -> Millis:
        """It knows no ages: what is expected, less what is done."""
        return max(0, self.expect(spec) - age_ms)

    def at_worst(self, spec: JobSpec) -> Millis:
        recent = self.by_width.get(spec.gpus)
        if spec.expected_run_ms is not None or recent is None or len(recent) < ENOUGH:
            return self.expect(spec)
        return sorted(recent)[len(recent) * 4 // 5]

    def nearly_all(self, spec: JobSpec, age_ms: Millis) -> Millis | None:
        longer = sorted(run_ms for run_ms in self.by_width.get(spec.gpus, ()) if run_ms > age_ms)
        return longer[len(longer) * 19 // 20] - age_ms if len(longer) >= ENOUGH else None

    def jobs_ended(self) -> int:
        return self.ended


#: Edges of the bins, growing by the square root of two from a minute to two months.
EDGES: Final = (0, *(MINUTE * isqrt(2**k * 10**12) // 10**6 for k in range(34)))
BINS: Final = len(EDGES)
ONE: Final = 1 << 30  #: hazards are whole numbers of this
PSEUDO: Final = 8  #: as many made-up jobs of the wider class as it takes to trust a class's own
NAMESAKES: Final = 2  #: the same for jobs of one name: runs of one script are more alike than a team's jobs
NAMES: Final = 1_000  #: so many are remembered, the latest


class Lives:
    """How jobs of one class ended: by bin of age, how many ended in it, and how many reached it."""

    __slots__ = ("ended", "hazard", "jobs", "left", "next_at", "reached", "worst")

    def __init__(self) -> None:
        self.ended = [0] * BINS
        self.reached = [0] * BINS
        self.jobs = 0
        self.next_at = (
            1  #: counted anew when so many have ended: at every job at first, later at every twentieth or fourth part
        )
        self.hazard: list[int] = []
        self.left: list[Millis] = []  #: expected from the beginning of each bin
        self.worst: Millis = HOUR  #: four of five ended within this

    def add(self, age_bin: int) -> None:
        self.ended[age_bin] += 1
        reached = self.reached
        for k in range(age_bin + 1):
            reached[k] += 1
        self.jobs += 1

    def count(self, wider: "Lives | None", shrink: int) -> None:
        """Hazards, shrunk towards the wider class's, and from the last bin backwards what is left."""
        self.next_at = self.jobs + 1 + self.jobs // (4 if shrink == NAMESAKES else 20)
        theirs = wider.hazard if wider is not None and wider.hazard else [ONE // 2] * BINS
        self.hazard = [
            (ended * ONE + shrink * usual) // (reached + shrink)
            for ended, reached, usual in zip(self.ended, self.reached, theirs, strict=True)
        ]
        after = EDGES[-1] - EDGES[-2]
        left = [after]
        for k in range(BINS - 2, -1, -1):
            hazard, long = self.hazard[k], EDGES[k + 1] - EDGES[k]
            # Who ends in the bin ends in its middle; who does not, crosses it and has what is left from the next.
            after = (hazard * (long // 2) + (ONE - hazard) * (long + after)) // ONE
            left.append(after)
        self.left = left[::-1]
        self.worst = self._fifth()

    def _fifth(self) -> Millis:
        alive = ONE
        for k, hazard in enumerate(self.hazard):
            alive = alive * (ONE - hazard) // ONE
            if alive * 5 < ONE:
                return EDGES[min(k + 1, BINS - 1)]
        return EDGES[-1]

    def nearly_all(self, age_ms: Millis) -> Millis:
        alive = ONE
        for k in range(bisect_right(EDGES, age_ms) - 1, BINS - 1):
            alive = alive * (ONE - self.hazard[k]) // ONE
            if alive * 20 < ONE:
                return EDGES[k + 1] - age_ms
        return max(EDGES[-1], 2 * age_ms) - age_ms


class LifeTable:
    """By name, shrunk to team and width, to width, to all: a class speaks for itself as far as it has been seen.

    So the members of an array teach each other how long they run, and so do the runs of one script.
    """

    __slots__ = ("all", "by_name", "by_team", "by_width")

    def __init__(self) -> None:
        self.all = Lives()
        self.by_width: dict[int, Lives] = {}
        self.by_team: dict[tuple[str, int], Lives] = {}
        self.by_name: dict[tuple[str, int, str], Lives] = {}  #: the latest seen last

    def learn(self, spec: JobSpec, run_ms: Millis) -> None:
        age_bin = bisect_right(EDGES, run_ms) - 1
        width = self.by_width.get(spec.gpus)
        if width is None:
            width = self.by_width[spec.gpus] = Lives()
        key = (spec.team, spec.gpus)
        team = self.by_team.get(key)
        if team is None:
            team = self.by_team[key] = Lives()
        _teach(self.all, None, age_bin, 1)
        _teach(width, self.all, age_bin, PSEUDO)
        _teach(team, width, age_bin, PSEUDO)
        if spec.name:
            _teach(self._named(spec), team, age_bin, NAMESAKES)

    def _named(self, spec: JobSpec) -> Lives:
        """Moved to the end: who was not seen for longest is forgotten first."""
        key = (spec.team, spec.gpus, kind_of(spec.name))
        lives = self.by_name.pop(key, None) or Lives()
        self.by_name[key] = lives
        if len(self.by_name) > NAMES:
            del self.by_name[next(iter(self.by_name))]
        return lives

    def expect(self, spec: JobSpec) -> Millis:
        if spec.expected_run_ms is not None:
            return spec.expected_run_ms
        lives = self._lives(spec)
        return lives.left[0] if lives is not None else HOUR

    def remaining(self, spec: JobSpec, age_ms: Millis) -> Millis:
        """A stated run time is believed until it is over; from then on history speaks."""
        if spec.expected_run_ms is not None and age_ms < spec.expected_run_ms:
            return spec.expected_run_ms - age_ms
        lives = self._lives(spec)
        return lives.left[bisect_right(EDGES, age_ms) - 1] if lives is not None else HOUR

    def at_worst(self, spec: JobSpec) -> Millis:
        if spec.expected_run_ms is not None:
            return spec.expected_run_ms
        lives = self._lives(spec)
        return lives.worst if lives is not None else HOUR

    def nearly_all(self, spec: JobSpec, age_ms: Millis) -> Millis | None:
        lives = self._lives(spec) if self.all.jobs >= ENOUGH else None
        return lives.nearly_all(age_ms) if lives is not None else None

    def jobs_ended(self) -> int:
        return self.all.jobs

    def _lives(self, spec: JobSpec) -> Lives | None:
        if spec.name and (named := self.by_name.get((spec.team, spec.gpus, kind_of(spec.name)))):
            return named
        for lives in (self.by_team.get((spec.team, spec.gpus)), self.by_width.get(spec.gpus), self.all):
            if lives is not None and lives.left:
                return lives
        return None


def _teach(lives: Lives, wider: Lives | None, age_bin: int, shrink: int) -> None:
    lives.add(age_bin)
    if lives.jobs >= lives.next_at:
        lives.count(wider, shrink)


def kind_of(name: str) -> str:
    """`resnet-17` and `resnet-18` are runs of one script."""
    return name.rstrip("0123456789").rstrip("-_.") or name


ESTIMATORS: Final[dict[str, type[Recent] | type[LifeTable]]] = {
    "recent": Recent,
    "life_table": LifeTable,
    "declared": LifeTable,  # for jobs that declare nothing
}
