"""What a policy file says, as values: `policy` reads them from the file, `PolicySet` records them, `decide` obeys them.

Each part names its `source`, the file and line it stands in, so that every verdict and every "not yet" can point to it.
Amounts are the organisation's currency. An empty `Governance` governs nothing: all is as without a policy file.
"""

from typing import Final, Literal, TypeAlias

from penstock.core.units import Millis, Money
from penstock.core.values import value

#: `owned`: never rented. `owned_first`: as the engine weighs it. `rented`: never on owned GPUs; no trigger is asked.
Where: TypeAlias = Literal["owned", "owned_first", "rented"]
Spot: TypeAlias = Literal["allowed", "required", "forbidden"]
TriggerKind: TypeAlias = Literal["queued_jobs", "expected_wait", "utilisation", "deadline_at_risk"]
#: What of a job makes its shape only while a rule reads it: its own cap, whether it has a deadline, who submitted it.
ShapedBy: TypeAlias = Literal["cap", "deadline", "user"]


@value
class ClassRule:
    """How jobs of one class are placed."""

    name: str
    where: Where = "owned_first"
    spot: Spot = "allowed"  # of rented offers
    longest_ms: Millis | None = None  # run time over all attempts; a job is stopped with its checkpoint in time
    cost_of_delay: Money | None = None  # of one job's hour; None: the policy's own
    preempts: tuple[str, ...] = ()  # classes whose interruptible jobs it may stop for owned GPUs
    because: str = ""
    source: str = ""


@value
class Allow:
    """What may be rented; owned GPUs are not asked. An empty list allows all; a name may end in `*`."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    source: str = ""


@value
class TeamRule:
    """What binds one team beside its caps on money, which are `CapSet`, and what admission asks of it."""

    team: str
    share_permille: int | None = None  # of the owned GPUs; a team above it bursts, or is displaced, first
    gpus_at_once: int | None = None  # over owned and rented ones
    per_job: Money | None = None  # rent of one job, over all its attempts
    egress_bytes_per_month: int | None = None  # declared outputs that leave a rented site
    allow: Allow | None = None  # beside the policy's own: both must allow
    source: str = ""


@value
class BurstTrigger:
    """A condition of the moment. If a policy has any, at least one must hold for a job to burst."""

    kind: TriggerKind
    threshold: int  # jobs, milliseconds, thousandths; 1 for `deadline_at_risk`
    for_ms: Millis = 0  # how long it must have held
    source: str = ""


@value
class PriceLimit:
    """Never burst above: a quote beyond it is passed over."""

    per_gpu_hour: Money | None = None
    per_job: Money | None = None
    source: str = ""


@value
class Window:
    """Hours of the day in a time zone. The core only carries it along; `policy.hours` tells when it is open."""

    id: str  # names the hours, so that other hours are another window
    from_minute: int  # of the local day
    to_minute: int  # not after `from_minute`: of the next day
    zone: str = "UTC"
    days: tuple[int, ...] = ()  # on which it begins, Monday is 0; empty: every day


@value
class QuietHours:
    """While it is open nothing new is rented. When it is open comes in as events: the core knows no time zones."""

    id: str  # of its window
    source: str = ""


@value
class Headroom:
    """Owned GPUs kept free for jobs of one class while its hours are open; an empty class: for other people's pods."""

    id: str  # of its window
    site: str
    gpus: int
    job_class: str = ""
    source: str = ""


@value
class ApprovalRule:
    """Jobs for which `when` holds wait for a person with the role `by`; unanswered within the time means no."""

    name: str
    when: str  # CEL over job, offer, quote
    by: str  # a role
    within_ms: Millis = 0
    because: str = ""
    source: str = ""


@value
class DenyRule:
    """A rule in CEL over what makes a job's shape, and an offer with its site. True, or an error, denies."""

    name: str
    deny: str
    because: str = ""
    source: str = ""


@value
class Governance:
    classes: tuple[ClassRule, ...] = ()  # empty: any class, all alike
    teams: tuple[TeamRule, ...] = ()
    burst_when: tuple[BurstTrigger, ...] = ()
    never_above: PriceLimit | None = None
    allow: Allow | None = None
    quiet_hours: tuple[QuietHours, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    idle_nodes_end_after_ms: Millis | None = None
    approvals: tuple[ApprovalRule, ...] = ()
    rules: tuple[DenyRule, ...] = ()
    shaped_by: tuple[ShapedBy, ...] = ()  # what `rules` read beside what always makes a shape
    windows: tuple[Window, ...] = ()  # the hours of `quiet_hours` and `headroom`
    version: int = 0  # of the file's schema; 0: there is no file
    digest: str = ""  # of the file's text
    caps_take_two: bool = False  # a raised cap holds only once a second person has approved it; the routes ask


NONE: Final = Governance()
