"""Applies what is rented ahead of demand: nodes of pools, who pays for them, and forecasts. Part of `apply`.

A warm node is in `State.warm.nodes` from its promise until a job takes it, or it is given back or lost.
`decide/ahead` makes the promises.
"""

from penstock.core.fold import money
from penstock.core.fold.attempts import close_to_others
from penstock.core.fold.state import Node, State, launch_action
from penstock.core.fold.transitions import touch_node
from penstock.core.model import events as e
from penstock.core.model.reasons import NothingAllowed


def warm_promised(state: State, event: e.WarmPromised) -> None:
    offer, ask = state.offers[event.offer], event.ask
    node = Node(ask.node, offer, ask.gpus, attempt="", asked_at=event.at, payer=ask.hold.scopes)
    node.open, node.because = False, event.because
    state.nodes[node.id] = node
    state.warm.nodes[node.id] = None
    state.warm.numbered += 1
    state.in_use[offer.id, ask.gpus] = state.in_use.get((offer.id, ask.gpus), 0) + 1
    if offer.id in state.refusals:
        state.probing.setdefault(offer.id, node.id)
    state.warm.short.pop(offer.id, None)
    money.open_lease(state, ask.hold, None, 0, offer.id)
    state.changes.actions.append(launch_action(state, node))
    touch_node(state, node)


def payer_changed(state: State, event: e.PayerChanged) -> None:
    """To a job, whose attempt is promised next; or to the pool of its offer, when the last job has left it."""
    node = state.nodes[event.node]
    if not event.job:
        close_to_others(state, node)  # before its payer changes, by which it is listed
    money.change_payer(state, event, node.offer.id)
    node.payer, node.attempt, node.leaves = event.hold.scopes, "", False
    touch_node(state, node)
    if event.job:
        del state.warm.nodes[node.id]
        return
    node.because = event.because
    state.idle.pop(node.id, None)
    state.warm.nodes[node.id] = None
    state.warm.short.pop(node.offer.id, None)


def warm_short(state: State, event: e.WarmShort) -> None:
    state.warm.short[event.offer] = (event.until_at, event.because)


def ask_again(state: State) -> None:
    """A cap has risen, or a month began: pools that had no money may have some."""
    state.warm.short.clear()


def judge_again(state: State) -> None:
    """Rules or offers have changed: pools that a rule forbade may rent."""
    for name in [name for name, (_, because) in state.warm.short.items() if isinstance(because, NothingAllowed)]:
        del state.warm.short[name]


def demand_forecast(state: State, event: e.DemandForecast) -> None:
    state.warm.forecast = event


def note_pools(state: State) -> None:
    """Call when sites have changed."""
    state.warm.offers = {offer.id: offer for offer in state.offers.values() if offer.warm is not None}
    for name in [name for name in state.warm.short if name not in state.warm.offers]:
        del state.warm.short[name]
    judge_again(state)
