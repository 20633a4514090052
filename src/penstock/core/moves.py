"""Coming home, and moving together. Both are moves that pay: what they save is weighed against what they cost,
a restart and the work since the last checkpoint, at the value of waiting."""

from penstock.core import placement, quotes
from penstock.core.model import Offer
from penstock.core.placement import Choices
from penstock.core.reasons import ComesHome
from penstock.core.state import Attempt, State
from penstock.core.units import HOUR, Instant, Millis, Money, cost_of

#: How many of one width are looked at: the longest away come first, and if those do not pay, the others hardly will.
LOOKED_AT = 4


def come_home(choices: Choices) -> None:
    """Standing GPUs are free and nobody who waits fits: rented jobs come back, the widest and longest away first."""
    state = choices.state
    for width in sorted(state.away, reverse=True):
        away = state.away[width]
        for attempt in list(away.values())[:LOOKED_AT] if away else ():
            offer = _room_at_home(state, attempt)
            if offer is None:
                break
            because = pays_to_come(state, attempt, choices.now)
            if because is not None:
                placement.move(choices, attempt.job, offer, because)


def _room_at_home(state: State, attempt: Attempt) -> Offer | None:
    for name in attempt.job.shape.standing:
        if state.pools[name].fits(attempt.job.spec.gpus):
            return state.offers[name]
    return None


def pays_to_come(state: State, attempt: Attempt, now: Instant) -> ComesHome | None:
    """What is left costs more rented than the move: then the numbers, otherwise nothing."""
    job = attempt.job
    if job.next is not None or not placement.may_move(state, job, now):
        return None
    left_ms = state.remaining(job, attempt.done_ms(now))
    if left_ms < state.policy.least_left_ms:
        return None
    saves = cost_of(quotes.rate_of(job.shape, state, attempt.offer).price_per_hour, left_ms)
    move = move_ms(attempt, now)
    value = quotes.worth_of(state, job)
    worth: Money = value * move // HOUR
    return ComesHome(left_ms, saves, move, worth) if saves > worth else None


def move_ms(attempt: Attempt, now: Instant) -> Millis:
    """What stopping it now and starting it elsewhere costs it: the restart, and work since its last checkpoint."""
    spec = attempt.job.spec
    if attempt.started_at is None:
        return 0  # nothing runs yet
    ran = now - attempt.started_at
    every = spec.checkpoint_every_ms
    return spec.restart_ms + (ran % every if every else ran)
