"""What history teaches about run times, fed by ended jobs only and kept by replay.

`Recent` is the yardstick's estimate: the mean of the last 200 ended jobs of the same width, before five of those the
mean of all that ended, before any ended one hour. Better ones fulfil the same two methods.
"""

from collections import deque
from typing import Final, Protocol

from penstock.core.model import JobSpec
from penstock.core.units import HOUR, Millis

REMEMBERED: Final = 200
ENOUGH: Final = 5


class Runtimes(Protocol):
    def learn(self, spec: JobSpec, run_ms: Millis) -> None:
        """A job like this ended after running so long, counted at its least width and speed 1."""
        ...

    def expect(self, spec: JobSpec) -> Millis:
        """How long such a job would run."""
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
