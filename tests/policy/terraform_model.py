"""A model of the Terraform resources that an export uses, and a check of a configuration against it.

The providers' own schemas are not shipped with them and not with us. This table has the arguments that we use and all
that are required, as the documentation of hashicorp/aws 6, hashicorp/azurerm 4 and hashicorp/google 7 has them.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

#: What any resource may have.
META: Final = ("count", "depends_on", "dynamic", "for_each")
REFERENCE: Final = re.compile(r"\b((?:aws|azurerm|google)_\w+)\.(\w+)|\bvar\.(\w+)|\blocal\.(\w+)")

#: By argument: its type, with `!` where it is required. A block is a table of its own, with how many there may be.
TEXT, NUMBER, FLAG, TEXTS = "text", "number", "flag", "texts"
BUDGET_TOLD: Final = {
    "comparison_operator": "text!",
    "threshold": "number!",
    "threshold_type": "text!",
    "notification_type": "text!",
    "subscriber_email_addresses": TEXTS,
}
AZURE_TOLD: Final = {
    "enabled": FLAG,
    "operator": "text!",
    "threshold": "number!",
    "threshold_type": TEXT,
    "contact_emails": TEXTS,
    "contact_groups": TEXTS,
}
GOOGLE_RULE: Final = {"enforce": TEXT, "values": (0, 1, {"allowed_values": TEXTS, "denied_values": TEXTS})}
RESOURCES: Final[dict[str, dict[str, Any]]] = {
    "aws_budgets_budget": {
        "name": TEXT,
        "budget_type": "text!",
        "limit_amount": TEXT,
        "limit_unit": TEXT,
        "time_unit": "text!",
        "notification": (0, 5, BUDGET_TOLD),
    },
    "aws_budgets_budget_action": {
        **dict.fromkeys(("budget_name", "action_type", "approval_model", "notification_type"), "text!"),
        "execution_role_arn": "text!",
        "action_threshold": (1, 1, {"action_threshold_type": "text!", "action_threshold_value": "number!"}),
        "definition": (1, 1, {"iam_action_definition": (0, 1, {"policy_arn": "text!", "roles": TEXTS})}),
        "subscriber": (1, 11, {"address": "text!", "subscription_type": "text!"}),
    },
    "aws_iam_role": {"name": TEXT, "assume_role_policy": "text!"},
    "aws_iam_role_policy": {"name": TEXT, "role": "text!", "policy": "text!"},
    "aws_iam_policy": {"name": TEXT, "description": TEXT, "policy": "text!"},
    "aws_organizations_policy": {"name": "text!", "description": TEXT, "type": TEXT, "content": "text!"},
    "aws_organizations_policy_attachment": {"policy_id": "text!", "target_id": "text!"},
    "azurerm_consumption_budget_subscription": {
        "name": "text!",
        "subscription_id": "text!",
        "amount": "number!",
        "time_grain": TEXT,
        "time_period": (1, 1, {"start_date": "text!", "end_date": TEXT}),
        "notification": (1, 5, AZURE_TOLD),
    },
    "azurerm_policy_definition": {
        **dict.fromkeys(("name", "display_name", "policy_type", "mode"), "text!"),
        "policy_rule": TEXT,
    },
    "azurerm_subscription_policy_assignment": {
        **dict.fromkeys(("name", "subscription_id", "policy_definition_id"), "text!"),
        "display_name": TEXT,
    },
    "google_billing_budget": {
        "billing_account": "text!",
        "display_name": TEXT,
        "budget_filter": (0, 1, {"projects": TEXTS, "calendar_period": TEXT}),
        "amount": (1, 1, {"specified_amount": (0, 1, {"currency_code": TEXT, "units": TEXT, "nanos": NUMBER})}),
        "threshold_rules": (0, 5, {"threshold_percent": "number!", "spend_basis": TEXT}),
        "all_updates_rule": (0, 1, {"pubsub_topic": TEXT, "schema_version": TEXT}),
    },
    "google_pubsub_topic": {"name": "text!"},
    "google_org_policy_policy": {
        "name": "text!",
        "parent": "text!",
        "spec": (0, 1, {"rules": (0, 10, GOOGLE_RULE)}),
    },
    "google_org_policy_custom_constraint": {
        **dict.fromkeys(("name", "parent", "action_type", "condition"), "text!"),
        "method_types": "texts!",
        "resource_types": "texts!",
        "display_name": TEXT,
        "description": TEXT,
    },
}
KINDS: Final = {TEXT: (str,), NUMBER: (int, float), FLAG: (bool,), TEXTS: (list,)}


def mistakes(config: dict[str, Any]) -> list[str]:
    """Unknown, missing and mistyped arguments, references to nothing, and variables that nobody reads."""
    errors = [
        mistake
        for kind, resources in config["resource"].items()
        for name, resource in resources.items()
        for mistake in _resource(kind, resource, f"{kind}.{name}")
    ]
    return [*errors, *_references(config)]


def _resource(kind: str, resource: dict[str, Any], where: str) -> Iterator[str]:
    if kind not in RESOURCES:
        yield f"{where}: there is no such resource"
        return
    dynamic = {name: [block["content"]] for name, block in resource.get("dynamic", {}).items()}
    plain = {name: given for name, given in resource.items() if name not in META}
    yield from _block(RESOURCES[kind], {**plain, **dynamic}, where)


def _block(model: dict[str, Any], given: dict[str, Any], where: str) -> Iterator[str]:
    for name, argument in model.items():
        if name in given:
            yield from _argument(argument, given[name], f"{where}.{name}")
        elif (argument[0] if isinstance(argument, tuple) else argument.endswith("!")) not in (0, False):
            yield f"{where}: {name} is missing"
    yield from (f"{where}: {name} is unknown" for name in given if name not in model)


def _argument(argument: Any, given: Any, where: str) -> Iterator[str]:
    if isinstance(argument, tuple):
        _, most, model = argument
        blocks = given if isinstance(given, list) else [given]
        if len(blocks) > most:
            yield f"{where}: more than {most}"
        for block in blocks:
            yield from _block(model, block, where)
    elif not _is_a(argument.rstrip("!"), given):
        yield f"{where}: {given!r} is no {argument}"


def _is_a(kind: str, given: Any) -> bool:
    """An expression may be of any type."""
    if isinstance(given, str) and given.startswith("${"):
        return True
    return isinstance(given, KINDS[kind]) and isinstance(given, bool) == (kind == FLAG)


def _references(config: dict[str, Any]) -> Iterator[str]:
    """In strings, and in `depends_on`, which has no braces."""
    variables, local = set(config["variable"]), config.get("locals", {})
    read: set[str] = set()
    for text in _strings({key: value for key, value in config.items() if key not in ("//", "variable")}):
        for kind, name, variable, its_local in REFERENCE.findall(text):
            read.add(variable)
            if kind and name not in config["resource"].get(kind, {}):
                yield f"{kind}.{name} is referred to and is not there"
            if variable and variable not in variables:
                yield f"var.{variable} is not declared"
            if its_local and its_local not in local:
                yield f"local.{its_local} is not there"
    yield from (f"var.{name} is never read" for name in sorted(variables - read))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "${" in value or re.fullmatch(r"\w+\.\w+", value):
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
