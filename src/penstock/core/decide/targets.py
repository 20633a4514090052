"""Targets: adjusts the cost of delay towards a mean delay or a budget, slowly, and records each change. `cycle` calls
it.

If the policy names a mean delay or an amount per period, the cost of delay is reviewed every few hours and changed by
at most a quarter: more delay than wanted raises it, more spending lowers it.
"""

from typing import Final

from penstock.core.decide.choices import Choices
from penstock.core.fold.state import State
from penstock.core.model.events import ValueSet
from penstock.core.model.reasons import AimsAtDelay, AimsAtSpend
from penstock.core.units import NEVER, PERMILLE, Instant, Money

ENOUGH_JOBS: Final = 10  #: fewer ended jobs are no basis for a mean
LEAST, MOST = 800, 1250  #: of one change, in thousandths
WIDEST: Final = 32  #: the value stays within this factor of the policy's own


def next_at(state: State) -> Instant:
    """When the next review is due: not while there is nobody whose delay or spending it could change."""
    return state.aim.next_at if state.jobs else NEVER


def follow(choices: Choices) -> None:
    """The review is due."""
    state, now = choices.state, choices.now
    choices.record(_by_delay(state, now) if state.policy.waiting.target_delay_ms else _by_spend(state, now))


def _by_delay(state: State, now: Instant) -> ValueSet:
    aim, before, target = state.aim, state.value_per_hour, state.policy.waiting.target_delay_ms
    mean = aim.delay_ms // aim.jobs if aim.jobs else 0
    jobs = aim.jobs // PERMILLE
    after = _moved(state, mean, target) if jobs >= ENOUGH_JOBS else before
    return ValueSet(now, after, now + state.policy.waiting.look_every_ms, AimsAtDelay(mean, target, jobs, before))


def _by_spend(state: State, now: Instant) -> ValueSet:
    """What was spent lately, against the target's share of that time."""
    aim, before, target = state.aim, state.value_per_hour, state.policy.waiting.target_spend
    spent = spent_in_all(state) - aim.spent
    start, end = state.ledger.bounds_at(now)
    share = target * max(1, now - aim.since_at) // max(1, end - start)
    after = _moved(state, share, spent)
    return ValueSet(now, after, now + state.policy.waiting.look_every_ms, AimsAtSpend(spent, share, target, before))


def _moved(state: State, more: int, less: int) -> Money:
    """Up if `more` is the greater, down if `less` is; an idle month must not drive it out of all reason."""
    usual = state.policy.waiting.value_per_hour
    by = more * PERMILLE // less if less else (MOST if more else PERMILLE)
    after = state.value_per_hour * min(max(by, LEAST), MOST) // PERMILLE
    return min(max(after, usual // WIDEST), usual * WIDEST)


def spent_in_all(state: State) -> Money:
    return sum([account.spent for (scope, _), account in state.ledger.accounts.items() if scope == "org"])
