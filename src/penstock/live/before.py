"""Fills in what a person's request replaces: the cap, the offer or the phase before it. The sequencer calls it with
each fact that it stamps, so that the audit trail says before and after.
"""

from dataclasses import replace
from typing import Final

from penstock.core.fold.job_approvals import open_request
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.units import Money
from penstock.journal.states import job_state

#: Facts that replace something. All others pass unchanged, and submissions pay nothing for this.
REPLACES: Final = (
    e.SiteJoined,
    e.SiteRemoved,
    e.CapSet,
    e.CapRaiseAsked,
    e.CancelRequested,
    e.MoveRequested,
    e.ApprovalAnswered,
)


class Before:
    """What was before each fact of one batch, the batch's earlier facts included."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.caps: dict[str, tuple[Money | None, Money | None]] = {}

    def with_before(self, fact: e.Fact) -> e.Fact:
        match fact:
            case e.CapSet(scope=scope):
                ledger = self.state.ledger
                per_period, per_hour = self.caps.get(scope, (ledger.caps.get(scope), ledger.rate_caps.get(scope)))
                self.caps[scope] = fact.per_period, fact.per_hour
                return replace(fact, before_per_period=per_period, before_per_hour=per_hour)
            case e.CapRaiseAsked(scope=scope):
                ledger = self.state.ledger
                per_period, per_hour = self.caps.get(scope, (ledger.caps.get(scope), ledger.rate_caps.get(scope)))
                return replace(fact, before_per_period=per_period, before_per_hour=per_hour)
            case e.CancelRequested(job=name, by=by) if by and (job := self.state.jobs.get(name)) is not None:
                return replace(fact, before=job_state(job.phase, job.attempt.phase if job.attempt else ""))
            case e.MoveRequested(job=name, by=by) if by and (job := self.state.jobs.get(name)) is not None:
                return replace(fact, before=job.offer)
            case e.SiteJoined(site=site):
                return replace(fact, before=self.state.sites.get(site.id))
            case e.SiteRemoved(site=name):
                return replace(fact, before=self.state.sites.get(name))
            case e.ApprovalAnswered(job=name):
                return self._answered(fact, name)
            case _:
                return fact

    def _answered(self, fact: e.ApprovalAnswered, job: str) -> e.Fact:
        """With the rule that asks and the amount, so that the audit trail has them whatever is asked later."""
        known = self.state.approvals.get(job)
        asked = open_request(known, fact.rule, self.state.at)
        if known is None or asked is None:
            return fact
        amount = asked.amount if fact.amount is None else min(fact.amount, asked.amount)
        return replace(fact, rule=asked.rule, amount=amount, before=known.granted.get(asked.rule))
