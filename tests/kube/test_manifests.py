"""What `penstock manifests` prints, compared as objects; tests/front/test_manifests.py tries it on API servers."""

from typing import Any

import pytest

from penstock.kube import manifests

Json = dict[str, Any]


def names(objects: list[Json]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects}


@pytest.mark.parametrize("role", manifests.ROLES)
@pytest.mark.parametrize(
    "other", [("penstock", "nlp"), ("pen", "vision"), ("vision", "vision"), ("vision", "penstock")]
)
def test_two_installations_share_no_object_even_where_both_act(role: manifests.Role, other: tuple[str, str]) -> None:
    """Each applies its own, and the later one must not change whom the earlier one's rights belong to."""
    there = ["people", "nlp"]
    first = manifests.rbac(role, "penstock", "vision", there, secrets=["east"])
    second = manifests.rbac(role, *other, there, secrets=["east"])
    assert not names(first) & names(second)


def test_the_usual_installation_has_the_usual_names() -> None:
    made = names(manifests.rbac("act", "penstock", "penstock", ["vision"]))
    assert ("ClusterRole", "", "penstock-act") in made
    assert ("RoleBinding", "vision", "penstock-act") in made
