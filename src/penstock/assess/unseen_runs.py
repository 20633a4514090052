"""How long a run lasts that nobody saw to its end: drawn from the runs of this month, for the report's ranges. `replay`
calls it.

Runs that go on count as far as they were seen (Kaplan and Meier), so that the longest ones are not left out. A run is
drawn from those of its own kind that lasted longer than it has, or of its width, or of all, whichever first has
enough. Beyond the longest run that ended, a run lasts as long again half of the time.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Final

from penstock.core.units import SECOND, Millis
from penstock.core.values import value

ENOUGH: Final = 10  #: runs of a kind that ended after the age in question
MOST_TIMES: Final = 10  #: the longest that ended: no run is drawn longer than that


@value
class SeenRun:
    kind: Hashable  # runs of one script, at one width
    gpus: int
    run_ms: Millis
    ended: bool


class UnseenRuns:
    def __init__(self, seen: Iterable[SeenRun]) -> None:
        classes: dict[Hashable, list[tuple[Millis, bool]]] = defaultdict(list)
        for run in seen:
            for name in (("kind", run.kind), ("width", run.gpus), "all"):
                classes[name].append((run.run_ms, run.ended))
        self.curves = {name: SurvivalCurve(runs) for name, runs in classes.items()}

    def drawn(self, kind: Hashable, gpus: int, age_ms: Millis, chance: float) -> Millis:
        """Of a run that has lasted `age_ms`: how long it lasts in all. `chance` is from 0 to 1; more is longer."""
        for name in (("kind", kind), ("width", gpus), "all"):
            curve = self.curves.get(name)
            if curve is not None and (name == "all" or curve.ended_after(age_ms) >= ENOUGH):
                return curve.quantile(age_ms, chance)
        return max(SECOND, age_ms)


class SurvivalCurve:
    """Which share of the runs lasts longer than so long."""

    def __init__(self, runs: Iterable[tuple[Millis, bool]]) -> None:
        ordered = sorted(runs, key=lambda run: (run[0], not run[1]))  # who ends at an age was there before who is lost
        self.lengths: list[Millis] = []  #: of runs that ended
        self.alive: list[float] = []  #: after each of them
        share = 1.0
        for k, (length, ended) in enumerate(ordered):
            if ended:
                share *= 1 - 1 / (len(ordered) - k)
                self.lengths.append(length)
                self.alive.append(share)

    def ended_after(self, age_ms: Millis) -> int:
        return len(self.lengths) - bisect_right(self.lengths, age_ms)

    def quantile(self, age_ms: Millis, chance: float) -> Millis:
        place = bisect_right(self.lengths, age_ms)
        reached = self.alive[place - 1] if place else 1.0
        left = reached * (1 - chance)  #: the share that lasts longer than what is drawn
        drawn = bisect_left(self.alive, -left, lo=place, key=lambda share: -share)
        if drawn < len(self.lengths):
            return self.lengths[drawn]
        longest = max(SECOND, age_ms, *self.lengths[-1:])
        beyond = self.alive[-1] if place < len(self.lengths) else reached
        return round(min(MOST_TIMES, beyond / left if left > 0 else MOST_TIMES) * longest)
