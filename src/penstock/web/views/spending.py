"""Spend against caps, and exposure: one meter per scope, and one sentence."""

from markupsafe import Markup

from penstock.core.units import PERMILLE, Instant
from penstock.core.values import value
from penstock.formatting import money
from penstock.web import schemas
from penstock.web.views import shapes
from penstock.web.views.formats import clock, listed

TIGHT = 900  #: thousandths of a cap; from here on the row is highlighted


@value
class CapMeter:
    name: str
    whole: bool  # the organisation's row
    amount: str
    of: str
    meter: Markup
    note: str
    tight: bool


@value
class Exposed:
    most: str
    until: str
    sites: str
    soft: str  # the part that no deadline at the site would end; empty: none


def caps(budget: schemas.Budget) -> list[CapMeter]:
    """The organisation first; scopes without cap and cost are left out."""
    scopes = [
        scope for scope in budget.scopes if scope.cap is not None or scope.spent or scope.held or scope.cap_per_hour
    ]
    return [
        _row(scope, budget.currency) for scope in sorted(scopes, key=lambda scope: (scope.scope != "org", scope.scope))
    ]


def _row(scope: schemas.Scope, currency: str) -> CapMeter:
    spent, held = money(scope.spent, currency), money(scope.held, currency)
    note = listed([f"{spent} spent", f"{held} held" if scope.held else "nothing held", rate(scope, currency)])
    name = "Organisation" if scope.scope == "org" else scope.scope.removeprefix("team:").replace(":", " ")
    if scope.cap is None:
        return CapMeter(name, scope.scope == "org", spent, "spent, no cap", Markup(""), note, tight=False)
    tight = (scope.spent + scope.held) * PERMILLE >= scope.cap * TIGHT
    drawn = shapes.meter(scope.spent, scope.held, scope.cap, f"{name}: {note}, cap {money(scope.cap, currency)}")
    free = scope.cap - scope.spent - scope.held
    amount, of = (money(max(0, free), currency), f"free of {money(scope.cap, currency)}")
    return CapMeter(name, scope.scope == "org", amount, of, drawn, note, tight)


def rate(scope: schemas.Scope, currency: str) -> str:
    if scope.cap_per_hour is None:
        return ""
    return f"{money(scope.running_per_hour or 0, currency)} of {money(scope.cap_per_hour, currency)} an hour"


def exposed(exposure: schemas.Exposure, now: Instant) -> Exposed:
    shares = sorted(exposure.sites, key=lambda share: -share.most)
    return Exposed(
        money(exposure.most, exposure.currency),
        clock(exposure.until_at, now) if exposure.until_at else "",
        listed([f"{share.name} {money(share.most, exposure.currency)}" for share in shares if share.most]),
        money(exposure.soft, exposure.currency) if exposure.soft else "",
    )
