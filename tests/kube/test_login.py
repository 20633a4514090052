"""As whom we ask a real API server: by a login program, the account of our own pod, or a kubeconfig in a Secret."""

import asyncio
import base64
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from lightkube.config.kubeconfig import KubeConfig

from penstock.cli.main import main
from penstock.core.errors import BadInput
from penstock.devcluster.external import ExternalCluster
from penstock.kube import manifests
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, PODS

pytestmark = pytest.mark.slow
Json = dict[str, Any]
LOOKING = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}]
LOGIN = """#!{python}
import json, os
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert asked["spec"] == {{"interactive": False}}, asked
status = {{"token": {token!r}}}
print(json.dumps({{"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}}))
"""


def read(path: Path) -> Json:
    config: Json = json.loads(path.read_text())
    return config


def jobs_of(access: Access, namespace: str) -> list[Json]:
    async def ask() -> list[Json]:
        cluster = connect(access)
        try:
            return (await cluster.list(JOBS, namespace))[0]
        finally:
            await cluster.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_login_program_that_is_allowed_says_who_we_are(
    lab: ExternalCluster, namespace: str, tmp_path: Path, version: str
) -> None:
    config = read(lab.token_for(f"program-{namespace}", LOOKING, namespace))
    program = tmp_path / "login"
    program.write_text(LOGIN.format(python=sys.executable, token=config["users"][0]["user"]["token"]))
    program.chmod(0o700)
    login = {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(program)}
    config["users"][0]["user"] = {"exec": login}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    assert jobs_of(Access(str(file), allow_exec=(str(program),)), namespace) == []


# --- in a pod ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_pod_of(
    lab: ExternalCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """This process looks as if it ran in a pod of the lab, with this account: with what a kubelet puts into one."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    cluster = read(lab.kubeconfig)["clusters"][0]["cluster"]
    server = urlsplit(cluster["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    (folder / "namespace").write_text(namespace)
    of_pod = functools.partial(KubeConfig.from_service_account, folder)
    monkeypatch.setattr(KubeConfig, "from_service_account", of_pod)

    def put(account: str) -> None:
        (folder / "token").write_text(lab.kubectl("create", "token", account, "-n", namespace).strip())

    return put


def test_in_a_pod_its_own_account_is_used_and_its_token_read_again_when_it_changes(
    lab: ExternalCluster, namespace: str, in_pod_of: Callable[[str], None]
) -> None:
    for account in ("first", "second"):
        lab.apply(*manifests.rbac("act", f"{account}-{namespace}", namespace))
    in_pod_of(f"first-{namespace}")

    async def ask() -> None:
        cluster = connect(Access(in_cluster=True))
        assert cluster.namespace == namespace
        assert await cluster.list(PODS, namespace)
        in_pod_of(f"second-{namespace}")
        lab.token_for(f"first-{namespace}", [], namespace)
        lab.revoke(f"first-{namespace}", namespace)  # as if its token had expired
        assert await cluster.list(PODS, namespace)
        await cluster.close()

    asyncio.run(ask())


def test_a_kubeconfig_in_a_secret_is_read_with_that_account_and_no_other_secret_is(
    lab: ExternalCluster, east: ExternalCluster, namespace: str, in_pod_of: Callable[[str], None]
) -> None:
    account = f"penstock-{namespace}"
    lab.apply(*manifests.rbac("act", account, namespace, secrets=["east"]))
    there = east.token_for(f"remote-{namespace}", LOOKING, namespace).read_text()
    put_secret(lab, namespace, "east", kubeconfig=there)
    put_secret(lab, namespace, "other", kubeconfig=there)
    in_pod_of(account)
    east.apply(job(namespace))
    assert [kube_job["metadata"]["name"] for kube_job in jobs_of(Access(secret="east"), namespace)] == ["there"]
    assert len(jobs_of(Access(secret=f"{namespace}/east"), namespace)) == 1
    with pytest.raises(BadInput, match=r"Secret other cannot be read .*manifests rbac --secret"):
        connect(Access(secret="other"))


def test_a_token_that_connect_marked_is_renewed_into_the_secret_it_was_read_from(
    lab: ExternalCluster,
    east: ExternalCluster,
    namespace: str,
    in_pod_of: Callable[[str], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    account = f"penstock-{namespace}"
    words = ["connect", str(east.kubeconfig), "--act", "--owned", "--name", "east", "-n", namespace]
    assert main([*words, "--account", account, "--sites", str(tmp_path / "sites.yaml")]) == 0
    capsys.readouterr()
    lab.apply(*manifests.rbac("act", account, namespace, secrets=["east"]))
    put_secret(lab, namespace, "east", kubeconfig=(tmp_path / "penstock-east.kubeconfig").read_text())
    in_pod_of(account)

    def kept() -> str:
        held = lab.get("-n", namespace, "secret", "east")["data"]["kubeconfig"]
        return str(json.loads(base64.b64decode(held))["users"][0]["user"]["token"])

    async def ask() -> None:
        before = kept()
        cluster = connect(Access(secret="east"))
        renewal = cluster.transport.renewal  # type: ignore[attr-defined]
        assert renewal is not None
        renewal.now = lambda: renewal.token.half + 1
        assert await cluster.list(JOBS, namespace)
        await cluster.close()
        assert kept() != before

    asyncio.run(ask())


def test_a_secret_that_is_no_kubeconfig_or_wants_files_of_this_machine_is_one_sentence(
    lab: ExternalCluster, namespace: str, in_pod_of: Callable[[str], None]
) -> None:
    account = f"penstock-{namespace}"
    lab.apply(*manifests.rbac("act", account, namespace, secrets=["x"]))
    in_pod_of(account)
    with pytest.raises(BadInput, match=r"Secret x cannot be read .*Not Found"):
        connect(Access(secret="x"))
    put_secret(lab, namespace, "x", config="{}")
    with pytest.raises(BadInput, match="it has no key 'kubeconfig'"):
        connect(Access(secret="x"))
    put_secret(lab, namespace, "x", kubeconfig="no: kubeconfig")
    with pytest.raises(BadInput, match="Secret x cannot be used"):
        connect(Access(secret="x"))
    config = read(lab.kubeconfig)
    config["users"][0]["user"] = {"tokenFile": "/etc/shadow"}
    put_secret(lab, namespace, "x", kubeconfig=json.dumps(config))
    with pytest.raises(BadInput, match="names files of this machine"):
        connect(Access(secret="x"))


def put_secret(cluster: ExternalCluster, namespace: str, name: str, **data: str) -> None:
    cluster.kubectl("-n", namespace, "delete", "secret", name, "--ignore-not-found")
    metadata = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})


def job(namespace: str) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    metadata = {"name": "there", "namespace": namespace}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
