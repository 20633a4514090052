"""Moves that pay: coming home to standing GPUs, and going to cheaper rented ones. The saving is weighed against a
restart and the work since the last checkpoint, at the cost of delay. `cycle` calls it.
"""

from penstock.core.decide import colocation, placement, quotes
from penstock.core.decide.choices import Choices
from penstock.core.decide.quotes import Quote
from penstock.core.fold.learned import loss_ppm
from penstock.core.fold.state import Attempt, State
from penstock.core.fold.suited import suited
from penstock.core.model.reasons import CheaperElsewhere, ComesHome
from penstock.core.model.types import Offer
from penstock.core.units import HOUR, NEVER, PERMILLE, Instant, Millis, Money, ceil_div, cost_of

#: How many jobs of one width are considered: the longest away first; if those do not pay, the others hardly will.
LOOKED_AT = 4
#: Of jobs on demand, how many are considered when spot is seen to be open, and how many move.
CONSIDERED = 16
AT_A_TIME = 2


def come_home(choices: Choices) -> None:
    """Standing GPUs are free and no queued job fits: rented jobs come back, the widest and longest away first."""
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
        if suited(state, attempt.job.shape, name).fits(attempt.job.spec.gpus):
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
    saves = cost_of(colocation.rent_per_hour(state, attempt), left_ms)
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


# --- between rented places -------------------------------------------------------------------------------------------


def move_on(choices: Choices) -> None:
    """A lease was renewed, or others left a node: who is alone there goes where the rest of its run is cheaper. So does
    who is on demand, when spot is seen to be open.
    """
    state = choices.state
    things = dict.fromkeys(state.changes.review)
    names = [name for thing in things for name in (state.nodes[thing].on if thing in state.nodes else (thing,))]
    for attempt in [state.attempts[name] for name in names if name in state.attempts]:
        _move(choices, attempt)
    if state.changes.rare.open_spot:
        back_to_spot(choices, tuple(state.changes.rare.open_spot))


def _move(choices: Choices, attempt: Attempt) -> bool:
    cheaper = _cheaper(choices.state, attempt, choices.now)
    return cheaper is not None and placement.move_rented(choices, attempt.job, *cheaper)


def back_to_spot(choices: Choices, offers: tuple[str, ...]) -> None:
    """Who continued on demand after a loss goes back to spot if that pays: at most two for each time that spot was seen
    to be open, so that few stand in vain where there was room for one. If they get their nodes, two more follow each.
    """
    state, moved = choices.state, 0
    for attempt in list(state.on_demand.values())[:CONSIDERED]:
        allowed = any(name in attempt.job.shape.rented for name in offers)
        if moved < AT_A_TIME and allowed and _stays_until(state, attempt) <= choices.now:
            moved += _move(choices, attempt)


def _stays_until(state: State, attempt: Attempt) -> Instant:
    """By the rule of `placement.may_move`: after a move it stays for a while, and it moves only so often."""
    job = attempt.job
    if attempt.phase != "running" or job.moves >= state.policy.max_moves:
        return NEVER
    return job.moved_at + max(state.policy.settle_ms, 10 * job.spec.restart_ms)


def tried_at(state: State, name: str) -> Instant:
    """When somebody on demand may move to this closed spot offer, so that it is worth a try."""
    offer = state.offers.get(name)
    if offer is None or offer.term != "spot" or not (state.policy.home and state.policy.share_nodes):
        return NEVER
    allowed = [other for other in list(state.on_demand.values())[:CONSIDERED] if name in other.job.shape.rented]
    return max(state.closed[name], min([_stays_until(state, attempt) for attempt in allowed], default=NEVER))


def _cheaper(state: State, attempt: Attempt, now: Instant) -> tuple[Quote, CheaperElsewhere] | None:
    job, restart_ms = attempt.job, attempt.job.spec.restart_ms
    shared = any(len(state.nodes[name].on) > 1 for name in attempt.nodes if name in state.nodes)
    if shared or attempt.phase != "running" or job.next is not None or not placement.may_move(state, job, now):
        return None
    left_ms, again_ms = state.remaining(job, attempt.done_ms(now)), move_ms(attempt, now) - restart_ms
    ways = colocation.for_job(state, job, job.kept_ms + left_ms + again_ms, now, attempt.nodes)
    if left_ms < state.policy.least_left_ms or not ways:
        return None
    best, value = ways[0], quotes.worth_of(state, job)
    move = best.start_ms + again_ms + (0 if best.node else restart_ms)  # the wait for a seat has it already
    worth = cost_of(value, move)
    stays, late = _stays(state, attempt, left_ms)
    pays = stays + late > best.total + worth - cost_of(value, best.start_ms)
    return (best, CheaperElsewhere(left_ms, stays, best.cost, move, worth)) if pays else None


def _stays(state: State, attempt: Attempt, left_ms: Millis) -> tuple[Money, Money]:
    """What the rest of its run costs where it is, and what the delay by losses there is worth."""
    offer, shape = attempt.offer, attempt.job.shape
    run_ms = ceil_div(left_ms * PERMILLE, attempt.speed_permille)
    lost_ms = quotes.lost_ms(shape, offer, run_ms, loss_ppm(state.losses, offer))
    rent = colocation.rent_per_hour(state, attempt)
    return cost_of(rent, run_ms + lost_ms), cost_of(quotes.worth_of(state, attempt.job), lost_ms)
