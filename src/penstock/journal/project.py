"""What a step changes in the tables: pure, and the same for every database. `keeper` writes what it says.

    changes = project(tables, steps)

Each event has a function that follows it, in the `follow` file of its subject. After any history a job's line says what
the engine's state says of it (`tests/journal/test_project.py`). Like `core.fold`, all of them take facts that come
twice or too late, and those change nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.core import events as e
from penstock.journal import follow_attempts as attempts
from penstock.journal import follow_jobs as jobs
from penstock.journal import follow_money as money
from penstock.journal import follow_places as places
from penstock.journal import lines as t
from penstock.journal.tables import Changes, Tables


def project(tables: Tables, steps: Iterable[Any]) -> Changes:
    """Take in these steps (or rows read back), and say what that changes."""
    changes = tables.changes = Changes()
    for step in steps:
        for part, event in enumerate((*step.inputs, *step.outputs)):
            for job in _concerned(tables, event):
                changes.put(t.Happened(step.number, part, job, type(event).__name__))
            follow = FOLLOW.get(type(event))
            if follow is not None:
                follow(tables, event)
        tables.forget_ended()  # after each, so that how steps are grouped changes nothing
    return changes


# --- who is concerned ------------------------------------------------------------------------------------------------


def _concerned(tables: Tables, event: Any) -> Iterable[str]:
    """The jobs this event is about; `""` if it is about all of them; none if it is not worth telling."""
    kind = type(event)
    if kind in UNTOLD:
        return ()
    if kind is e.JobSubmitted:
        return jobs.members(event.job, event.spec.count) if event.number > tables.numbered else ()
    if hasattr(event, "job"):
        return (event.job,)
    if hasattr(event, "attempt"):
        attempt = tables.attempts.get(event.attempt)
        return (attempt.job,) if attempt else ()
    thing = getattr(event, "hold", None) or getattr(event, "node", "")
    if not thing:
        return ("",)
    hold = tables.holds.get(thing)
    return (tables.attempts[hold.attempt].job if hold else "",)


#: Said often, and of no interest once the next one is said.
UNTOLD: Final = (e.Woke, e.Metered, e.DeadlineSet, e.ShapeJudged)


FOLLOW: Final[dict[type, Callable[[Tables, Any], None]]] = {
    e.AttemptCheckpointed: attempts.attempt_checkpointed,
    e.AttemptEnded: attempts.attempt_ended,
    e.AttemptLost: attempts.attempt_lost,
    e.AttemptRefused: attempts.attempt_refused,
    e.AttemptStarted: attempts.attempt_started,
    e.AttemptStopped: attempts.attempt_stopped,
    e.CancelRequested: jobs.cancel_requested,
    e.CapSet: places.cap_set,
    e.JobRefused: jobs.job_refused,
    e.JobSubmitted: jobs.job_submitted,
    e.LeaseRenewed: money.lease_renewed,
    e.LeaseShortened: money.lease_shortened,
    e.NodeGone: places.node_lost,
    e.NodeLost: places.node_lost,
    e.NodeReady: places.node_ready,
    e.NodeRefused: places.node_refused,
    e.OfferClosed: places.offer_closed,
    e.OfferOpened: places.offer_opened,
    e.PeriodOpened: places.period_opened,
    e.PolicySet: places.policy_set,
    e.ReleasePromised: places.release_promised,
    e.ReplicaLanded: places.replica_landed,
    e.Settled: money.settled,
    e.SiteJoined: places.site_joined,
    e.StartPromised: attempts.start_promised,
    e.ReservePromised: jobs.reserve_promised,
    e.StopPromised: attempts.stop_promised,
    e.WaitPromised: jobs.wait_promised,
}
