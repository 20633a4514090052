"""What is rented now, as the journal knows it; and leaks: what sites have of ours that the journal does not know, or
the other way round. The API calls it.

A site that cannot be asked is said to be unknown, never to have nothing.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from penstock.core.fold.clusters import attempts_on
from penstock.core.fold.ledger import Lease
from penstock.core.fold.state import Attempt, Node, State
from penstock.core.ids import is_cluster
from penstock.core.model.reasons import Reason
from penstock.core.units import SECOND, Instant, Money
from penstock.core.values import value
from penstock.drivers.driver import Driver, NoCapacity, Refused, SiteInventory, Unreachable, Unstartable
from penstock.live.plane import Plane
from penstock.live.site_probe import MOST_MS

#: What a stray does, and what becomes of it.
STRAYS: Final = {
    "node": ("is rented", "it is given back at the next look"),
    "attempt": ("runs", "look at it, because Penstock stops only what it once started"),
}
LeakKind: TypeAlias = Literal["stray", "missing", "unknown"]


@value
class RentedThing:
    """A node that is rented, or an attempt that its site bills as one."""

    id: str
    site: str
    offer: str
    gpus: int
    phase: str
    attempt: str  # whom it was rented for
    on: tuple[str, ...]  # attempts that use it
    team: str
    scopes: tuple[str, ...]  # who pays
    asked_at: Instant
    deadline_at: Instant  # it ends by itself then
    spent: Money  # charged so far
    held: Money  # the most that it may still cost
    price_per_hour: Money
    renewable: bool
    because: Reason | None = None  # why it was rented; None: what it was rented for is over
    warm: bool = False  # rented ahead, on a pool's budget, and no job has taken it


@value
class Leak:
    """`stray`: at the site, and not in the journal; `missing`: the other way round; `unknown`: nobody knows."""

    site: str
    kind: LeakKind
    thing: str
    says: str


# --- what is rented ---------------------------------------------------------------------------------------------------


def rented(state: State, everything: bool = False) -> tuple[RentedThing, ...]:
    """Rented nodes; and, with `everything`, attempts that are billed themselves."""
    nodes = [_node(state, name) for name in state.nodes]
    attempts = [_attempt(state, attempt) for attempt in state.attempts.values() if attempt.lease and everything]
    return (*nodes, *attempts)


def _node(state: State, name: str) -> RentedThing:
    node = state.nodes[name]
    asker, is_warm = state.attempts.get(node.attempt), name in state.warm.nodes
    ownerless = is_warm or is_cluster(name)
    because = asker.because if asker is not None else node.because if ownerless else None
    lease, on = state.ledger.leases[name], tuple([attempt.id for attempt in attempts_on(state, node)])
    return _thing(node, lease, node.gpus, node.attempt, on, node.asked_at, because, is_warm)


def _attempt(state: State, attempt: Attempt) -> RentedThing:
    lease = state.ledger.leases[attempt.lease]
    return _thing(attempt, lease, attempt.width, attempt.id, (attempt.id,), lease.opened_at, attempt.because)


def _thing(
    thing: Node | Attempt,
    lease: Lease,
    gpus: int,
    attempt: str,
    on: tuple[str, ...],
    asked_at: Instant,
    because: Reason | None,
    warm: bool = False,
) -> RentedThing:
    return RentedThing(
        id=thing.id,
        site=thing.offer.site,
        offer=thing.offer.id,
        gpus=gpus,
        phase=thing.phase,
        attempt=attempt,
        on=on,
        team=_team(lease.hold.scopes),
        scopes=lease.hold.scopes,
        asked_at=asked_at,
        deadline_at=lease.deadline_at,
        spent=lease.charged,
        held=lease.held,
        price_per_hour=lease.hold.terms.price_per_hour,
        renewable=lease.hold.terms.renewable,
        because=because,
        warm=warm,
    )


def _team(scopes: Iterable[str]) -> str:
    return next((scope.removeprefix("team:") for scope in scopes if scope.startswith("team:")), "")


# --- leaks ------------------------------------------------------------------------------------------------------------


async def leaks(plane: Plane) -> tuple[Leak, ...]:
    """Asks every site now. What came or went meanwhile is no leak: it must be so before and after."""
    before = await plane.consider(lambda state, _: _known(state))
    listed = await asyncio.gather(*(_look(driver) for driver in plane.drivers.values()))
    after = await plane.consider(lambda state, _: _known(state))
    result: list[Leak] = []
    for site, seen in zip(plane.drivers, listed, strict=True):
        result += _of_site(site, seen, before, after)
    return tuple(result)


async def _look(driver: Driver) -> SiteInventory | str:
    """What is there, or why nobody knows."""
    try:
        async with asyncio.timeout(MOST_MS / SECOND):
            return await driver.look()
    except (Unreachable, Refused, NoCapacity, Unstartable, TimeoutError) as error:
        return str(error) or "it does not answer"


def _known(state: State) -> tuple[dict[str, str], dict[str, str]]:
    """Of nodes and attempts that are there by the journal, the site; of all that it has, likewise."""
    nodes = {node.id: node.offer.site for node in state.nodes.values() if node.phase in ("idle", "busy")}
    runs = {run.id: run.offer.site for run in state.attempts.values() if run.phase == "running"}
    all_nodes = {node.id: node.offer.site for node in state.nodes.values()}
    return {**nodes, **runs}, {**all_nodes, **{run.id: run.offer.site for run in state.attempts.values()}}


def _of_site(
    site: str,
    seen: SiteInventory | str,
    before: tuple[dict[str, str], dict[str, str]],
    after: tuple[dict[str, str], dict[str, str]],
) -> Iterable[Leak]:
    if isinstance(seen, str):
        yield Leak(site, "unknown", site, f"{site} could not be asked, so nobody knows what is there: {seen}")
        return
    running = [attempt.attempt for attempt in seen.attempts if attempt.phase == "running"]
    for thing in (*seen.nodes, *running):
        if thing not in before[1] and thing not in after[1]:
            verb, then = STRAYS["node" if thing in seen.nodes else "attempt"]
            yield Leak(site, "stray", thing, f"{thing} {verb} at {site}, and the journal does not know it; {then}")
    present = {*seen.nodes, *running}
    for thing in [thing for thing, where in before[0].items() if where == site and after[0].get(thing) == site]:
        if thing not in present:
            says = f"{thing} is not at {site}, and the journal believes that it is; in five minutes it counts as lost"
            yield Leak(site, "missing", thing, says)
