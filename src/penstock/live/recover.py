"""Compares a site's inventory with the state and returns the differences as facts and orphans. The plane runs it after
a start, after a clock jump, and periodically.

`differences` is pure; it runs in the engine's thread with what a driver's `look` returned. Unknown is not gone: a thing
that is missing from a list is lost only if it is still missing minutes later.
"""

from collections.abc import Iterator
from typing import Final

from penstock.core.fold.state import Attempt, State
from penstock.core.ids import array_of, job_of
from penstock.core.model import events as e
from penstock.core.units import MINUTE, Instant, Millis
from penstock.core.values import value
from penstock.drivers import attempt_facts
from penstock.drivers.driver import SeenAttempt, SiteInventory

#: A list may be stale for this long; only then a missing thing is lost.
MISSING_MS: Final[Millis] = 5 * MINUTE


@value
class Differences:
    facts: tuple[e.Fact, ...]
    orphans: tuple[str, ...]  # attempts that run although their end is recorded
    strangers: tuple[str, ...]  # attempts that run and that the journal never had
    nodes: tuple[str, ...]  # nodes that no attempt needs
    recorded: tuple[str, ...]  # attempts whose end is recorded: the site may forget them


class Belief:
    """Things that one site's lists miss, and since when. Kept between looks."""

    def __init__(self, site: str, ids: str) -> None:
        self.site, self.ids = site, ids
        self.missing: dict[str, Instant] = {}

    def differences(self, state: State, seen: SiteInventory, asked_at: Instant) -> Differences:
        """`asked_at`: when the look began. Things that started since may be missing from it."""
        present = {shown.attempt: shown for shown in seen.attempts}
        facts = [fact for shown in seen.attempts if (fact := news(state, shown))]
        facts += self._lost_attempts(state, present, asked_at)
        facts += self._lost_nodes(state, seen.nodes, asked_at)
        unknown = [shown for shown in seen.attempts if shown.attempt not in state.attempts]
        running = [shown.attempt for shown in unknown if shown.phase == "running"]
        return Differences(
            facts=tuple(facts),
            orphans=tuple(attempt for attempt in running if self._had_a_place(state, attempt)),
            strangers=tuple(attempt for attempt in running if not self._had_a_place(state, attempt)),
            nodes=tuple(node for node in seen.nodes if node not in state.nodes),
            recorded=tuple(shown.attempt for shown in unknown if shown.phase != "running"),
        )

    def _had_a_place(self, state: State, attempt: str) -> bool:
        """True if the journal ever had the job: numbers are given in order of arrival."""
        job = job_of(attempt)
        number = (array_of(job) or job).removeprefix(self.ids)
        if not number.isdigit() or int(number) > state.numbered:
            return False
        return not any(first <= int(number) <= last for first, last in state.skipped)

    def _lost_attempts(self, state: State, present: dict[str, SeenAttempt], asked_at: Instant) -> Iterator[e.Fact]:
        for attempt in state.attempts.values():
            mine = attempt.offer.site == self.site and _ran_before(attempt, asked_at)
            if mine and self._is_gone(attempt.id, attempt.id in present, asked_at):
                yield e.AttemptLost(0, attempt.id, attempt.kept_ms)

    def _lost_nodes(self, state: State, present: tuple[str, ...], asked_at: Instant) -> Iterator[e.Fact]:
        for node in state.nodes.values():
            was_there = node.phase in ("idle", "busy") and (node.idle_at or node.asked_at) < asked_at
            mine = node.offer.site == self.site and was_there
            if mine and self._is_gone(node.id, node.id in present, asked_at):
                yield e.NodeLost(0, node.id)

    def _is_gone(self, thing: str, present: bool, asked_at: Instant) -> bool:
        if present:
            self.missing.pop(thing, None)
            return False
        since = self.missing.setdefault(thing, asked_at)
        if asked_at - since < MISSING_MS:
            return False
        del self.missing[thing]
        return True


def _ran_before(attempt: Attempt, asked_at: Instant) -> bool:
    return attempt.phase in ("running", "stopping") and attempt.started_at is not None and attempt.started_at < asked_at


def news(state: State, seen_attempt: SeenAttempt) -> e.Fact | None:
    """The fact that this inventory entry adds to the state; None if it adds nothing."""
    attempt = state.attempts.get(seen_attempt.attempt)
    if attempt is None or attempt.phase == "promised":
        return None
    match seen_attempt.phase:
        case "running":
            if attempt.phase == "starting":
                return e.AttemptStarted(0, seen_attempt.attempt)
            return (
                e.AttemptCheckpointed(0, seen_attempt.attempt, seen_attempt.kept_ms)
                if seen_attempt.kept_ms > attempt.kept_ms
                else None
            )
        case ended:
            return attempt_facts.ended(
                0, seen_attempt.attempt, ended, seen_attempt.kept_ms, seen_attempt.detail, seen_attempt.pods
            )
