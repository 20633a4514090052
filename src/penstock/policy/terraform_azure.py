"""Azure: a subscription's budget, and policies that deny other locations and VM sizes.

A budget there tells an action group, and what the group does (a runbook, a webhook) is the organisation's own. Names
with `*` need definitions of our own: the built-in ones take exact lists only. Resources and arguments are those of the
provider hashicorp/azurerm, 4.
"""

import json
from typing import Any, Final

from penstock.policy.terraform_limits import CloudLimits, variable, without_empty

#: A type of resource, and the field of it that names a size.
SIZES: Final = (
    ("Microsoft.Compute/virtualMachines", "Microsoft.Compute/virtualMachines/sku.name"),
    ("Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Compute/virtualMachineScaleSets/sku.name"),
)


def azure(limits: CloudLimits) -> dict[str, Any]:
    rules = {**_locations(limits), **_sizes(limits)}
    resources = {
        "azurerm_consumption_budget_subscription": _budget(limits),
        "azurerm_policy_definition": {key: _definition(key, *rule) for key, rule in rules.items()},
        "azurerm_subscription_policy_assignment": {key: _assignment(key, rule[0]) for key, rule in rules.items()},
    }
    return {
        "terraform": {"required_providers": {"azurerm": {"source": "hashicorp/azurerm", "version": "~> 4.0"}}},
        "provider": {"azurerm": {"features": {}, "subscription_id": "${var.subscription_number}"}},
        "locals": {"subscription_id": "/subscriptions/${var.subscription_number}"},
        "variable": _variables(limits),
        "resource": dict(without_empty(resources)),
    }


def _variables(limits: CloudLimits) -> dict[str, Any]:
    variables = {"subscription_number": variable("string", "The subscription in which nodes are rented: its UUID.")}
    if limits.per_month is not None:
        variables["emails"] = variable("list(string)", "Who is told when the budget is reached.")
        variables["action_group_ids"] = variable(
            "list(string)", "Action groups that stop renting when the budget is reached; their runbooks are yours."
        )
        variables["budget_starts"] = variable("string", "The first day of this month, like 2026-11-01T00:00:00Z.")
    return variables


def _budget(limits: CloudLimits) -> dict[str, Any]:
    if limits.per_month is None:
        return {}
    return {
        "penstock": {
            "name": "penstock",
            "subscription_id": "${local.subscription_id}",
            "amount": limits.units,
            "time_grain": "Monthly",
            "time_period": {"start_date": "${var.budget_starts}"},
            "notification": [_told(80, "Forecasted"), _told(100, "Actual")],
        }
    }


def _told(threshold: int, kind: str) -> dict[str, Any]:
    return {
        "enabled": True,
        "operator": "GreaterThanOrEqualTo",
        "threshold": threshold,
        "threshold_type": kind,
        "contact_emails": "${var.emails}",
        "contact_groups": "${var.action_group_ids}",
    }


def _locations(limits: CloudLimits) -> dict[str, tuple[str, dict[str, Any]]]:
    if not limits.regions:
        return {}
    types = [{"field": "type", "equals": kind} for kind, _ in SIZES]
    elsewhere = {"not": {"anyOf": [{"field": "location", "like": name} for name in limits.regions]}}
    return {"penstock_locations": ("Penstock: allowed locations", {"allOf": [{"anyOf": types}, elsewhere]})}


def _sizes(limits: CloudLimits) -> dict[str, tuple[str, dict[str, Any]]]:
    """Without sizes of the sites file, a family is how a size begins: `NC` means `Standard_NC*`."""
    names = list(limits.machine_types) or [_begins(family) for family in limits.families]
    if not names:
        return {}
    others = [
        {
            "allOf": [
                {"field": "type", "equals": kind},
                {"not": {"anyOf": [{"field": field, "like": name} for name in names]}},
            ]
        }
        for kind, field in SIZES
    ]
    return {"penstock_sizes": ("Penstock: allowed VM sizes", {"anyOf": others})}


def _begins(family: str) -> str:
    whole = family if family.startswith("Standard_") else f"Standard_{family}"
    return whole if whole.endswith("*") else f"{whole}*"


def _definition(key: str, title: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": key.replace("_", "-"),
        "display_name": title,
        "policy_type": "Custom",
        "mode": "All",
        "policy_rule": json.dumps({"if": condition, "then": {"effect": "deny"}}),
    }


def _assignment(key: str, title: str) -> dict[str, Any]:
    return {
        "name": key.replace("_", "-"),
        "display_name": title,
        "subscription_id": "${local.subscription_id}",
        "policy_definition_id": f"${{azurerm_policy_definition.{key}.id}}",
    }
