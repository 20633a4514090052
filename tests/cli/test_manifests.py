"""`penstock manifests`: rights and policies name every login that Penstock may have, and mistakes are said."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.main import main

SITES = """
sites:
  - name: lab
    driver: kubernetes
    kubernetes: {kubeconfig: nowhere, namespace: penstock}
    offers: [{name: a100, gpu: A100, term: owned, gpus_per_node: 8}]
  - name: here
    driver: kubernetes
    kubernetes: {in_cluster: true}
    offers: [{name: a100, gpu: A100, term: owned, gpus_per_node: 8}]
"""


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    assert main(["manifests", *words]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_users_and_groups_get_the_rights_and_the_policies_of_the_service_account(
    capsys: pytest.CaptureFixture[str],
) -> None:
    subjects = ("--as", 'o"brien', "--as", "ada", "--as", "ada", "--as-group", "ops")
    bound = [made for made in printed(capsys, "rbac", *subjects) if made["kind"].endswith("Binding")]
    assert {tuple((who["kind"], who["name"]) for who in made["subjects"]) for made in bound} == {
        (("ServiceAccount", "penstock"), ("User", 'o"brien'), ("User", "ada"), ("Group", "ops"))
    }
    policies = {made["metadata"]["name"]: made["spec"] for made in printed(capsys, "admission", *subjects)[::2]}
    ours = (
        '(request.userInfo.username in ["system:serviceaccount:penstock:penstock", "o\\"brien", "ada"]'
        ' || (has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in ["ops"]))) || '
    )
    for name in ("penstock-bindings", "penstock-users"):
        assert all(check["expression"].startswith(ours) for check in policies[name]["validations"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--as", " "), "is not the name of a user or group"),
        (("--site", "lab"), "give --sites, too"),
        (("--sites", "sites.yaml", "--site", "nope"), "has no cluster 'nope'; it has lab, here."),
        (("--sites", "sites.yaml"), "Site lab does not say who Penstock is there"),
        (("--sites", "missing.yaml"), "missing.yaml"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sites.yaml").write_text(SITES)
    assert main(["manifests", "admission", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_site_that_uses_its_pods_own_account_is_not_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sites.yaml").write_text(SITES)
    assert printed(capsys, "admission", "--sites", "sites.yaml", "--site", "here") == printed(capsys, "admission")
