"""The second line of defence: a policy file as Terraform, for a cloud's own controls. `policy export` calls it.

Penstock holds its caps by itself. What is made here holds when Penstock is passed by: a budget that acts, and the
regions and machine types that the cloud lets anybody rent. It is Terraform's JSON syntax (`.tf.json`), one value per
cloud in `terraform_aws`, `terraform_azure` and `terraform_gcp`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from penstock.core.errors import BadInput
from penstock.core.model.governance import Allow, Governance
from penstock.core.model.types import STANDING, Offer, Site
from penstock.core.units import MICRO, Money
from penstock.core.values import value
from penstock.policy.terraform_aws import aws
from penstock.policy.terraform_azure import azure
from penstock.policy.terraform_gcp import gcp
from penstock.policy.terraform_limits import CloudLimits, matches

Cloud: TypeAlias = Literal["aws", "azure", "gcp"]
Cap: TypeAlias = tuple[str, Money | None, Money | None]
CLOUDS: Final[Mapping[Cloud, Callable[[CloudLimits], dict[str, Any]]]] = {"aws": aws, "azure": azure, "gcp": gcp}


@value
class Export:
    """A `.tf.json` file, and what of the policy it cannot say, a sentence each."""

    config: dict[str, Any]
    notes: tuple[str, ...]


def export(
    cloud: Cloud,
    governance: Governance,
    caps: Iterable[Cap],
    *,
    currency: str,
    name: str,
    sites: Iterable[Site] = (),
) -> Export:
    """`name`: of the policy file. With sites, machine types are those that its allowed offers name."""
    limits = limits_of(cloud, governance, caps, currency=currency, name=name, sites=tuple(sites))
    if limits.per_month is None and not limits.regions and not limits.families and not limits.machine_types:
        raise BadInput(f"{name} has no 'organisation: per_month' and no 'allow', so there is nothing to export.")
    header = {"//": f"Made by `penstock policy export --terraform {cloud}` of {name}; change that file instead."}
    return Export({**header, **CLOUDS[cloud](limits)}, tuple(_notes(limits, governance)))


def limits_of(
    cloud: Cloud,
    governance: Governance,
    caps: Iterable[Cap],
    *,
    currency: str,
    name: str,
    sites: tuple[Site, ...],
) -> CloudLimits:
    allow = governance.allow or Allow()
    if allow.clouds and not matches(cloud, allow.clouds):
        raise BadInput(
            f"{allow.source or name}: 'allow' does not list the cloud {cloud}, so there is nothing to export."
        )
    in_cloud = tuple(site for site in sites if site.cloud == cloud)
    if sites and not in_cloud:
        raise BadInput(f"No site of the sites file has 'cloud: {cloud}'; leave --sites out, or name the site's cloud.")
    machine_types = _machine_types(in_cloud, allow)
    return CloudLimits(
        name=name,
        currency=currency,
        per_month=_per_month(caps),
        regions=allow.regions,
        site_regions=tuple(dict.fromkeys(site.region for site in in_cloud if matches(site.region, allow.regions))),
        families=allow.families,
        machine_types=machine_types if allow.families or allow.gpus else (),
        source=allow.source,
    )


def _per_month(caps: Iterable[Cap]) -> Money | None:
    """The organisation's cap. Penstock's other caps bind teams and projects, whom a cloud's account does not know."""
    return next((per_month for scope, per_month, _ in caps if scope == "org"), None)


def _machine_types(sites: tuple[Site, ...], allow: Allow) -> tuple[str, ...]:
    """Those of the allowed offers. If one of them does not say, none: the cloud would deny what the policy allows."""
    types = [
        shape.name
        for site in sites
        for offer in site.offers
        if offer.term not in STANDING and _is_allowed(site, offer, allow)
        for shape in offer.shapes
    ]
    return tuple(dict.fromkeys(sorted(types))) if all(types) else ()


def _is_allowed(site: Site, offer: Offer, allow: Allow) -> bool:
    asked = ((site.region, allow.regions), (offer.family, allow.families), (offer.gpu_model, allow.gpus))
    return all(matches(value, names) for value, names in asked if names)


def _notes(limits: CloudLimits, governance: Governance) -> Iterable[str]:
    allow = governance.allow or Allow()
    if limits.per_month is None:
        yield "No budget is exported: the policy has no 'organisation: {per_month: ...}'."
    elif limits.per_month < MICRO:
        yield "The organisation's cap is below one unit of its currency; the budget is rounded up to one."
    if not allow.regions:
        yield "No region is forbidden: the policy has no 'allow: {regions: [...]}'."
    if not limits.machine_types and not limits.families:
        yield "No machine type is forbidden: the policy has no 'allow: {families: [...]}'."
    if allow.gpus and not limits.machine_types:
        yield "GPU models are not exported: a cloud knows machine types. --sites exports each offer's 'node_type'."
    if any(team.allow is not None for team in governance.teams):
        yield "What a team allows itself beyond 'allow' stays Penstock's: a cloud's account does not know teams."
