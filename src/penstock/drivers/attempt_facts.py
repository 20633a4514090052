"""Facts about an attempt: how it ended and how far it is. The local and the Kubernetes driver use it."""

from collections.abc import Mapping
from typing import Any

from penstock.core.model import events as e
from penstock.core.model.types import PodCounts
from penstock.core.units import Instant, Millis
from penstock.drivers import progress
from penstock.drivers.driver import SeenPhase


def ended(
    at: Instant, attempt: str, phase: SeenPhase, kept_ms: Millis, words: str, pods: PodCounts | None = None
) -> e.Fact:
    match phase:
        case "stopped":
            return e.AttemptStopped(at, attempt, kept_ms, pods)
        case "lost":
            return e.AttemptLost(at, attempt, kept_ms, pods)
        case outcome:
            return e.AttemptEnded(at, attempt, "done" if outcome == "done" else "failed", words, pods)


class Reported:
    """Progress that was reported already: each checkpoint once, and progress once per tenth; after the first news at
    most every so many milliseconds, so that no job can fill the journal.
    """

    def __init__(self, kept_ms: Millis = 0, every_ms: Millis = 0) -> None:
        self.kept_ms, self.tenths, self.every_ms = kept_ms, 0, every_ms
        self.next_at: Instant = 0

    def news(self, at: Instant, attempt: str, kept_ms: Millis, marks: Mapping[str, Any]) -> list[e.Fact]:
        facts: list[e.Fact] = []
        if at < self.next_at <= at + self.every_ms:  # a clock that was set back does not hold anything up
            return facts
        if kept_ms > self.kept_ms:
            self.kept_ms = kept_ms
            facts.append(e.AttemptCheckpointed(at, attempt, kept_ms))
        permille = progress.permille(marks)
        if permille // 100 != self.tenths:
            self.tenths = permille // 100
            facts.append(e.AttemptProgressed(at, attempt, permille))
        if facts:
            self.next_at = at + self.every_ms
        return facts
