"""An export holds at the cloud what the policy says: its budget, its regions, its machine types, and nothing wider."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, get_args

import pytest

from penstock.core.errors import BadInput
from penstock.core.model.governance import Allow, Governance, TeamRule
from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import money
from penstock.policy.terraform import Cloud, Export, export
from tests.policy.terraform_model import mistakes

ALLOW = Allow(
    clouds=("aws", "azure", "gcp"),
    regions=("eu-*", "westeurope", "europe-west4", "asia-*"),
    families=("p5", "g6*", "NC", "a3"),
    gpus=("H100",),
    source="policy.yaml:12",
)
CAPS = (("org", money("50000"), None), ("team:vision", money("900"), None))


def made(cloud: Cloud, allow: Allow | None = ALLOW, caps: Any = CAPS, sites: tuple[Site, ...] = ()) -> Export:
    return export(cloud, Governance(allow=allow), caps, currency="EUR", name="policy.yaml", sites=sites)


def site(cloud: str, region: str, *node_types: str, gpu: str = "H100", family: str = "p5") -> Site:
    shapes = tuple(NodeShape(8, list_per_hour=money("40"), name=name) for name in node_types)
    offer = Offer(f"{cloud}/on-demand", cloud, "on_demand", shapes, gpu_model=gpu, family=family)
    return Site(cloud, (offer,), cloud=cloud, region=region)


@pytest.mark.parametrize("cloud", get_args(Cloud))
@pytest.mark.parametrize("allow", [ALLOW, None, replace(ALLOW, families=(), gpus=()), Allow(families=("a3",))])
@pytest.mark.parametrize("caps", [CAPS, ()])
def test_every_resource_has_what_its_provider_asks_for(cloud: Cloud, allow: Allow | None, caps: Any) -> None:
    if allow is None and not caps:
        with pytest.raises(BadInput, match=r"policy\.yaml has no 'organisation: per_month' and no 'allow'"):
            made(cloud, allow, caps)
        return
    exported = made(cloud, allow, caps)
    assert mistakes(exported.config) == []
    assert json.loads(json.dumps(exported.config)) == exported.config


def test_the_model_finds_mistakes() -> None:
    """Whoever changes an export hears of each kind of them."""
    config = made("aws").config
    resource = config["resource"]
    del resource["aws_iam_role"]["penstock_budget"]
    del resource["aws_budgets_budget"]["penstock"]["time_unit"]
    resource["aws_budgets_budget"]["penstock"]["limit"] = 3
    resource["aws_budgets_budget_action"]["penstock"]["action_threshold"] = []
    resource["aws_iam_policy"]["penstock_no_launches"]["policy"] = {"Version": 1}
    config["variable"]["unread"] = {}
    assert sorted(set(mistakes(config))) == [
        "aws_budgets_budget.penstock: limit is unknown",
        "aws_budgets_budget.penstock: time_unit is missing",
        "aws_iam_policy.penstock_no_launches.policy: {'Version': 1} is no text!",
        "aws_iam_role.penstock_budget is referred to and is not there",
        "var.unread is never read",
    ]


# --- AWS --------------------------------------------------------------------------------------------------------------


def test_aws_launches_only_in_allowed_regions_and_types() -> None:
    resource = made("aws").config["resource"]
    content = resource["aws_organizations_policy"]["penstock"]["content"]
    assert resource["aws_iam_role_policy"]["penstock_allowed"]["policy"] == content
    assert [launches(content, region, kind) for region, kind in (
        ("eu-central-1", "p5.48xlarge"), ("eu-west-1", "g6e.xlarge"),
        ("us-east-1", "p5.48xlarge"), ("eu-central-1", "p4d.24xlarge"), ("eu-central-1", "p5en.48xlarge"),
    )] == [True, True, False, False, False]  # fmt: skip


def launches(content: str, region: str, instance_type: str) -> bool:
    """As IAM reads it: a denial holds if all of its conditions do."""
    asked = {"aws:RequestedRegion": region, "ec2:InstanceType": instance_type}
    for statement in json.loads(content)["Statement"]:
        assert (statement["Effect"], list(statement["Condition"])) == ("Deny", ["StringNotLike"])
        [(key, names)] = statement["Condition"]["StringNotLike"].items()
        if "ec2:RunInstances" in statement["Action"] and not any(fnmatchcase(asked[key], name) for name in names):
            return False
    return True


def test_the_budget_is_the_organisation_s_and_takes_the_roles_launches_away() -> None:
    resource = made("aws").config["resource"]
    budget, action = (resource[kind]["penstock"] for kind in ("aws_budgets_budget", "aws_budgets_budget_action"))
    assert (budget["limit_amount"], budget["limit_unit"], budget["time_unit"]) == ("50000", "EUR", "MONTHLY")
    assert action["action_threshold"] == {"action_threshold_type": "PERCENTAGE", "action_threshold_value": 100}
    assert (action["action_type"], action["approval_model"]) == ("APPLY_IAM_POLICY", "AUTOMATIC")
    denied = json.loads(resource["aws_iam_policy"]["penstock_no_launches"]["policy"])["Statement"]
    assert [
        (statement["Effect"], "ec2:RunInstances" in statement["Action"], statement["Resource"]) for statement in denied
    ] == [("Deny", True, "*")]


def test_an_amount_is_rounded_up_so_that_penstock_s_cap_binds_first() -> None:
    budget = made("aws", caps=(("org", money("99.01"), None),)).config["resource"]["aws_budgets_budget"]["penstock"]
    assert budget["limit_amount"] == "100"


# --- Azure and Google Cloud -------------------------------------------------------------------------------------------


def test_azure_denies_vms_elsewhere_and_of_other_sizes() -> None:
    rules = {
        name: json.loads(definition["policy_rule"])
        for name, definition in made("azure").config["resource"]["azurerm_policy_definition"].items()
    }
    vm = "Microsoft.Compute/virtualMachines"
    places = rules["penstock_locations"]
    assert denies(places, {"type": vm, "location": "eastus"})
    assert not denies(places, {"type": vm, "location": "westeurope"})
    assert not denies(places, {"type": "Microsoft.Storage/storageAccounts", "location": "eastus"})
    sizes = rules["penstock_sizes"]
    assert not denies(sizes, {"type": vm, f"{vm}/sku.name": "Standard_NC24ads_A100_v4"})
    assert denies(sizes, {"type": vm, f"{vm}/sku.name": "Standard_D4s_v5"})
    sets = "Microsoft.Compute/virtualMachineScaleSets"
    assert denies(sizes, {"type": sets, f"{sets}/sku.name": "Standard_D4s_v5"})


def denies(rule: dict[str, Any], resource: dict[str, str]) -> bool:
    assert rule["then"] == {"effect": "deny"}
    return holds(rule["if"], resource)


def holds(condition: dict[str, Any], resource: dict[str, str]) -> bool:
    """As Azure Policy reads it."""
    match condition:
        case {"allOf": parts}:
            return all(holds(part, resource) for part in parts)
        case {"anyOf": parts}:
            return any(holds(part, resource) for part in parts)
        case {"not": part}:
            return not holds(part, resource)
        case {"field": field, "equals": value}:
            return bool(resource.get(field) == value)
        case {"field": field, "like": pattern}:
            return fnmatchcase(resource.get(field, ""), pattern)
    raise AssertionError(condition)


def test_google_gets_its_own_groups_of_locations_and_a_custom_constraint() -> None:
    resource = made("gcp").config["resource"]
    policies = resource["google_org_policy_policy"]
    assert policies["penstock_locations"]["spec"]["rules"][0]["values"]["allowed_values"] == [
        "in:europe-west4-locations",
        "in:asia-locations",
    ]
    constraint = resource["google_org_policy_custom_constraint"]["penstock_machine_types"]
    assert constraint["condition"].split(" || ")[-1] == "resource.machineType.contains('/machineTypes/a3-')"
    assert (constraint["action_type"], constraint["method_types"]) == ("ALLOW", ["CREATE", "UPDATE"])
    budget = resource["google_billing_budget"]["penstock"]
    assert budget["amount"] == {"specified_amount": {"currency_code": "EUR", "units": "50000"}}


def test_regions_of_google_can_come_from_the_sites() -> None:
    allow = replace(ALLOW, regions=("europe-w*",), families=("a3",))
    with pytest.raises(
        BadInput, match=r"policy.yaml:12: none of the allowed regions \(europe-w\*\) is one of Google's"
    ):
        made("gcp", allow)
    there = site("gcp", "europe-west9", "a3-highgpu-8g", family="a3")
    resource = made("gcp", allow, sites=(there,)).config["resource"]
    values = resource["google_org_policy_policy"]["penstock_locations"]["spec"]["rules"][0]["values"]
    assert values == {"allowed_values": ["in:europe-west9-locations"]}
    constraint = resource["google_org_policy_custom_constraint"]["penstock_machine_types"]
    assert constraint["condition"] == "resource.machineType.endsWith('/machineTypes/a3-highgpu-8g')"


def test_google_takes_no_condition_beyond_its_limit() -> None:
    with pytest.raises(BadInput, match=r"make a condition of 2,[0-9]{3} characters, and Google takes 1,000"):
        made("gcp", replace(ALLOW, families=tuple(f"family{k}" for k in range(40))))


# --- sites ------------------------------------------------------------------------------------------------------------


def test_with_sites_exactly_the_types_of_allowed_offers_are_left() -> None:
    sites = (
        site("aws", "eu-central-1", "p5.48xlarge", "p5.4xlarge"),
        site("aws", "us-east-1", "p5e.48xlarge"),  # not an allowed region
        site("aws", "eu-west-1", "g6.xlarge", gpu="L4", family="g6e"),  # not an allowed GPU
        site("azure", "westeurope", "Standard_NC40ads_H100_v5"),
    )
    content = made("aws", sites=sites).config["resource"]["aws_organizations_policy"]["penstock"]["content"]
    assert json.loads(content)["Statement"][1]["Condition"] == {
        "StringNotLike": {"ec2:InstanceType": ["p5.48xlarge", "p5.4xlarge"]}
    }


def test_an_offer_that_does_not_say_its_type_leaves_families_in_force() -> None:
    """Otherwise the cloud would deny what the policy allows."""
    sites = (site("aws", "eu-central-1", "p5.48xlarge"), site("aws", "eu-west-1", ""))
    content = made("aws", sites=sites).config["resource"]["aws_organizations_policy"]["penstock"]["content"]
    assert launches(content, "eu-west-1", "p5.4xlarge")


def test_what_a_cloud_cannot_hold_is_said() -> None:
    team = TeamRule("fraud", allow=Allow(regions=("eu-central-1",)))
    exported = export(
        "aws", Governance(allow=Allow(gpus=("H100",)), teams=(team,)), CAPS, currency="USD", name="p.yaml"
    )
    assert exported.notes == (
        "No region is forbidden: the policy has no 'allow: {regions: [...]}'.",
        "No machine type is forbidden: the policy has no 'allow: {families: [...]}'.",
        "GPU models are not exported: a cloud knows machine types. --sites exports each offer's 'node_type'.",
        "What a team allows itself beyond 'allow' stays Penstock's: a cloud's account does not know teams.",
    )
    assert made("aws", caps=()).notes[0].startswith("No budget is exported")


def test_a_cloud_that_is_not_allowed_or_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match=r"policy\.yaml:12: 'allow' does not list the cloud gcp"):
        made("gcp", replace(ALLOW, clouds=("aws",)))
    with pytest.raises(BadInput, match="No site of the sites file has 'cloud: gcp'"):
        made("gcp", sites=(site("aws", "eu-central-1", "p5.48xlarge"),))
