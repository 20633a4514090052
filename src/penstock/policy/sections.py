"""The policy file's keys, one class per level. Each says what it means: docs/policy.md and the JSON Schema for editors
are made of this file.
"""

from typing import Annotated, Final, Literal

import msgspec

from penstock.config.convert import Says, Section
from penstock.config.scalars import (
    Amount,
    CelText,
    Count,
    Currency,
    Duration,
    Flag,
    Interval,
    Name,
    NamePattern,
    NamespacePath,
    Percent,
    Priority,
    Role,
    Size,
    Text,
    TimeOfDay,
    TimeZone,
)
from penstock.config.sections import Weekday
from penstock.core.model.governance import Spot, Where
from penstock.core.units import GB, HOUR, MINUTE

VERSION: Final = 1  #: of the file's schema: the newest that is read


class LimitsSection(Section, frozen=True):
    """Money is held before it is spent, so a cap is never overrun. A start lowers a cap by itself and never
    raises one: a raised cap waits until a person accepts it (`--accept-raised-caps`, or `penstock budget`).
    """

    per_month: Annotated[Amount | None, Says("an amount of rent a month", "no cap")] = None
    per_hour: Annotated[Amount | None, Says("an amount: how fast money may be spent", "no cap")] = None


class AllowSection(Section, frozen=True):
    """What may be rented; GPUs that you own are not asked. A list that is left out allows all. A name may end
    in `*`. Where a list is given, an offer of which Penstock does not know the cloud, region, family or GPU is
    not allowed.
    """

    clouds: Annotated[tuple[NamePattern, ...], Says("a list of clouds, as `cloud` of a site", "all")] = ()
    regions: Annotated[tuple[NamePattern, ...], Says("a list of regions, as `region` of a site", "all")] = ()
    families: Annotated[tuple[NamePattern, ...], Says("a list of node families, as `family` of an offer", "all")] = ()
    gpus: Annotated[tuple[NamePattern, ...], Says("a list of GPU models, as `gpu` of an offer", "all")] = ()


class TeamRulesSection(Section, frozen=True):
    """What a team may spend and use. Penstock checks `projects`, `classes`, `highest_priority`, `queued_jobs`
    and `journal_per_day` before a job is recorded, for job files and Kubernetes Jobs alike; operators and
    admins are bound by the last two only. A project that any team lists, or that has a cap, is booked to by the
    teams that list it. A team that is named here is booked to by its own tokens and by Jobs of its own
    `namespaces`.
    """

    per_month: Annotated[Amount | None, Says("an amount of rent a month", "no cap")] = None
    per_hour: Annotated[Amount | None, Says("an amount: how fast it may spend", "no cap")] = None
    per_job: Annotated[Amount | None, Says("an amount: rent of one job, over all its attempts", "no cap")] = None
    share: Annotated[
        Percent | None,
        Says("a percentage of the owned GPUs; above it the team bursts, or is displaced, first", "no share"),
    ] = None
    gpus_at_once: Annotated[Count | None, Says("GPUs that it may use at once, owned and rented", "no limit")] = None
    egress_per_month: Annotated[
        Size | None, Says("a size: declared outputs of its jobs that leave rented sites", "no limit")
    ] = None
    projects: Annotated[
        tuple[Name, ...],
        Says("projects whose budget its jobs may spend, too", "projects without a cap that no team lists"),
    ] = ()
    namespaces: Annotated[
        tuple[NamespacePath, ...],
        Says(
            "namespaces whose Jobs are booked to it: `NAMESPACE` at every front door and Kueue, `SITE/NAMESPACE`, or "
            "`KUEUE/NAMESPACE`",
            "none",
        ),
    ] = ()
    classes: Annotated[tuple[Name, ...] | None, Says("the classes that its jobs may have", "all")] = None
    highest_priority: Annotated[Priority, Says("a whole number from -1000 to 1000", "`1000`")] = Priority(1000)
    allow: Annotated[AllowSection | None, Says("what it may rent; both this and the file's own must allow", "all")] = (
        None
    )
    queued_jobs: Annotated[
        Count, Says("jobs that it may have in the queue, with each member of an array counted", "`10000`")
    ] = Count(10_000)
    journal_per_day: Annotated[
        Size, Says("a size: what its requests may add to the journal, an eighth of it at once", "`2GB`")
    ] = Size(2 * GB)


class ClassSection(Section, frozen=True):
    """Placement by kind of work. If the file names classes, a job must have one of them; if it names none, any
    class will do and all are alike.
    """

    where: Annotated[
        Where,
        Says(
            "`owned`: never rented. `owned_first`: rented when delay costs more. `rented`: never on owned GPUs, and "
            "`burst_when` is not asked",
            "`owned_first`",
        ),
    ] = "owned_first"
    spot: Annotated[Spot, Says("of rented GPUs: `allowed`, `required` or `forbidden`", "`allowed`")] = "allowed"
    longest: Annotated[
        Interval | None,
        Says("a duration: run time over all attempts; the job saves a checkpoint and stops in time", "no limit"),
    ] = None
    cost_of_delay: Annotated[
        Amount | None, Says("an amount: what an hour of delay costs, for one job of this class", "the file's own")
    ] = None
    preempts: Annotated[
        tuple[Name, ...],
        Says(
            "classes below it: whose interruptible jobs it may stop to get owned GPUs, whatever their priority", "none"
        ),
    ] = ()
    because: Annotated[Text | None, Says("why, in a few words; shown with the reason", "nothing")] = None


class BurstWhenSection(Section, frozen=True):
    """When a job may burst at all. If there is a list, at least one of its conditions must hold, beside the
    engine's own weighing of delay against rent. Each has one of the first four keys.
    """

    queued_jobs: Annotated[Count | None, Says("at least so many jobs are queued", "not asked")] = None
    expected_wait: Annotated[
        Interval | None, Says("a duration: the job is expected to wait at least this long", "not asked")
    ] = None
    utilisation: Annotated[
        Percent | None, Says("a percentage: at least this share of the owned GPUs is busy", "not asked")
    ] = None
    deadline_at_risk: Annotated[
        Flag, Says("the job would miss its deadline if it waited for owned GPUs", "`false`")
    ] = Flag(False)
    held_for: Annotated[
        Duration, Says("a duration: how long `queued_jobs` or `utilisation` must have held", "`0s`")
    ] = msgspec.field(name="for", default=Duration(0))


class PriceLimitSection(Section, frozen=True):
    """An offer that costs more is passed over, however long the job waits."""

    per_gpu_hour: Annotated[Amount | None, Says("an amount for one GPU and hour", "no limit")] = None
    per_job: Annotated[Amount | None, Says("an amount for the whole job, as quoted", "no limit")] = None


class DataClassSection(Section, frozen=True):
    """Where data of a class may go beside the site where it is: to each site in `sites`, and to each site that
    is in one of `locations` and under one of `laws`. If only one of these two is given, it alone decides. A
    class without a rule goes nowhere.
    """

    sites: Annotated[tuple[Text, ...], Says('a list of sites, or `["*"]` for all', "none")] = ()
    locations: Annotated[
        tuple[Text, ...],
        Says("a list; no word means the European Union: list its countries", "any, if there are `laws`"),
    ] = ()
    laws: Annotated[tuple[Text, ...], Says("a list", "any, if there are `locations`")] = ()


class QuietHoursSection(Section, frozen=True):
    """While these hours last, nothing new is rented. What runs goes on."""

    begins: Annotated[TimeOfDay, Says("a time of day, in quotes")] = msgspec.field(name="from")
    ends: Annotated[TimeOfDay, Says("a time of day; if it is not after `from`, it is the next day's")] = msgspec.field(
        name="to"
    )
    zone: Annotated[TimeZone, Says("the time zone of both", "`UTC`")] = TimeZone("UTC")
    days: Annotated[tuple[Weekday, ...], Says("a list of the days on which they begin: `[mon, fri]`", "every day")] = ()
    owned_only: Annotated[Flag, Says("only owned GPUs are used; to allow renting, leave the hours out", "`true`")] = (
        Flag(True)
    )


class HeadroomSection(Section, frozen=True):
    """Owned GPUs that are kept free during these hours, for jobs of one class or for pods that Penstock does
    not run.
    """

    site: Annotated[Name, Says("a site with owned GPUs")]
    gpus: Annotated[Count, Says("a whole number")]
    begins: Annotated[TimeOfDay, Says("a time of day, in quotes", '`"00:00"`')] = msgspec.field(
        name="from", default=TimeOfDay(0)
    )
    ends: Annotated[TimeOfDay, Says("a time of day; if it is not after `from`, it is the next day's", '`"24:00"`')] = (
        msgspec.field(name="to", default=TimeOfDay(1440))
    )
    zone: Annotated[TimeZone, Says("the time zone of both", "`UTC`")] = TimeZone("UTC")
    days: Annotated[tuple[Weekday, ...], Says("a list of the days on which they begin: `[mon, fri]`", "every day")] = ()
    job_class: Annotated[Name | None, Says("the class whose jobs may use them", "pods that are not Penstock's")] = (
        msgspec.field(name="for", default=None)
    )


class ApprovalSection(Section, frozen=True):
    """Jobs that wait for a person. Unanswered within the time means no, and nobody approves their own job."""

    when: Annotated[CelText, Says("a condition in CEL over `job`, `offer` and `quote`")]
    by: Annotated[Role, Says("who may approve: `role:approver`, `role:operator` or `role:admin`")]
    within: Annotated[Interval, Says("a duration: how long an answer is waited for")]
    name: Annotated[Name | None, Says("its name, in reasons", "`approval-1` for the first, and so on")] = None
    because: Annotated[Text | None, Says("why, in a few words", "nothing")] = None


class RuleSection(Section, frozen=True):
    """A condition in CEL, for what the other keys cannot say. It has `deny`, or `approval` with `by` and
    `within`. Deny wins over allow. A condition that cannot be evaluated denies, and the reason says so.
    """

    name: Annotated[Name, Says("its name, in reasons")]
    deny: Annotated[CelText | None, Says("a job may not use an offer for which this holds", "`approval` is needed")] = (
        None
    )
    approval: Annotated[
        CelText | None,
        Says("a job waits for a person before it uses an offer for which this holds", "`deny` is needed"),
    ] = None
    by: Annotated[
        Role | None, Says("with `approval`: who may approve, as in `approvals`", "needed with `approval`")
    ] = None
    within: Annotated[
        Interval | None, Says("with `approval`: how long an answer is waited for", "needed with `approval`")
    ] = None
    because: Annotated[Text | None, Says("why, in a few words; shown with the reason", "nothing")] = None


class PolicyFileSection(Section, frozen=True, kw_only=True):
    """Everything but `version` may be left out."""

    version: Annotated[Count, Says("of this file's form: `1`")]
    currency: Annotated[
        Currency | None, Says("of all amounts here; it must be the sites file's", "the sites file's")
    ] = None
    organisation: Annotated[LimitsSection | None, Says("what everybody together may spend, below", "no cap")] = None
    projects: Annotated[
        dict[Name, LimitsSection],
        Says("by name: what a project may spend; its keys are those of `organisation`", "none"),
    ] = msgspec.field(default_factory=dict)
    teams: Annotated[dict[Name, TeamRulesSection], Says("by name: what a team may spend and use, below", "none")] = (
        msgspec.field(default_factory=dict)
    )
    classes: Annotated[dict[Name, ClassSection], Says("by name: how its jobs are placed, below", "any, all alike")] = (
        msgspec.field(default_factory=dict)
    )
    burst_when: Annotated[
        tuple[BurstWhenSection, ...], Says("a list of conditions of the moment, below", "the engine weighs alone")
    ] = ()
    never_burst_above: Annotated[PriceLimitSection | None, Says("prices that are too high, below", "no limit")] = None
    allow: Annotated[AllowSection | None, Says("what may be rented, below", "all")] = None
    data: Annotated[
        dict[Name, DataClassSection], Says("by class: where data may go, below", "data stays where it lives")
    ] = msgspec.field(default_factory=dict)
    quiet_hours: Annotated[tuple[QuietHoursSection, ...], Says("a list of hours without renting, below", "none")] = ()
    idle_nodes_end_after: Annotated[
        Duration | None, Says("a duration: a rented node that is idle this long is given back", "when that pays")
    ] = None
    headroom: Annotated[tuple[HeadroomSection, ...], Says("a list of owned GPUs to keep free, below", "none")] = ()
    approvals: Annotated[tuple[ApprovalSection, ...], Says("a list: which jobs wait for a person, below", "none")] = ()
    rules: Annotated[tuple[RuleSection, ...], Says("a list of rules in CEL, below", "none")] = ()
    hard_caps: Annotated[Flag, Says("refuse rented offers whose `guarantee` is `none`", "`false`")] = Flag(False)
    caps_take_two: Annotated[
        Flag, Says("a cap that anybody raises, an operator too, holds once another person has approved it", "`false`")
    ] = Flag(False)
    cost_of_delay: Annotated[
        Amount,
        Says(
            "an amount: what an hour of delay costs, for one job. Jobs burst when delay costs more than renting", "`20`"
        ),
    ] = Amount(20)
    longest_wait: Annotated[
        Interval, Says("a duration: the longest that a job waits for owned GPUs before it bursts", "`23h`")
    ] = Interval(23 * HOUR)
    come_home: Annotated[Flag, Says("may rented jobs move to owned GPUs when that pays?", "`true`")] = Flag(True)
    share_nodes: Annotated[
        Flag, Says("may a burst join a rented node of the same team that has free GPUs?", "`true`")
    ] = Flag(True)
    stay: Annotated[Duration, Says("a duration: how long a job stays at least after a move", "`30m`")] = Duration(
        30 * MINUTE
    )
    least_left: Annotated[Duration, Says("a duration: a job with less than this left does not move home", "`30m`")] = (
        Duration(30 * MINUTE)
    )
    least_lease: Annotated[Interval, Says("a duration: the shortest lease, at least `1s`", "`10m`")] = Interval(
        10 * MINUTE
    )
    preempt: Annotated[
        Flag,
        Says(
            "may a job of higher priority stop an interruptible one of lower? Never one of a class above its own: see "
            "`preempts`",
            "`false`",
        ),
    ] = Flag(False)
    displace: Annotated[
        Flag, Says("may a job that cannot burst displace one that can to a rented offer?", "`false`")
    ] = Flag(False)
    when_exhausted: Annotated[
        Literal["checkpoint_stop", "move_home"],
        Says("what a rented job does when a cap is reached: `checkpoint_stop` or `move_home`", "`checkpoint_stop`"),
    ] = "checkpoint_stop"
