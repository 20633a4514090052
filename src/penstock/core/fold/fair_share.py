"""Fair share: each team's GPU-time on owned GPUs, decayed by half each half-life.

Fed by standing GPUs taken and freed; `ordering` gives the next turn to the team with the least use for its weight.
"""

from penstock.core.model.types import Policy
from penstock.core.units import PERMILLE, Instant, Millis


class Use:
    """One team's use. Running GPUs add up between events; the past decays."""

    __slots__ = ("at", "gpu_ms", "gpus")

    def __init__(self) -> None:
        self.gpus = 0  #: GPUs on standing offers now
        self.gpu_ms = 0  #: decayed, as of `at`
        self.at: Instant = 0

    def change(self, gpus: int, now: Instant, half_ms: Millis) -> None:
        self.gpu_ms, self.at = self.by(now, half_ms), now
        self.gpus += gpus

    def by(self, now: Instant, half_ms: Millis) -> int:
        passed = now - self.at
        return fade(self.gpu_ms, passed, half_ms) + self.gpus * min(passed, half_ms)


def fade(amount: int, passed_ms: Millis, half_ms: Millis) -> int:
    """Halved for every half-life; in between along a straight line, so that whole numbers do."""
    halves, rest = divmod(passed_ms, half_ms)
    if halves > 62:
        return 0
    left = amount >> halves
    return left - left * rest // (2 * half_ms)


def had(uses: dict[str, Use], team: str, policy: Policy, now: Instant) -> int:
    """What the team had lately, for its weight: who had least is next."""
    use = uses.get(team)
    if use is None:
        return 0
    return use.by(now, policy.half_life_ms) * PERMILLE // weight(policy, team)


def weight(policy: Policy, team: str) -> int:
    """In thousandths: its share by the policy file, or what the named shares leave; else by `shares`."""
    if policy.governance.teams:
        named = {rule.team: rule.share_permille for rule in policy.governance.teams if rule.share_permille is not None}
        if named:
            return max(1, named[team] if team in named else PERMILLE - sum(named.values()))
    return max(1, dict(policy.shares).get(team, PERMILLE)) if policy.shares else PERMILLE
