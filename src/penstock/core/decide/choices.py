"""The decisions of one step as they are made, and the start promise that all of them build. Every file of `decide` that
promises something takes a `Choices`.
"""

from penstock.core.decide import quotes
from penstock.core.decide.rules import BuiltInRules, Rules, Verdict
from penstock.core.fold.apply import APPLY
from penstock.core.fold.pool import Slots
from penstock.core.fold.state import Job, State
from penstock.core.ids import attempt_id
from penstock.core.model.events import Promise, StartPromised
from penstock.core.model.reasons import Reason
from penstock.core.model.types import Hold, NodeAsk, Offer, Policy
from penstock.core.units import Instant, Millis


class Choices:
    """The decisions of one step: every promise is applied as it is made, so the next choice sees it."""

    __slots__ = ("foreseen", "now", "pools", "promises", "rules", "state")

    def __init__(self, state: State, now: Instant) -> None:
        self.state, self.now = state, now
        self.rules: Rules = BuiltInRules()  #: the engine's own, from the first step on
        self.promises: list[Promise] = []
        #: Simulated start delays of the jobs weighed in this step, cached because they are asked for twice.
        self.foreseen: dict[str, Millis] | None = None
        #: What the rules say of each offer's pool, with the offer and the policy that were asked about: they are asked
        #: once, not in every step.
        self.pools: dict[str, tuple[Offer, Policy, Verdict]] = {}

    def record(self, promise: Promise) -> None:
        APPLY[type(promise)](self.state, promise)
        self.promises.append(promise)


def promise_start(
    choices: Choices,
    job: Job,
    offer: Offer,
    because: Reason,
    width: int,
    speed: int,
    after: tuple[str, ...],  # attempts that must end first
    slots: Slots = (),  # on standing GPUs: which ones
    nodes: tuple[NodeAsk, ...] = (),  # on rented ones: nodes to launch, or a hold for the attempt, or a node to join
    hold: Hold | None = None,
    joins: str = "",
    ends_by: Instant = 0,  # of a backfill, as `StartPromised` says
) -> StartPromised:
    """Builds every start promise."""
    copies = quotes.missing_data(choices.state, job, offer, choices.now) if job.spec.data else ()
    if slots and choices.state.yielding:
        after = tuple(dict.fromkeys((*after, *_still_there(choices.state, offer, slots))))
    attempt = attempt_id(job.id, job.attempts + 1) if hold is None else hold.id
    now, resume_ms = choices.now, job.kept_ms
    return StartPromised(
        now,
        job.id,
        attempt,
        offer.id,
        width,
        speed,
        resume_ms,
        slots,
        nodes,
        hold,
        after,
        copies,
        because,
        joins,
        ends_by,
    )


def _still_there(state: State, offer: Offer, slots: Slots) -> list[str]:
    """Attempts that yielded GPUs of these nodes and have not stopped yet; more may be free than the
    beneficiary took.
    """
    nodes = [node for node, _ in slots]
    leaving = [other for other in state.yielding.values() if other.offer.id == offer.id]
    return [other.id for other in leaving if any(node in nodes for node, _ in other.yielded)]
