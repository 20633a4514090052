"""Google Cloud: a billing budget that tells a Pub/Sub topic, and organisation policies on locations and machine types.

A budget there stops nothing by itself: what listens to the topic (a function that takes billing off a project) is the
organisation's own. Machine types need a custom constraint. Resources and arguments are those of the provider
hashicorp/google, 6 and 7.
"""

import re
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.policy.terraform_limits import CloudLimits, matches, variable, without_empty

#: Continents that Google keeps a group of locations for, under the name that their regions begin with.
GROUPS: Final = ("asia", "australia", "europe", "southamerica", "us")
REGION: Final = re.compile(r"[a-z]+-[a-z]+[0-9]+")
CONSTRAINT: Final = "custom.penstockMachineTypes"
LONGEST_CONDITION: Final = 1_000  #: characters, by Google


def gcp(limits: CloudLimits) -> dict[str, Any]:
    condition = _condition(limits)
    resources = {
        "google_billing_budget": _budget(limits),
        "google_pubsub_topic": {"penstock_budget": {"name": "penstock-budget"}} if limits.per_month is not None else {},
        "google_org_policy_custom_constraint": _constraint(limits, condition),
        "google_org_policy_policy": {**_locations(limits), **_enforced(condition)},
    }
    return {
        "terraform": {"required_providers": {"google": {"source": "hashicorp/google", "version": ">= 6.0, < 8.0"}}},
        "provider": {"google": {"project": "${var.project}"}},
        "variable": _variables(limits, condition),
        "resource": dict(without_empty(resources)),
    }


def _variables(limits: CloudLimits, condition: str) -> dict[str, Any]:
    variables = {"project": variable("string", "The project in which nodes are rented: its id.")}
    if limits.per_month is not None:
        variables["billing_account"] = variable("string", "The billing account that pays for it.")
        variables["project_number"] = variable("string", "The project's number, which budgets count by.")
    if condition:
        variables["organization_id"] = variable("string", "The organisation that custom constraints belong to.")
    return variables


def _budget(limits: CloudLimits) -> dict[str, Any]:
    if limits.per_month is None:
        return {}
    return {
        "penstock": {
            "billing_account": "${var.billing_account}",
            "display_name": "penstock",
            "budget_filter": {"projects": ["projects/${var.project_number}"], "calendar_period": "MONTH"},
            "amount": {"specified_amount": {"currency_code": limits.currency, "units": str(limits.units)}},
            "threshold_rules": [
                {"threshold_percent": 0.8, "spend_basis": "FORECASTED_SPEND"},
                {"threshold_percent": 1.0, "spend_basis": "CURRENT_SPEND"},
            ],
            "all_updates_rule": {"pubsub_topic": "${google_pubsub_topic.penstock_budget.id}", "schema_version": "1.0"},
        }
    }


def _locations(limits: CloudLimits) -> dict[str, Any]:
    if not limits.regions:
        return {}
    values = list(dict.fromkeys(place for name in limits.regions for place in _places(name, limits)))
    if not values:
        raise BadInput(
            f"{limits.source or limits.name}: none of the allowed regions ({', '.join(limits.regions)}) is one of"
            " Google's; write them like europe-west4 or europe-*, or give --sites FILE with a site in one of them."
        )
    return {
        "penstock_locations": {
            "name": "projects/${var.project}/policies/gcp.resourceLocations",
            "parent": "projects/${var.project}",
            "spec": {"rules": [{"values": {"allowed_values": values}}]},
        }
    }


def _places(name: str, limits: CloudLimits) -> list[str]:
    """A region is `in:REGION-locations`, with its zones. A name with `*` is a continent, or regions of the sites file.

    What Google does not know is another cloud's, as `eu-central-1` is: there it would void the whole list.
    """
    if REGION.fullmatch(name):
        return [f"in:{name}-locations"]
    if name in [f"{group}-*" for group in GROUPS]:
        return [f"in:{name[:-2]}-locations"]
    return [f"in:{region}-locations" for region in limits.site_regions if matches(region, (name,))]


def _condition(limits: CloudLimits) -> str:
    """A family is what stands before the hyphen: `a3-highgpu-8g` is of `a3`. An exact type ends the resource's name."""
    exact = [f"resource.machineType.endsWith('/machineTypes/{name}')" for name in limits.machine_types]
    begins = [f"resource.machineType.contains('/machineTypes/{_begins(family)}')" for family in limits.families]
    condition = " || ".join(exact or begins)
    if len(condition) > LONGEST_CONDITION:
        raise BadInput(
            f"{limits.source or limits.name}: the machine types make a condition of {len(condition):,} characters, and"
            f" Google takes {LONGEST_CONDITION:,}; leave --sites out, so that families stand for them."
        )
    return condition


def _begins(family: str) -> str:
    return family[:-1] if family.endswith("*") else f"{family}-"


def _constraint(limits: CloudLimits, condition: str) -> dict[str, Any]:
    if not condition:
        return {}
    return {
        "penstock_machine_types": {
            "name": CONSTRAINT,
            "parent": "organizations/${var.organization_id}",
            "display_name": "Penstock: allowed machine types",
            "description": f"Machine types that {limits.name} allows.",
            "action_type": "ALLOW",
            "condition": condition,
            "method_types": ["CREATE", "UPDATE"],
            "resource_types": ["compute.googleapis.com/Instance"],
        }
    }


def _enforced(condition: str) -> dict[str, Any]:
    if not condition:
        return {}
    name = "${google_org_policy_custom_constraint.penstock_machine_types.name}"
    return {
        "penstock_machine_types": {
            "name": f"projects/${{var.project}}/policies/{name}",
            "parent": "projects/${var.project}",
            "spec": {"rules": [{"enforce": "TRUE"}]},
        }
    }
