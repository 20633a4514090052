"""Limits of a policy file that depend on the moment: quiet hours, headroom, GPUs of a team at once, what one job may
cost, what may leave rented sites, and how long jobs of a class may run. `guards`, `placement`, `quotes`, `cycle` ask.

Everything here answers, from the state and an instant; what is recorded is up to those who ask. A reason names the
limit, the numbers seen, and the file and line that say so.
"""

from typing import TypeAlias

from penstock.core.fold.governed import open_until
from penstock.core.fold.pool import Pool, Slots
from penstock.core.fold.state import Job, Lane, State
from penstock.core.model.governance import ClassRule, Headroom
from penstock.core.model.reasons import EgressSpent, InQuietHours, RanTooLong, TeamAtLimit, TooDear
from penstock.core.model.types import Offer
from penstock.core.units import NEVER, Instant, Millis, Money

Hidden: TypeAlias = list[tuple[Pool, Slots]]


# --- GPUs of a team at once ------------------------------------------------------------------------------------------


def room_of(state: State, team: str) -> int | None:
    """How many GPUs more its jobs may have; None: as many as there are."""
    if team not in state.at_once:
        return None
    return (state.team_rules[team].gpus_at_once or 0) - state.at_once[team]


def team_at_limit(state: State, job: Job) -> TeamAtLimit | None:
    spec = job.spec
    room = room_of(state, spec.team)
    if room is None or spec.gpus <= room:
        return None
    rule, used = state.team_rules[spec.team], state.at_once[spec.team]
    return TeamAtLimit(team=spec.team, used=used, needed=spec.gpus, limit=rule.gpus_at_once or 0, source=rule.source)


# --- headroom --------------------------------------------------------------------------------------------------------


def open_headroom(state: State, job_class: str, now: Instant) -> list[Headroom]:
    """What is kept free of jobs of this class now."""
    return [
        rule
        for rule in state.policy.governance.headroom
        if (not rule.job_class or rule.job_class != job_class) and open_until(state, rule.id, now) is not None
    ]


def kept_free(state: State, job_class: str, now: Instant) -> dict[str, int]:
    """By standing offer: free GPUs that jobs of this class may not use now; of a site's last offers first."""
    kept: dict[str, int] = {}
    for rule in open_headroom(state, job_class, now):
        site, left = state.sites.get(rule.site), rule.gpus
        for offer in reversed(site.offers if site else ()):
            if offer.id in state.pools and left:
                here = min(left, state.pools[offer.id].free_gpus - kept.get(offer.id, 0))
                kept[offer.id] = kept.get(offer.id, 0) + here
                left -= here
    return kept


def visible(pool: Pool, kept: int) -> Pool:
    """The pool as those see it from whom so many of its free GPUs are kept."""
    if not kept:
        return pool
    copy = pool.scratch()
    copy.take(_last_free(pool, kept))
    return copy


def _last_free(pool: Pool, gpus: int) -> Slots:
    """So many free GPUs of the last nodes: whole nodes where possible, and always the same ones."""
    slots: list[tuple[int, int]] = []
    for node in range(pool.size - 1, -1, -1):
        here = min(gpus, pool.free[node]) if pool.usable >> node & 1 else 0
        if here:
            slots.append((node, here))
            gpus -= here
    return tuple(slots)


def fits(state: State, lane: Lane, now: Instant) -> bool:
    """Whether a job of a limited lane may start on standing GPUs now."""
    room = room_of(state, lane.team) if lane.team else None
    if not lane.fits() or (room is not None and lane.width > room):
        return False
    kept = kept_free(state, lane.job_class, now)
    return any(visible(pool, kept.get(offer, 0)).fits(lane.width) for offer, pool in lane.seen())


def steps_aside(state: State, lane: Lane, now: Instant) -> bool:
    """A limit, and not the lack of free GPUs, keeps the lane's jobs: others go before them meanwhile."""
    room = room_of(state, lane.team) if lane.team else None
    return (room is not None and lane.width > room) or (lane.fits() and not fits(state, lane, now))


def hinder(state: State, job: Job, now: Instant) -> bool:
    """Whether a limit may keep the job from standing GPUs that others move away from."""
    return team_at_limit(state, job) is not None or bool(open_headroom(state, job.spec.job_class, now))


def hide(state: State, job_class: str, now: Instant) -> Hidden:
    """Take what is kept from jobs of this class out of the pools, for a decision that reads them; `show` it again
    before the step ends.
    """
    hidden: Hidden = []
    for offer, gpus in kept_free(state, job_class, now).items():
        pool = state.pools[offer]
        slots = _last_free(pool, gpus)
        pool.take(slots)
        hidden.append((pool, slots))
    return hidden


def show(hidden: Hidden) -> None:
    for pool, slots in hidden:
        pool.give(slots)


# --- rent ------------------------------------------------------------------------------------------------------------


def quiet_hours(state: State, now: Instant) -> InQuietHours | None:
    """The quiet hours that are open now, those that last longest."""
    latest: InQuietHours | None = None
    for rule in state.policy.governance.quiet_hours:
        until = open_until(state, rule.id, now)
        if until is not None and (latest is None or until > latest.ends_at):
            latest = InQuietHours(window=rule.id, ends_at=until, source=rule.source)
    return latest


def egress_spent(state: State, job: Job, now: Instant) -> EgressSpent | None:
    """Its output would exceed what its team may bring out of rented sites in this month."""
    rule, needed = state.team_rules.get(job.spec.team), job.spec.output_bytes
    if rule is None or rule.egress_bytes_per_month is None or not needed:
        return None
    period = state.ledger.period_at(now)
    used = state.egress.get((rule.team, period), 0)
    if used + needed <= rule.egress_bytes_per_month:
        return None
    return EgressSpent(
        team=rule.team,
        period=period,
        used_bytes=used,
        needed_bytes=needed,
        limit_bytes=rule.egress_bytes_per_month,
        source=rule.source,
    )


def egress_fits(state: State, jobs: list[Job], now: Instant) -> bool:
    """Whether the outputs of all these jobs together are within their teams' limits."""
    needed: dict[str, int] = {}
    for job in jobs:
        needed[job.spec.team] = needed.get(job.spec.team, 0) + job.spec.output_bytes
    period = state.ledger.period_at(now)
    for team, size_bytes in needed.items():
        rule = state.team_rules.get(team)
        limit = rule.egress_bytes_per_month if rule is not None else None
        if limit is not None and size_bytes and state.egress.get((team, period), 0) + size_bytes > limit:
            return False
    return True


def too_dear(state: State, job: Job, offer: Offer, cost: Money) -> TooDear | None:
    """The policy's limit on one burst, and the team's on all that one of its jobs costs."""
    above, rule = state.policy.governance.never_above, state.team_rules.get(job.spec.team)
    if above is not None and above.per_job is not None and cost > above.per_job:
        return TooDear(offer=offer.id, cost=cost, limit=above.per_job, spent=0, source=above.source)
    if rule is not None and rule.per_job is not None:
        account = state.ledger.accounts.get(("job:" + job.id, ""))
        spent = account.held + account.spent if account else 0
        if spent + cost > rule.per_job:
            return TooDear(offer=offer.id, cost=cost, limit=rule.per_job, spent=spent, source=rule.source)
    return None


def limits_prices(state: State, job: Job) -> bool:
    above, rule = state.policy.governance.never_above, state.team_rules.get(job.spec.team)
    return (above is not None and above.per_job is not None) or (rule is not None and rule.per_job is not None)


# --- how long jobs of a class may run --------------------------------------------------------------------------------


def left_to_run(state: State, job: Job) -> Millis | None:
    """Of what jobs of its class may run; None: as long as it takes."""
    rule = _longest(state, job)
    return None if rule is None else max(0, (rule.longest_ms or 0) - job.ran_ms)


def ran_too_long(state: State, job: Job, now: Instant) -> RanTooLong:
    rule, attempt = state.class_rules[job.spec.job_class], job.attempt
    runs_ms = 0 if attempt is None or attempt.started_at is None else now - attempt.started_at
    return RanTooLong(
        job_class=rule.name, ran_ms=job.ran_ms + runs_ms, longest_ms=rule.longest_ms or 0, source=rule.source
    )


def _longest(state: State, job: Job) -> ClassRule | None:
    rule = state.class_rules.get(job.spec.job_class)
    return rule if rule is not None and rule.longest_ms is not None else None


def needed_ms(state: State, job: Job, start_ms: Millis) -> Millis:
    """How long something that is rented for the job now can be of use to it; NEVER: as long as it takes."""
    left_ms = left_to_run(state, job) if state.class_rules else None
    return NEVER if left_ms is None else start_ms + left_ms
