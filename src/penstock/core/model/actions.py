"""What to do, in the imperative. Each is idempotent by its id: told twice, a driver does it once.

Everything that holds for an action wherever it is carried out is declared here: what it is about, and which facts
answer it. Dispatch, rehearsal and the tests' own bookkeeping are derived from that. Where it goes follows from its
fields: to its `site` or the site of its `offer`, and without these to wherever the thing is that it is about.
"""

from typing import Final, TypeAlias, assert_never, get_args

from penstock.core.model import events as e
from penstock.core.units import Instant, Millis
from penstock.core.values import value


@value
class LaunchNode:
    """Rent a node. Done when it is ready."""

    node: str
    offer: str
    gpus: int
    attempt: str  # whom it is for
    deadline_at: Instant


@value
class ReleaseNode:
    """Give a node back. Done when the provider bills it no more."""

    node: str


@value
class StartAttempt:
    """Run an attempt of a job. Done when it runs."""

    attempt: str
    job: str
    offer: str
    width: int
    speed_permille: int
    resume_ms: Millis
    slots: tuple[tuple[int, int], ...]
    nodes: tuple[str, ...]
    deadline_at: Instant  # NEVER on standing offers
    earlier: str = ""  # the attempt whose checkpoint it resumes from, empty if there is none
    places: tuple[str, ...] = ()  # the site's own names for the nodes of `slots`, where it has told them
    pinned: bool = False  # nowhere else: it backfills these nodes, which are reserved for another job
    reserved: tuple[str, ...] = ()  # nodes that are reserved for other jobs: not there


@value
class StopAttempt:
    """Tell an attempt to save its work and end. Done when it has been told; its end is a fact of its own."""

    attempt: str
    grace_ms: Millis


@value
class SetDeadline:
    """Move the moment at which the running thing ends by itself. The promise counts from when this is sent."""

    thing: str
    deadline_at: Instant


@value
class CopyData:
    """Bring a data set to a site. Done when all of it is there."""

    data_set: str
    site: str


Action: TypeAlias = LaunchNode | ReleaseNode | StartAttempt | StopAttempt | SetDeadline | CopyData
ACTIONS: Final[tuple[type, ...]] = get_args(Action)

#: Facts that answer an action, about the same thing: it is not said again. The end of that thing answers it, too.
ANSWERS: Final[dict[type, tuple[type, ...]]] = {
    LaunchNode: (e.NodeReady, e.NodeRefused),
    ReleaseNode: (e.NodeGone,),
    StartAttempt: (e.AttemptStarted, e.AttemptRefused),
    StopAttempt: (),
    SetDeadline: (e.DeadlineSet,),
    CopyData: (e.ReplicaLanded,),
}
#: Actions that begin or end a thing. A newer one takes the place of an older one; all others stand beside them.
LIFE: Final[tuple[type, ...]] = (LaunchNode, ReleaseNode, StartAttempt, StopAttempt)
#: How a thing ends: it never begins again.
OVER: Final = (e.AttemptEnded, e.AttemptStopped, e.AttemptLost, e.AttemptRefused, e.NodeLost, e.NodeGone, e.NodeRefused)


def thing_of(action: Action) -> str:
    """The id of what an action is about."""
    match action:
        case LaunchNode() | ReleaseNode():
            return action.node
        case StartAttempt() | StopAttempt():
            return action.attempt
        case SetDeadline():
            return action.thing
        case CopyData():
            return f"{action.data_set} at {action.site}"
        case _:
            assert_never(action)


def thing_of_fact(fact: e.Fact) -> str:
    """The same id, as a fact names it that answers an action."""
    if isinstance(fact, e.ReplicaLanded):
        return f"{fact.data_set} at {fact.site}"
    return e.order(fact)[2]


def subject_of(action: Action) -> tuple[str, str]:
    """Of two actions with one subject only the newer is carried out: a stop does not wait for a start that hangs."""
    return "life" if type(action) in LIFE else type(action).__name__, thing_of(action)
