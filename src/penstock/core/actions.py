"""What to do, in the imperative. Each is idempotent by its id: told twice, a driver does it once."""

from typing import TypeAlias

from penstock.core.units import Instant, Millis
from penstock.core.values import value


@value
class LaunchNode:
    node: str
    offer: str
    gpus: int
    attempt: str  # whom it is for
    deadline_at: Instant


@value
class ReleaseNode:
    node: str


@value
class StartAttempt:
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


@value
class StopAttempt:
    attempt: str
    grace_ms: Millis


@value
class SetDeadline:
    """Move the moment at which the running thing ends by itself. The promise counts from when this is sent."""

    thing: str
    deadline_at: Instant


@value
class CopyData:
    data_set: str
    site: str


Action: TypeAlias = LaunchNode | ReleaseNode | StartAttempt | StopAttempt | SetDeadline | CopyData
