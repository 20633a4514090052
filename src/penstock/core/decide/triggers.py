"""Triggers of a policy file (`burst_when`): conditions of the moment, one of which must hold for a job to burst, beside
the engine's own weighing. `placement` asks when a job would burst, and `cycle` when one may have begun to hold.

A job of a class that is always rented needs none, and neither does one that no standing offer may run.
"""

from penstock.core.decide import waiting
from penstock.core.decide.quotes import Quote
from penstock.core.fold.governed import HELD, utilisation
from penstock.core.fold.state import Job, State
from penstock.core.model.governance import BurstTrigger
from penstock.core.model.reasons import TriggerSeen
from penstock.core.units import MINUTE, NEVER, Instant, Millis
from penstock.core.values import value


@value
class Asked:
    """What was seen of all triggers."""

    holds: TriggerSeen | None  # the first that holds
    seen: tuple[TriggerSeen, ...]  # all, if none holds
    again_at: Instant  # when one of them may hold for this job without any event


def binds(state: State, job: Job) -> bool:
    """Whether the job needs a trigger at all."""
    rule = state.class_rules.get(job.spec.job_class)
    waits = (job.shape.base or job.shape).standing
    return bool(state.policy.governance.burst_when and waits) and (rule is None or rule.where != "rented")


def ask(state: State, job: Job, quote: Quote, now: Instant) -> Asked:
    seen: list[TriggerSeen] = []
    again_at = NEVER
    for trigger in state.policy.governance.burst_when:
        seen_now, holds, at = _see(state, job, quote, trigger, now)
        if holds:
            return Asked(seen_now, (), NEVER)
        seen.append(seen_now)
        again_at = min(again_at, at)
    return Asked(None, tuple(seen), again_at)


def _see(
    state: State, job: Job, quote: Quote, trigger: BurstTrigger, now: Instant
) -> tuple[TriggerSeen, bool, Instant]:
    """What is seen of it, whether it holds, and when it will if nothing happens."""
    match trigger.kind:
        case "queued_jobs" | "utilisation":
            seen_now, holds = _see_common(state, trigger, now)
            return seen_now, holds, NEVER  # `next_at` has it for all jobs
        case "expected_wait":
            expected_ms = now - job.queued_at + _about_ms(state, job)
            at = max(now + MINUTE, now + trigger.threshold - expected_ms)
            return _seen(trigger, expected_ms), expected_ms >= trigger.threshold, at
        case "deadline_at_risk":
            if job.spec.deadline_at is None:
                return _seen(trigger, 0), False, NEVER
            leave_at = waiting.latest_leave_at(state, job, quote, job.spec.deadline_at)
            return _seen(trigger, leave_at), now >= leave_at, max(now + MINUTE, leave_at)


def _about_ms(state: State, job: Job) -> Millis:
    """Its forecast, p50, from now."""
    return waiting.foretell(state, job, waiting.soonest_start(job))[0]


def _see_common(state: State, trigger: BurstTrigger, now: Instant) -> tuple[TriggerSeen, bool]:
    """A trigger that is the same for all jobs."""
    if trigger.kind == "queued_jobs":
        return _seen(trigger, state.waiting), state.waiting >= trigger.threshold
    busy = utilisation(state)
    if busy < trigger.threshold:
        return _seen(trigger, busy), False
    held_ms = now - state.busy_since.get(trigger.threshold, now)
    return _seen(trigger, busy, held_ms), held_ms >= trigger.for_ms


def _seen(trigger: BurstTrigger, seen: int, held_ms: Millis = 0) -> TriggerSeen:
    return TriggerSeen(
        trigger=trigger.kind,
        threshold=trigger.threshold,
        seen=seen,
        source=trigger.source,
        for_ms=trigger.for_ms,
        held_ms=held_ms,
    )


# --- for all jobs that wait for one ----------------------------------------------------------------------------------


def awaited(state: State) -> bool:
    """Whether jobs wait for one."""
    return bool(state.short.get(HELD))


def one_holds(state: State, now: Instant) -> bool:
    """Whether a trigger that is the same for all jobs holds now."""
    return any(_see_common(state, trigger, now)[1] for trigger in _common(state))


def next_at(state: State) -> Instant:
    """When one will hold for all jobs if nothing happens: utilisation that is high and must have been for so long."""
    soonest = NEVER
    for trigger in _common(state):
        if trigger.kind == "utilisation" and utilisation(state) >= trigger.threshold:
            soonest = min(soonest, state.busy_since.get(trigger.threshold, state.at) + trigger.for_ms)
    return soonest if soonest > state.at else NEVER


def _common(state: State) -> list[BurstTrigger]:
    kinds = ("queued_jobs", "utilisation")
    return [trigger for trigger in state.policy.governance.burst_when if trigger.kind in kinds]
