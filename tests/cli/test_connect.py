"""`penstock connect`, as people type it: against real API servers, and where the way or the login is broken."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.main import main
from penstock.config import read_sites
from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.kube import manifests, token_renewal
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, NODES
from penstock.kube.token_renewal import TokenRenewal, read_token
from tests.kube.test_access import kubeconfig

Json = dict[str, Any]
cluster_story = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_CHECKPOINTS", raising=False)


# --- without a cluster ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--act", "--sites", "s.yaml"], "--price 2.10, or --owned"),
        (["--look", "--exec"], "--exec is not for looking"),
        (["--price", "1", "--owned"], "leave out --owned"),
        (["--look", "--rent"], "--rent is not for looking"),
        (["--rent"], "Say what a GPU of a rented node costs in an hour"),
        (["--price", "cheap"], "an amount like 2.10"),
        (["--name", "a/b"], "--name a/b"),
        (["-n", "Upper"], "no name for Kubernetes"),
        (["--also", "a_b"], "no name for Kubernetes"),
    ],
)
def test_a_wrong_option_is_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "nowhere", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_tunnel_that_is_down_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = kubeconfig(tmp_path, {"token": "t"})
    assert main(["connect", file, "--home", "--sites", "sites.yaml"]) == 2
    assert capsys.readouterr().err.startswith(
        "Error: The tunnel to the cluster is not up: nothing listens on 127.0.0.1"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_a_proxy_that_only_the_kubeconfig_names_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(kubeconfig(tmp_path, {"token": "t"}))
    config = yaml.safe_load(file.read_text())
    config["clusters"][0]["cluster"]["proxy-url"] = "http://proxy.example:3128"
    file.write_text(yaml.safe_dump(config))
    assert main(["connect", str(file), "--look"]) == 2
    assert "names the proxy http://proxy.example:3128; give it in HTTPS_PROXY" in capsys.readouterr().err


def test_print_changes_nothing_and_prints_what_manifests_prints_and_the_right_to_renew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And no namespace: docs/install.md said to pipe it to `kubectl delete`, which deleted `vision` with all Jobs."""
    assert main(["connect", "nowhere", "--home", "--also", "vision", "--print"]) == 0
    captured = capsys.readouterr()
    rights = list(yaml.safe_load_all(captured.out))
    assert "Namespace" not in {item["kind"] for item in rights}
    assert [line.rpartition(": ")[2] for line in captured.err.splitlines()] == [
        "kubectl create namespace penstock",
        "kubectl create namespace vision",
    ]
    assert rights[:-2] == manifests.rbac("home", "penstock", "penstock", ["vision"])
    assert main(["connect", "nowhere", "--rent", "--print"]) == 0
    renting = [item for item in yaml.safe_load_all(capsys.readouterr().out) if item["kind"] != "Namespace"]
    assert renting[:-2] == manifests.rbac("act", "penstock", "penstock", rent=True)
    assert rights[-2]["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["penstock"], "verbs": ["create"]}
    ]


# --- a real API server ------------------------------------------------------------------------------------------------


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    capsys.readouterr()
    assert main(["connect", *words, "--json"]) == 0, capsys.readouterr().err
    answer: Json = json.loads(capsys.readouterr().out)
    return answer


@cluster_story
def test_two_clusters_become_two_sites_with_the_rights_they_need_and_again_changes_nothing(
    lab: ExternalCluster,
    east: ExternalCluster,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites = tmp_path / "sites.yaml"
    sites.write_text("# our sites\ncurrency: EUR\n")
    own = (
        "-n",
        namespace,
        "--account",
        f"penstock-{namespace}",
        "--also",
        f"{namespace}-vision",
        "--sites",
        str(sites),
    )
    answer = answered(capsys, str(lab.kubeconfig), "--home", "--name", "lab", *own)
    assert (answer["site"], answer["sites_file"], answer["cluster"]["version"]) == ("lab", "added", "v1.35.8")
    assert f"created Namespace {namespace}-vision" in answer["changed"]
    assert isinstance(answer["cluster"]["policies"], bool)  # other tests apply them to this cluster, too
    assert [(kind["model"], kind["nodes"]) for kind in answer["cluster"]["gpus"]] == [("A100-SXM4-80GB", 2)]

    answer = answered(capsys, str(east.kubeconfig), "--act", "--name", "east", "--price", "2.10", *own)
    assert {
        (kind["model"], kind["fenced_by"][0] if kind["fenced_by"] else "") for kind in answer["cluster"]["gpus"]
    } == {("A100-SXM4-80GB", ""), ("H100-80GB-HBM3", "spot:NoSchedule")}
    assert any("2 nodes with 8 GPUs have the taint spot:NoSchedule" in line for line in answer["missing"])
    file = read_sites(str(sites))
    assert [(site.id, site.front_door, site.offers[0].term) for site in file.sites] == [
        ("lab", True, "owned"), ("east", False, "on_demand")
    ]  # fmt: skip
    assert sites.read_text().startswith("# our sites\n")

    before = sites.read_text()
    again = answered(capsys, str(east.kubeconfig), "--act", "--name", "east", "--price", "2.10", *own)
    assert (again["changed"], again["sites_file"], sites.read_text()) == ([], "left", before)
    made = tmp_path / "penstock-east.kubeconfig"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    _has_its_rights_and_no_others(ExternalCluster("east", made), namespace)
    east.drop_namespace(f"{namespace}-vision")
    lab.drop_namespace(f"{namespace}-vision")


def _has_its_rights_and_no_others(as_penstock: ExternalCluster, namespace: str) -> None:
    for verb, what, where in (
        ("create", "jobs", namespace),
        ("patch", "jobs", f"{namespace}-vision"),
        ("list", "nodes", ""),
        ("create", f"serviceaccounts/penstock-{namespace}", namespace),
    ):
        part = ["--subresource", "token"] if "/" in what else []
        assert (
            as_penstock.kubectl("auth", "can-i", verb, what, *part, *(["-n", where] if where else [])).strip() == "yes"
        )
    for verb, what in (("create", "serviceaccounts/default"), ("get", "secrets"), ("create", "pods/exec")):
        part = ["--subresource", "token"] if "default" in what else []
        with pytest.raises(Refusal):
            as_penstock.kubectl("auth", "can-i", verb, what, *part, "-n", namespace)


@cluster_story
def test_a_token_is_renewed_at_half_its_life_kept_in_its_file_and_read_again_if_another_process_did_it(
    lab: ExternalCluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = str(tmp_path / "sites.yaml")
    answered(capsys, str(lab.kubeconfig), "--name", "lab", "--home", "-n", namespace,
             "--account", f"penstock-{namespace}", "--sites", sites)  # fmt: skip
    file = tmp_path / "penstock-lab.kubeconfig"
    first = token_in(file)
    bound = read_token(first)
    assert bound is not None
    assert (bound.account, bound.ends - bound.begins) == (f"penstock-{namespace}", token_renewal.LIFE_S)

    async def story() -> None:
        cluster, other = connect(Access(str(file))), connect(Access(str(file)))
        renewal = cluster.transport.renewal  # type: ignore[attr-defined]
        assert isinstance(renewal, TokenRenewal)
        await cluster.list(NODES)
        assert token_in(file) == first
        renewal.now = lambda: bound.half + 1
        await cluster.list(NODES)
        await cluster.close()  # which waits for what is under way
        assert token_in(file) != first
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        other.transport.login.known = "Bearer of yesterday"  # type: ignore[attr-defined]
        await other.list(JOBS, namespace)
        assert other.transport.login.known == f"Bearer {token_in(file)}"  # type: ignore[attr-defined]
        await other.close()

    asyncio.run(story())


def token_in(file: Path) -> str:
    return str(yaml.safe_load(file.read_text())["users"][0]["user"]["token"])


@cluster_story
def test_a_login_that_may_only_look_is_enough_for_shadow_and_is_told_so_for_more(
    lab: ExternalCluster, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [dict(rule) for rule in manifests.LOOKING]
    looks = str(lab.token_for(f"looks-{namespace}", rules, namespace))
    sites = tmp_path / "sites.yaml"
    answer = answered(capsys, looks, "--look", "--name", "lab", "--sites", str(sites))
    assert (answer["changed"], answer["kubeconfig"]) == ([], looks)
    assert "enough for shadow" in answer["missing"][0]
    assert main(["shadow", "--sites", str(sites), "--kubeconfig", looks, "-n", namespace, "--once", "--json"]) == 0
    capsys.readouterr()
    assert main(["connect", looks, "--act", "--owned", "--name", "lab"]) == 2
    assert "may not make Penstock's account" in capsys.readouterr().err
    nobody = str(lab.token_for(f"nobody-{namespace}", [], namespace))
    assert main(["connect", nobody, "--look", "--name", "lab"]) == 2
    assert "neither make an account nor list" in capsys.readouterr().err


@cluster_story
def test_look_makes_an_account_that_can_only_look(
    lab: ExternalCluster,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(["connect", str(lab.kubeconfig), "--look", "--name", "lab", "-n", namespace, "--account", namespace]) == 0
    )
    stdout = capsys.readouterr().out
    assert "A100-SXM4-80GB: 2 nodes of 8" in stdout
    assert "For the sites file, under `sites`:" in stdout
    made = ExternalCluster("lab", tmp_path / "penstock-lab.kubeconfig")
    assert made.get("jobs", "-n", namespace)["items"] == []
    with pytest.raises(Refusal, match="cannot delete"):
        made.kubectl("delete", "job", "x", "-n", namespace)


def test_a_token_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    cluster = connect(Access(kubeconfig(tmp_path, {"token": "t"})))
    assert cluster.transport.renewal is None  # type: ignore[attr-defined]
    asyncio.run(cluster.close())
    with pytest.raises(BadInput):
        connect(Access(str(tmp_path / "none")))
