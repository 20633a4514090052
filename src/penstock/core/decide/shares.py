"""Shares of the owned GPUs: which teams have more than the policy gives them. `placement` and `preemption` ask.

A share is a claim, not a cap: while nobody else wants them, a team may use more owned GPUs than its share. When a team
within its share waits for them, jobs of a team above its own burst sooner, or move out, at their own team's cost.
"""

from penstock.core.decide.governance import team_rule
from penstock.core.fold.state import Job, State
from penstock.core.model.governance import TeamRule
from penstock.core.model.reasons import AboveShare, ShareReturned
from penstock.core.units import PERMILLE, Money
from penstock.core.values import value


@value
class Above:
    """A job with which its team would have more than its share, and a team within its own that waits."""

    rule: TeamRule
    gpus: int
    share_gpus: int
    waiting_team: str


def above(state: State, job: Job) -> Above | None:
    """Only the first of each lane is asked who waits: under fair share each team has its own lanes."""
    rule = team_rule(state.policy.governance, job.spec.team)
    if rule is None or rule.share_permille is None:
        return None
    has, share = _has(state, rule.team), _share_gpus(state, rule)
    if has + job.spec.gpus <= share:
        return None
    for lane in state.lanes:
        head = lane.head()
        if head is None or head.spec.team == rule.team or not _wants_the_same(head, job):
            continue
        if is_within(state, head):
            return Above(rule, has, share, head.spec.team)
    return None


def is_within(state: State, job: Job) -> bool:
    """Whether its team would still be within its share with this job. A team without a share claims nothing."""
    rule = team_rule(state.policy.governance, job.spec.team)
    if rule is None or rule.share_permille is None:
        return False
    return _has(state, rule.team) + job.spec.gpus <= _share_gpus(state, rule)


def spare(state: State) -> dict[str, int]:
    """Of each team above its share: how many owned GPUs it has beyond it."""
    spare_gpus: dict[str, int] = {}
    for rule in state.policy.governance.teams:
        if rule.share_permille is not None:
            spare_gpus[rule.team] = max(0, _has(state, rule.team) - _share_gpus(state, rule))
    return spare_gpus


def burst_reason(above_share: Above, cost: Money) -> AboveShare:
    return AboveShare(
        team=above_share.rule.team,
        gpus=above_share.gpus,
        share_gpus=above_share.share_gpus,
        waiting_team=above_share.waiting_team,
        cost=cost,
        where=above_share.rule.source,
    )


def return_reason(state: State, gainer: Job, job: Job, cost: Money) -> ShareReturned:
    rule = team_rule(state.policy.governance, job.spec.team)
    assert rule is not None
    return ShareReturned(
        gainer=gainer.id,
        gainer_team=gainer.spec.team,
        team=rule.team,
        gpus=_has(state, rule.team),
        share_gpus=_share_gpus(state, rule),
        cost=cost,
        where=rule.source,
    )


def _wants_the_same(other: Job, job: Job) -> bool:
    return any(offer in job.shape.standing for offer in other.shape.standing)


def _has(state: State, team: str) -> int:
    """Standing GPUs that its jobs use or are promised."""
    return sum(
        [attempt.width for attempt in state.attempts.values() if attempt.slots and attempt.job.spec.team == team]
    )


def _share_gpus(state: State, rule: TeamRule) -> int:
    """Of all standing GPUs of nodes that are up."""
    total = sum([pool.up.bit_count() * pool.per_node for pool in state.pools.values()])
    return total * (rule.share_permille or 0) // PERMILLE
