"""AWS: a budget whose action keeps roles from launching, and a policy that denies other regions and instance types.

The denial is a service control policy where the organisation's units are named, and an IAM policy on the roles that
launch nodes otherwise. Resources and arguments are those of the provider hashicorp/aws, 5 and 6.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from penstock.policy.terraform_limits import CloudLimits, merged, variable, without_empty

#: What begins to cost: also what fleets and node groups come down to.
LAUNCHES: Final = ("ec2:RunInstances", "ec2:StartInstances", "ec2:CreateFleet", "ec2:RequestSpotInstances")
BUDGET: Final = "${aws_budgets_budget.penstock.name}"


def aws(limits: CloudLimits) -> dict[str, Any]:
    return {
        "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws", "version": ">= 5.0, < 7.0"}}},
        "variable": dict(_variables(limits)),
        "resource": dict(without_empty(merged(_budget(limits), _guardrail(limits)))),
    }


def _variables(limits: CloudLimits) -> Iterator[tuple[str, dict[str, object]]]:
    yield "role_names", variable("list(string)", "IAM roles that launch nodes for Penstock.")
    if limits.per_month is not None:
        yield "emails", variable("list(string)", "Who is told when the budget is reached.")
    if limits.regions or limits.families or limits.machine_types:
        targets = "Accounts or organisational units in which only Penstock rents, for a service control policy."
        yield "target_ids", variable("list(string)", targets, default=[])


def _budget(limits: CloudLimits) -> dict[str, dict[str, Any]]:
    if limits.per_month is None:
        return {}
    return {
        "aws_budgets_budget": {
            "penstock": {
                "name": "penstock",
                "budget_type": "COST",
                "limit_amount": str(limits.units),
                "limit_unit": limits.currency,
                "time_unit": "MONTHLY",
                "notification": [_told(80, "FORECASTED"), _told(100, "ACTUAL")],
            }
        },
        "aws_budgets_budget_action": {
            "penstock": {
                "budget_name": BUDGET,
                "action_type": "APPLY_IAM_POLICY",
                "approval_model": "AUTOMATIC",
                "notification_type": "ACTUAL",
                "execution_role_arn": "${aws_iam_role.penstock_budget.arn}",
                "action_threshold": {"action_threshold_type": "PERCENTAGE", "action_threshold_value": 100},
                "definition": {
                    "iam_action_definition": {
                        "policy_arn": "${aws_iam_policy.penstock_no_launches.arn}",
                        "roles": "${var.role_names}",
                    }
                },
                "dynamic": {
                    "subscriber": {
                        "for_each": "${toset(var.emails)}",
                        "content": {"address": "${subscriber.value}", "subscription_type": "EMAIL"},
                    }
                },
                "depends_on": ["aws_iam_role_policy.penstock_budget"],
            }
        },
        "aws_iam_role": {
            "penstock_budget": {"name": "penstock-budget", "assume_role_policy": _policy(_budgets_may_assume())}
        },
        "aws_iam_role_policy": {
            "penstock_budget": {
                "name": "attach-no-launches",
                "role": "${aws_iam_role.penstock_budget.id}",
                "policy": _policy(_may_attach()),
            }
        },
        "aws_iam_policy": {
            "penstock_no_launches": {
                "name": "penstock-no-launches",
                "description": f"Attached when the month's budget of {limits.name} is reached.",
                "policy": _policy({"Sid": "NoLaunches", "Effect": "Deny", "Action": list(LAUNCHES), "Resource": "*"}),
            }
        },
    }


def _told(threshold: int, kind: str) -> dict[str, Any]:
    return {
        "comparison_operator": "GREATER_THAN",
        "threshold": threshold,
        "threshold_type": "PERCENTAGE",
        "notification_type": kind,
        "subscriber_email_addresses": "${var.emails}",
    }


def _budgets_may_assume() -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "budgets.amazonaws.com"}}


def _may_attach() -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": ["iam:AttachRolePolicy", "iam:DetachRolePolicy"],
        "Resource": "*",
        "Condition": {"ArnEquals": {"iam:PolicyARN": "${aws_iam_policy.penstock_no_launches.arn}"}},
    }


def _guardrail(limits: CloudLimits) -> dict[str, dict[str, Any]]:
    statements = [*_regions(limits), *_types(limits)]
    if not statements:
        return {}
    content = _policy(*statements)
    return {
        "aws_organizations_policy": {
            "penstock": {
                "count": "${length(var.target_ids) > 0 ? 1 : 0}",
                "name": "penstock",
                "description": f"Regions and instance types that {limits.name} allows.",
                "type": "SERVICE_CONTROL_POLICY",
                "content": content,
            }
        },
        "aws_organizations_policy_attachment": {
            "penstock": {
                "for_each": "${toset(var.target_ids)}",
                "policy_id": "${aws_organizations_policy.penstock[0].id}",
                "target_id": "${each.value}",
            }
        },
        "aws_iam_role_policy": {
            "penstock_allowed": {
                "for_each": "${toset(var.role_names)}",
                "name": "penstock-allowed",
                "role": "${each.value}",
                "policy": content,
            }
        },
    }


def _regions(limits: CloudLimits) -> list[dict[str, Any]]:
    if not limits.regions:
        return []
    condition = {"StringNotLike": {"aws:RequestedRegion": list(limits.regions)}}
    return [_denial("OtherRegions", list(LAUNCHES), "*", condition)]


def _types(limits: CloudLimits) -> list[dict[str, Any]]:
    """A family is what stands before the point: `p5.48xlarge` is of `p5`."""
    types = list(limits.machine_types) or [f"{family}.*" if "*" not in family else family for family in limits.families]
    if not types:
        return []
    condition = {"StringNotLike": {"ec2:InstanceType": types}}
    return [_denial("OtherTypes", ["ec2:RunInstances"], "arn:aws:ec2:*:*:instance/*", condition)]


def _denial(sid: str, actions: list[str], resource: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Deny", "Action": actions, "Resource": resource, "Condition": condition}


def _policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
