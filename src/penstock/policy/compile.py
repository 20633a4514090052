"""From the policy file's rows to `Governance`, each part with its file and line. `file` calls `governance_of`."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar, get_args

from penstock.config.convert import Section
from penstock.config.document import Document, shown, unknown
from penstock.config.scalars import Amount, Name
from penstock.config.sections import Weekday
from penstock.core.model import governance as g
from penstock.core.units import MICRO, PERMILLE, Money
from penstock.policy.expressions import BadExpression, compiled
from penstock.policy.fields import OF_APPROVALS, OF_RULES, Field
from penstock.policy.hours import DAY_MINUTES, window
from penstock.policy.rules import with_shapes
from penstock.policy.sections import (
    VERSION,
    AllowSection,
    ApprovalSection,
    BurstWhenSection,
    ClassSection,
    HeadroomSection,
    PolicyFileSection,
    PriceLimitSection,
    QuietHoursSection,
    RuleSection,
    TeamRulesSection,
)

R = TypeVar("R", bound=Section)
T = TypeVar("T")
TRIGGERS: Final[tuple[g.TriggerKind, ...]] = ("queued_jobs", "expected_wait", "utilisation", "deadline_at_risk")
#: Conditions that change from moment to moment, so that it means something how long they have held.
LASTING: Final = ("queued_jobs", "utilisation")


def governance_of(row: PolicyFileSection, page: Document, digest: str) -> g.Governance:
    """Each part is attempted by itself, so that all of them are checked."""
    attempt = page.attempt
    attempt(_check_names, row, page)
    made = g.Governance(
        classes=attempt(lambda: _by_name(page, "classes", row.classes, _class, row)),
        teams=attempt(lambda: _by_name(page, "teams", row.teams, _team, row)),
        burst_when=attempt(lambda: _each(page, "burst_when", row.burst_when, _trigger)),
        never_above=attempt(_price_limit, row.never_burst_above, page, "never_burst_above"),
        allow=attempt(allow_of, row.allow, page, "allow"),
        quiet_hours=attempt(lambda: _each(page, "quiet_hours", row.quiet_hours, _quiet_hours)),
        headroom=attempt(lambda: _each(page, "headroom", row.headroom, _headroom, row)),
        idle_nodes_end_after_ms=attempt(lambda: whole(row.idle_nodes_end_after)),
        approvals=attempt(lambda: (*_each(page, "approvals", row.approvals, _approval), *_asking_rules(row, page))),
        rules=attempt(lambda: tuple(_denying_rules(row, page))),
        windows=attempt(_windows, row, page),
        version=VERSION,
        digest=digest,
        caps_take_two=bool(row.caps_take_two),
    )
    return made if page.errors else with_shapes(made)


def amount(units: Amount | None) -> Money | None:
    return None if units is None else math.ceil(units * MICRO)


def whole(number: int | None) -> int | None:
    return None if number is None else int(number)


def words(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(word) for word in names)


def known_class(name: str, row: PolicyFileSection, page: Document, place: str) -> None:
    """Where the file names classes, there are no others."""
    if row.classes and name not in row.classes:
        page.report(place, unknown("there is no class", name, row.classes))


def _each(page: Document, place: str, rows: Sequence[R], make: Callable[..., T], *more: object) -> tuple[T, ...]:
    return tuple(page.attempt(make, row, page, f"{place}[{k}]", *more) for k, row in enumerate(rows))


def _by_name(
    page: Document, place: str, rows: Mapping[Name, R], make: Callable[..., T], *more: object
) -> tuple[T, ...]:
    return tuple(page.attempt(make, str(name), row, page, f"{place}.{name}", *more) for name, row in rows.items())


def _class(name: str, row: ClassSection, page: Document, place: str, file: PolicyFileSection) -> g.ClassRule:
    for k, other in enumerate(row.preempts):
        known_class(other, file, page, f"{place}.preempts[{k}]")
        if other == name:
            page.report(f"{place}.preempts[{k}]", "jobs of a class do not preempt each other; 'preempt' is by priority")
    if row.where == "owned" and row.spot == "required":
        page.report(f"{place}.spot", "what is never rented is never on spot; leave 'spot' out")
    return g.ClassRule(
        name=name,
        where=row.where,
        spot=row.spot,
        longest_ms=whole(row.longest),
        cost_of_delay=amount(row.cost_of_delay),
        preempts=words(row.preempts),
        because=str(row.because or ""),
        source=page.source(place),
    )


def _team(name: str, row: TeamRulesSection, page: Document, place: str, file: PolicyFileSection) -> g.TeamRule:
    for k, job_class in enumerate(row.classes or ()):
        known_class(job_class, file, page, f"{place}.classes[{k}]")
    return g.TeamRule(
        team=name,
        share_permille=None if row.share is None else row.share * PERMILLE // MICRO,
        gpus_at_once=whole(row.gpus_at_once),
        per_job=amount(row.per_job),
        egress_bytes_per_month=whole(row.egress_per_month),
        allow=page.attempt(allow_of, row.allow, page, f"{place}.allow"),
        source=page.source(place),
    )


def allow_of(row: AllowSection | None, page: Document, place: str) -> g.Allow | None:
    if row is None:
        return None
    return g.Allow(
        clouds=words(row.clouds),
        regions=words(row.regions),
        families=words(row.families),
        gpus=words(row.gpus),
        source=page.source(place),
    )


def _trigger(row: BurstWhenSection, page: Document, place: str) -> g.BurstTrigger:
    given = [kind for kind in TRIGGERS if getattr(row, kind)]
    if len(given) != 1:
        have = f"it has {' and '.join(given)}; write each as an item of its own" if given else "it has none"
        page.refuse(place, f"a condition has one of {', '.join(TRIGGERS)}; {have}")
    (kind,) = given
    if row.held_for and kind not in LASTING:
        page.report(f"{place}.for", f"'for' is of {' and '.join(LASTING)}; leave it out")
    return g.BurstTrigger(
        kind=kind, threshold=_threshold(kind, row), for_ms=int(row.held_for), source=page.source(place)
    )


def _threshold(kind: g.TriggerKind, row: BurstWhenSection) -> int:
    match kind:
        case "queued_jobs":
            return int(row.queued_jobs or 0)
        case "expected_wait":
            return int(row.expected_wait or 0)
        case "utilisation":
            return (row.utilisation or 0) * PERMILLE // MICRO
        case "deadline_at_risk":
            return 1


def _price_limit(row: PriceLimitSection | None, page: Document, place: str) -> g.PriceLimit | None:
    if row is None:
        return None
    if row.per_gpu_hour is None and row.per_job is None:
        page.refuse(place, "the key 'per_gpu_hour' is missing, or 'per_job'; a limit needs an amount")
    return g.PriceLimit(amount(row.per_gpu_hour), amount(row.per_job), page.source(place))


def _quiet_hours(row: QuietHoursSection, page: Document, place: str) -> g.QuietHours:
    if not row.owned_only:
        page.report(f"{place}.owned_only", "hours in which renting is allowed are like all others; leave them out")
    return g.QuietHours(id=_window(row, page, place).id, source=page.source(place))


def _window(row: QuietHoursSection | HeadroomSection, page: Document, place: str) -> g.Window:
    """Its hours. Those that are alike are one window."""
    if row.begins >= DAY_MINUTES:
        page.refuse(f"{place}.from", 'a day ends at 24:00; write "00:00" for the beginning of the next')
    days = sorted({get_args(Weekday).index(day) for day in row.days})
    return window(int(row.begins), int(row.ends), str(row.zone), tuple(days))


def _windows(file: PolicyFileSection, page: Document) -> tuple[g.Window, ...]:
    rows: list[tuple[str, QuietHoursSection | HeadroomSection]]
    rows = [(f"quiet_hours[{k}]", row) for k, row in enumerate(file.quiet_hours)]
    rows += [(f"headroom[{k}]", row) for k, row in enumerate(file.headroom)]
    return tuple(dict.fromkeys(_window(row, page, place) for place, row in rows))


def _headroom(row: HeadroomSection, page: Document, place: str, file: PolicyFileSection) -> g.Headroom:
    if row.job_class is not None:
        known_class(row.job_class, file, page, f"{place}.for")
    return g.Headroom(
        id=_window(row, page, place).id,
        site=str(row.site),
        gpus=int(row.gpus),
        job_class=str(row.job_class or ""),
        source=page.source(place),
    )


def _approval(row: ApprovalSection, page: Document, place: str) -> g.ApprovalRule:
    _check_condition(row.when, OF_APPROVALS, page, f"{place}.when")
    number = int(place.removeprefix("approvals[").removesuffix("]")) + 1
    return g.ApprovalRule(
        name=str(row.name or f"approval-{number}"),
        when=str(row.when),
        by=str(row.by),
        within_ms=int(row.within),
        because=str(row.because or ""),
        source=page.source(place),
    )


def _denying_rules(file: PolicyFileSection, page: Document) -> Iterator[g.DenyRule]:
    for k, row in enumerate(file.rules):
        place = f"rules[{k}]"
        page.attempt(_check_rule, row, page, place)
        if row.approval is None:
            yield page.attempt(
                lambda row=row, place=place: g.DenyRule(  # type: ignore[misc]
                    str(row.name), str(row.deny), str(row.because or ""), page.source(place)
                )
            )


def _asking_rules(file: PolicyFileSection, page: Document) -> Iterator[g.ApprovalRule]:
    """Rules that say `approval` instead of `deny`."""
    for k, row in enumerate(file.rules):
        if row.approval is not None and row.by is not None and row.within is not None:
            yield page.attempt(_asking_rule, row, page, f"rules[{k}]")


def _asking_rule(row: RuleSection, page: Document, place: str) -> g.ApprovalRule:
    return g.ApprovalRule(
        name=str(row.name),
        when=str(row.approval),
        by=str(row.by),
        within_ms=int(row.within or 0),
        because=str(row.because or ""),
        source=page.source(place),
    )


def _check_rule(row: RuleSection, page: Document, place: str) -> None:
    if (row.deny is None) == (row.approval is None):
        both = "it has both" if row.deny is not None else "it has neither"
        page.report(place, f"a rule has 'deny' or 'approval'; {both}")
    asks = {"by": row.by is not None, "within": row.within is not None}
    if row.deny is not None:
        _check_condition(row.deny, OF_RULES, page, f"{place}.deny")
    if row.approval is not None:
        _check_condition(row.approval, OF_APPROVALS, page, f"{place}.approval")
    for key, given in asks.items():
        if row.approval is not None and not given:
            page.report(place, f"the key '{key}' is missing: a rule with 'approval' says by whom and within which time")
        if row.approval is None and given:
            page.report(f"{place}.{key}", f"'{key}' is for rules with 'approval'; leave it out")


def _check_condition(text: str, fields: tuple[Field, ...], page: Document, place: str) -> None:
    try:
        compiled(str(text), fields)
    except BadExpression as error:
        page.report(place, str(error).removesuffix("."))


def _check_names(file: PolicyFileSection, page: Document) -> None:
    """Reasons name rules and approvals: each name is there once."""
    first: dict[str, str] = {}
    named = [(f"rules[{k}].name", str(row.name)) for k, row in enumerate(file.rules)]
    named += [(f"approvals[{k}].name", str(row.name)) for k, row in enumerate(file.approvals) if row.name is not None]
    for place, name in named:
        if first.setdefault(name, place) != place:
            page.report(place, f"{shown(name)} is taken by {first[name].removesuffix('.name')} already")
