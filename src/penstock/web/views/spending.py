"""Spend against caps, and exposure: a meter a scope, and one sentence."""

from markupsafe import Markup

from penstock.core.units import PERMILLE, Instant
from penstock.core.values import value
from penstock.formatting import money
from penstock.web import schemas
from penstock.web.views import shapes
from penstock.web.views.formats import clock, listed

TIGHT = 900  #: thousandths of a cap; from here on the row speaks up


@value
class CapMeter:
    name: str
    whole: bool  # the organisation
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
    soft: str  # what nothing on the spot would end; empty: none


def caps(found: schemas.Budget) -> list[CapMeter]:
    """The organisation first; scopes that neither have a cap nor cost anything stay out."""
    scopes = [one for one in found.scopes if one.cap is not None or one.spent or one.held or one.cap_per_hour]
    return [_row(one, found.currency) for one in sorted(scopes, key=lambda one: (one.scope != "org", one.scope))]


def _row(one: schemas.Scope, currency: str) -> CapMeter:
    spent, held = money(one.spent, currency), money(one.held, currency)
    note = listed([f"{spent} spent", f"{held} held" if one.held else "nothing held", _rate(one, currency)])
    name = "Organisation" if one.scope == "org" else one.scope.removeprefix("team:").replace(":", " ")
    if one.cap is None:
        return CapMeter(name, one.scope == "org", spent, "spent, no cap", Markup(""), note, tight=False)
    tight = (one.spent + one.held) * PERMILLE >= one.cap * TIGHT
    drawn = shapes.meter(one.spent, one.held, one.cap, f"{name}: {note}, cap {money(one.cap, currency)}")
    free = one.cap - one.spent - one.held
    amount, of = (money(max(0, free), currency), f"free of {money(one.cap, currency)}")
    return CapMeter(name, one.scope == "org", amount, of, drawn, note, tight)


def _rate(one: schemas.Scope, currency: str) -> str:
    if one.cap_per_hour is None:
        return ""
    return f"{money(one.running_per_hour or 0, currency)} of {money(one.cap_per_hour, currency)} an hour"


def exposed(found: schemas.Exposure, now: Instant) -> Exposed:
    shares = sorted(found.sites, key=lambda share: -share.most)
    return Exposed(
        money(found.most, found.currency),
        clock(found.until_at, now) if found.until_at else "",
        listed([f"{share.name} {money(share.most, found.currency)}" for share in shares if share.most]),
        money(found.soft, found.currency) if found.soft else "",
    )
