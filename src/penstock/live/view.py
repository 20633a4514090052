"""The view published after each step: sites, budgets, alarms; everything people see but jobs. API and metrics read it.

It is an immutable value of one instant. Lists of jobs come from the journal's reader instead.
"""

from penstock.core.fold import clusters
from penstock.core.fold.attempts import WANTS_A_PERSON
from penstock.core.fold.job_approvals import open_request
from penstock.core.fold.money import team_of
from penstock.core.fold.sites import as_proved
from penstock.core.fold.state import State
from penstock.core.model.events import ApprovalAsked, CapRaiseAsked
from penstock.core.model.types import STANDING, Offer, Policy
from penstock.core.units import Instant, Money
from penstock.core.values import value


@value
class Alarm:
    """Something that a person should look at. `kind` is for machines, `text` is a sentence."""

    at: Instant
    kind: str
    text: str


@value
class OfferView:
    offer: Offer
    gpus: int | None  # the total; None: unlimited
    busy: int  # GPUs of running and stopping attempts
    starting: int  # GPUs of starting attempts and nodes
    idle: int  # unused GPUs: free on standing nodes, kept on rented ones
    lost: int  # GPUs of standing nodes that are down
    closed_until_at: Instant  # 0: open
    free: tuple[int, ...] = ()  # of a standing offer: free GPUs by node
    says: str = ""  # why it is closed, where a person must look: a quota, or its settings


@value
class SiteView:
    id: str
    location: str
    operator: str
    law: str
    front_door: bool
    reachable: bool
    offers: tuple[OfferView, ...]


@value
class Budget:
    """One scope in one period. `cap` None: counted, not limited."""

    scope: str
    period: str
    cap: Money | None
    spent: Money
    held: Money


@value
class SpendRate:
    """The sum of a scope's hourly price ceilings over all live attempts."""

    scope: str
    cap: Money | None
    running: Money


@value
class ExposureShare:
    """What is held on one budget at one offer: for attempts, nodes on their way back, warm pools and clusters."""

    team: str  # whose budget it is; empty: no team's
    offer: str
    most: Money
    until_at: Instant
    soft: bool  # nothing there ends without Penstock


@value
class OpenApproval:
    """A request that a person has not answered yet, and whose job it is about."""

    request: ApprovalAsked
    team: str
    user: str
    name: str


@value
class View:
    number: int  # the last step's row
    at: Instant
    revision: int
    policy: Policy
    paused: bool
    period: str  # the budget period of `at`
    sites: tuple[SiteView, ...]
    budgets: tuple[Budget, ...]
    rates: tuple[SpendRate, ...]
    exposure: Money  # the most that would still be spent if Penstock died now
    exposure_until_at: Instant
    waiting: int
    running: int
    ended: tuple[tuple[str, int], ...]  # (phase, count)
    alarms: tuple[Alarm, ...]
    approvals: tuple[OpenApproval, ...] = ()  # the oldest first
    raises: tuple[CapRaiseAsked, ...] = ()  # higher caps that somebody asks for
    caps: tuple[tuple[str, Money | None, Money | None], ...] = ()  # scope, per month, per hour
    exposed: tuple[ExposureShare, ...] = ()  # what `exposure` is made of
    short: tuple[tuple[str, int], ...] = ()  # scopes whose caps bind, and how many jobs wait for their money
    leaving: tuple[tuple[str, bool], ...] = ()  # home clusters that get their Jobs back; True: bring home what is away


def picture(state: State, alarms: tuple[Alarm, ...]) -> View:
    """Make the view. Linear in rented nodes, attempts and accounts; queued jobs cost nothing."""
    ledger = state.ledger
    exposure, until = ledger.exposure()
    return View(
        number=state.steps,
        at=state.at,
        revision=state.revision,
        policy=state.policy,
        paused=state.paused,
        period=ledger.period_at(state.at),
        sites=_sites(state),
        budgets=tuple(Budget(*key, a.cap, a.spent, a.held) for key, a in sorted(ledger.accounts.items())),
        rates=_rates(state),
        exposure=exposure,
        exposure_until_at=until,
        waiting=state.waiting,
        running=sum(attempt.phase == "running" for attempt in state.attempts.values()),
        ended=tuple(state.ended.items()),
        alarms=alarms,
        approvals=_approvals(state),
        raises=tuple(state.raises.values()),
        caps=tuple(
            (scope, ledger.caps.get(scope), ledger.rate_caps.get(scope))
            for scope in dict.fromkeys((*ledger.caps, *ledger.rate_caps))
            if not scope.startswith("job:")
        ),
        exposed=_exposed(state),
        short=tuple((scope, len(jobs)) for scope, jobs in sorted(state.short.items()) if jobs and _is_money(scope)),
        leaving=tuple(state.leaving.items()),
    )


def _is_money(scope: str) -> bool:
    """Others wait for a trigger, for GPUs of their team, or for their own job's cap."""
    return scope == "org" or scope.startswith(("team:", "project:"))


def _exposed(state: State) -> tuple[ExposureShare, ...]:
    """Linear in what is rented. Every hold is in one row, so that they add up to the exposure."""
    rows: dict[tuple[str, str], tuple[Money, Instant]] = {}
    for name, lease in state.ledger.leases.items():
        key = (team_of(lease.hold.scopes), state.bills[name].offer)
        most, until_at = rows.get(key, (0, 0))
        rows[key] = most + lease.held, max(until_at, lease.worst_at)
    return tuple(ExposureShare(*key, *rows[key], soft=_is_soft(state, key[1])) for key in sorted(rows))


def _is_soft(state: State, name: str) -> bool:
    offer = clusters.offer_of(state, name)
    return offer is not None and offer.term not in STANDING and as_proved(state, offer).guarantee == "none"


def _approvals(state: State) -> tuple[OpenApproval, ...]:
    """Linear in the jobs that somebody was asked about."""
    requests: list[OpenApproval] = []
    for name, known in state.approvals.items():
        asked, job = open_request(known, "", state.at), state.jobs[name]
        if asked is not None:
            requests.append(OpenApproval(asked, job.spec.team, job.spec.user, job.spec.name))
    return tuple(sorted(requests, key=lambda approval: (approval.request.at, approval.request.job)))


def _rates(state: State) -> tuple[SpendRate, ...]:
    ledger = state.ledger
    scopes = sorted(ledger.rates.keys() | ledger.rate_caps.keys())
    return tuple(SpendRate(scope, ledger.rate_caps.get(scope), ledger.rates.get(scope, 0)) for scope in scopes)


def _sites(state: State) -> tuple[SiteView, ...]:
    use = _use(state)
    return tuple(
        SiteView(
            id=site.id,
            location=site.location,
            operator=site.operator,
            law=site.law,
            front_door=site.front_door,
            reachable=site.id not in state.lost_sites,
            offers=tuple(_offer(state, as_proved(state, offer), use.get(offer.id, [0, 0, 0])) for offer in site.offers),
        )
        for site in state.sites.values()
    )


def _use(state: State) -> dict[str, list[int]]:
    """By offer: GPUs busy, starting, and idle on rented nodes."""
    use: dict[str, list[int]] = {}
    for attempt in state.attempts.values():
        if not attempt.nodes:
            counts = use.setdefault(attempt.offer.id, [0, 0, 0])
            counts[0 if attempt.phase in ("running", "stopping") else 1] += attempt.width
    for node in state.nodes.values():
        counts = use.setdefault(node.offer.id, [0, 0, 0])
        for attempt, gpus in ((state.attempts[name], gpus) for name, gpus in node.on.items()):
            counts[0 if attempt.phase in ("running", "stopping") else 1] += gpus
        counts[2] += node.gpus - sum(node.on.values())
    return use


def _offer(state: State, offer: Offer, use: list[int]) -> OfferView:
    busy, starting, idle = use
    closed = state.closed.get(offer.id, 0)
    pool = state.pools.get(offer.id)
    if pool is None:
        counts = [shape.count for shape in offer.shapes]
        gpus = None if None in counts else sum(s.gpus * (s.count or 0) for s in offer.shapes)
        return OfferView(
            offer=offer,
            gpus=gpus,
            busy=busy,
            starting=starting,
            idle=idle,
            lost=0,
            closed_until_at=closed if closed > state.at else 0,
            says=_why_closed(state, offer) if closed > state.at else "",
        )
    lost = (pool.size - pool.up.bit_count()) * pool.per_node
    ours = pool.per_node * pool.size - sum(pool.others.values()) + sum(pool.owed.values())
    return OfferView(
        offer=offer,
        gpus=ours,
        busy=busy,
        starting=starting,
        idle=pool.free_gpus,
        lost=lost,
        closed_until_at=closed,
        free=tuple(pool.free),
    )


def _why_closed(state: State, offer: Offer) -> str:
    """The provider's words when it refused the last time, if they wanted a person."""
    begins = f"{offer.id}: "
    words = [text for _, kind, text in state.alarms if kind in WANTS_A_PERSON and text.startswith(begins)]
    return words[-1].removeprefix(begins) if words else ""
