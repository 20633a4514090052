"""The rights that we ask for are enough, and what the admission policies forbid is refused by a real API server."""

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.cli.main import penstock
from penstock.devcluster import ClusterGroup
from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.devcluster.plane import CLIENT_CA
from penstock.front import binding_driver, recorded_users
from penstock.front.applying import Applier
from penstock.journal.rows import Filter
from penstock.kube import annotations, kueue, manifests
from penstock.kube.access import Access, connect
from penstock.kube.job_needs import job_needs
from tests.clusters import emptied_namespace
from tests.front.kit import DELAY, LIMIT_S, Clustered, binding, complete, home_job, running

pytestmark = pytest.mark.slow
Json = dict[str, Any]


@pytest.fixture
def place(own_bed: ClusterGroup) -> Iterator[tuple[DevCluster, DevCluster, str]]:
    lab, east = own_bed.cluster("lab"), own_bed.cluster("east")
    with emptied_namespace(lab, east) as namespace:
        yield lab, east, namespace


def kubeconfig(cluster: DevCluster, role: manifests.Role, namespace: str) -> Path:
    """Of an account with the rights that `penstock manifests rbac` prints, and no others."""
    account = f"penstock-{namespace}"
    path = cluster.token_for(account, [], namespace)
    for thing in manifests.rbac(role, account, namespace):
        cluster.apply(thing)
    return path


def test_with_the_rights_that_we_ask_for_a_job_bursts_and_completes(
    place: tuple[DevCluster, DevCluster, str], tmp_path: Path
) -> None:
    lab, east, namespace = place
    limited = {"lab": kubeconfig(lab, "home", namespace), "east": kubeconfig(east, "act", namespace)}

    async def tell() -> None:
        async with Clustered(lab, east, namespace, tmp_path, kubeconfig=limited["lab"], limited=limited) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            job = home_job("b")
            job["spec"]["template"]["metadata"] = {"annotations": {DELAY: "2s"}}
            here.apply(job)
            await here.shows("b", complete)
            here.delete("a")
            await here.is_gone("a")
            assert [alarm.text for alarm in here.plane.alarms.now()] == []

    asyncio.run(tell())


def test_a_right_that_is_missing_is_named_and_nothing_is_half_done(
    place: tuple[DevCluster, DevCluster, str], tmp_path: Path
) -> None:
    lab, east, namespace = place
    path = kubeconfig(lab, "home", namespace)
    lab.kubectl("-n", namespace, "delete", "role", manifests.granted_as(f"penstock-{namespace}", namespace, "act"))
    for thing in manifests.rbac("act", f"penstock-{namespace}", namespace):  # all but what home Jobs need
        if "rules" in thing:
            thing["rules"] = [rule for rule in thing["rules"] if rule["resources"] != ["jobs/status"]]
        lab.apply(thing)
    limited = {"lab": path, "east": kubeconfig(east, "act", namespace)}

    async def tell() -> None:
        async with Clustered(lab, east, namespace, tmp_path, kubeconfig=path, limited=limited) as here:
            here.apply(home_job("a"))
            await here.shows("a", lambda job: job["spec"]["suspend"] is False)
            words = "our account may not patch jobs.batch/status; see 'penstock manifests rbac'"
            async with asyncio.timeout(55):
                while not any(words in alarm.text for alarm in here.plane.alarms.now()):
                    await asyncio.sleep(0.2)
            async with asyncio.timeout(55):
                while not (made := await asyncio.to_thread(here.executions, "lab")):
                    await asyncio.sleep(0.2)
            assert len(made) == 1

    asyncio.run(tell())


def test_two_installations_with_accounts_of_the_same_name_run_side_by_side_and_one_leaves(
    own_bed: ClusterGroup, tmp_path: Path
) -> None:
    """The second took the first one's rights away: their roles had the same name."""
    lab, east = own_bed.cluster("lab"), own_bed.cluster("east")

    def rights(namespace: str) -> dict[str, Path]:
        paths = {}
        for cluster in (lab, east):  # the test bed has one kubeconfig for each account's name
            path = paths[cluster.name] = tmp_path / f"{cluster.name}-{namespace}.kubeconfig"
            path.write_bytes(cluster.token_for("side", [], namespace).read_bytes())
        lab.apply(*manifests.rbac("home", "side", namespace))
        east.apply(*manifests.rbac("act", "side", namespace))
        return paths

    with emptied_namespace(lab, east) as one, emptied_namespace(lab, east) as two:
        mine, theirs = ((*(lab, east, name, tmp_path / name), rights(name)) for name in (one, two))
        for *_, folder, _paths in (mine, theirs):
            folder.mkdir()

        async def tell() -> None:
            async with _limited(*mine) as first, _limited(*theirs) as second:
                first.apply(home_job("a", gpus=8))
                await first.shows("a", running)
                await _sees_lab_full(second)  # or it would try there first, and wait for a node
                second.apply(home_job("a", gpus=8))
                await second.shows("a", running)
                assert [len(here.executions("lab") + here.executions("east")) for here in (first, second)] == [1, 1]
                await first.manager.leave("lab")
                for site in ("lab", "east"):
                    first.finish(site)
                async with asyncio.timeout(LIMIT_S):
                    await first.manager.controllers["lab"].left.wait()
                assert running(await second.shows("a", running))
                for site in ("lab", "east"):
                    second.finish(site)
                await second.shows("a", complete)
                assert [alarm.text for alarm in second.plane.alarms.now()] == []

        asyncio.run(tell())


class Apart(Clustered):
    """Its account lives in a namespace of its own, as people install it, and its Jobs in another one."""

    def __init__(self, lab: DevCluster, east: DevCluster, namespace: str, folder: Path, own: str, **more: Any) -> None:
        super().__init__(lab, east, namespace, folder, **more)
        self.settings = {
            site: replace(settings, namespace=own, namespaces=(namespace,), retry_ms=1_000)
            for site, settings in self.settings.items()
        }


@pytest.mark.parametrize("outlives", [True, False], ids=["with all rights", "with those of an earlier release"])
def test_a_namespace_that_is_deleted_takes_our_role_along_and_is_not_held_for_ever(
    own_bed: ClusterGroup, tmp_path: Path, outlives: bool
) -> None:
    """Our Role in it went before our finalizers: it hung in Terminating, elsewhere with a home Job that said Running,
    with no Event, and money held. Without the right that outlives the Role, the attempt ends all the same, and a
    sentence says who must let the namespace go.
    """
    lab, east = own_bed.cluster("lab"), own_bed.cluster("east")

    def rights(role: manifests.Role, cluster: DevCluster) -> Path:
        path = tmp_path / f"{cluster.name}.kubeconfig"
        path.write_bytes(cluster.token_for("apart", [], own).read_bytes())
        for thing in manifests.rbac(role, "apart", own, [namespace]):
            if thing["kind"] == "ClusterRole" and not outlives:
                thing["rules"] = [rule for rule in thing["rules"] if rule["resources"] != ["jobs/status"]]
            cluster.apply(thing)
        return path

    def is_gone(cluster: DevCluster) -> bool:
        return namespace not in [one["metadata"]["name"] for one in cluster.get("namespaces")["items"]]

    async def goes(cluster: DevCluster) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not await asyncio.to_thread(is_gone, cluster):
                await asyncio.sleep(0.2)

    async def tell() -> None:
        limited = {"lab": rights("home", lab), "east": rights("act", east)}
        async with Apart(lab, east, namespace, tmp_path, own, kubeconfig=limited["lab"], limited=limited) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b"))
            assert binding(await here.shows("b", running))["site"] == "east"
            east.drop_namespace(namespace)
            await here.says("b", "Preempted")
            if outlives:
                await goes(east)
            else:
                driver = here.plane.drivers["east"]
                async with asyncio.timeout(LIMIT_S):
                    while "waits for finalizers of Penstock" not in (await driver.look()).warns:
                        await asyncio.sleep(0.2)
            here.finish("lab")
            await here.shows("a", complete)
            assert binding(await here.shows("b", running))["site"] == "lab"
            assert f"namespace {namespace} at east is gone or being deleted" in str(here.why("j1"))
            if outlives:
                lab.drop_namespace(namespace)
                await goes(lab)
                first, *between, last = (attempt.outcome for attempt in here.reader.attempts("j1"))
                assert (first, set(between)) == ("lost", {"refused"})
                assert last in (
                    "lost",
                    "stopped",
                )  # the home Job and what runs for it go at once: whichever is seen first

    with emptied_namespace(lab, east) as own, emptied_namespace(lab, east) as namespace:
        asyncio.run(tell())


async def _sees_lab_full(here: Clustered) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await here.plane.consider(lambda state, _: state.pools["lab/a100"].free_gpus):
            await asyncio.sleep(0.05)


def _limited(lab: DevCluster, east: DevCluster, namespace: str, folder: Path, limited: dict[str, Path]) -> Clustered:
    return Clustered(lab, east, namespace, folder, kubeconfig=limited["lab"], limited=limited)


def in_headless(name: str, **more: Any) -> Json:
    """Two pods that find each other by name."""
    spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2}
    return home_job(name, pod={"subdomain": "team"}, spec=spec, **more)


@pytest.mark.parametrize(("site", "resource"), [("lab", "endpointslices.discovery.k8s.io"), ("east", "services")])
def test_pods_that_could_not_find_each_other_do_not_start_and_an_event_names_the_right_that_is_missing(
    place: tuple[DevCluster, DevCluster, str], tmp_path: Path, site: str, resource: str
) -> None:
    lab, east, namespace = place
    limited = {"lab": kubeconfig(lab, "home", namespace), "east": kubeconfig(east, "act", namespace)}
    role = manifests.granted_as(f"penstock-{namespace}", namespace, "act")
    cluster = lab if site == "lab" else east
    cluster.kubectl("-n", namespace, "delete", "role", role)
    for thing in manifests.rbac("home" if site == "lab" else "act", f"penstock-{namespace}", namespace):
        if thing["kind"] == "Role":
            thing["rules"] = [rule for rule in thing["rules"] if rule["resources"] != [resource.partition(".")[0]]]
        cluster.apply(thing)
    service = {
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }
    lab.apply({"apiVersion": "v1", "kind": "Service", **service})

    async def tell() -> None:
        maps = {"copy_services": True}
        async with Clustered(
            lab, east, namespace, tmp_path, kubeconfig=limited["lab"], limited=limited, maps=maps
        ) as here:
            if site == "east":
                here.apply(home_job("full"))
                await here.shows("full", running)
            here.apply(in_headless("a", gpus=4))
            event = await here.says("a", "NotStarting")
            words = f"its pods find each other as a-0.team, and our account there may not create {resource}"
            assert words in event["message"]
            assert any(words in line for line in here.why("j1" if site == "east" else "j0"))
            assert here.executions(site) == []

    asyncio.run(tell())


@pytest.fixture
def ruled(place: tuple[DevCluster, DevCluster, str]) -> Iterator[tuple[DevCluster, str]]:
    lab, _, namespace = place
    made = manifests.admission("penstock", namespace)
    lab.apply(*made)
    lab.kubectl("label", "namespace", namespace, f"{manifests.GOVERNED}=true")
    _until_ruled(lab, namespace, "kubectl penstock apply")
    _until_forgery_is_refused(lab, namespace)
    yield lab, namespace
    for thing in made:
        lab.kubectl("delete", thing["kind"], thing["metadata"]["name"])


# --- logins ----------------------------------------------------------------------------------------------------------


class Certified:
    """An authority that the lab's API server trusts, and kubeconfigs of whom it certifies."""

    def __init__(self, lab: DevCluster, folder: Path) -> None:
        self.lab, self.folder, self.key = lab, folder, ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clients")])
        builder = _certificate(name, name, self.key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.ca = builder.sign(self.key, hashes.SHA256())
        (lab.folder / CLIENT_CA).write_bytes(self.ca.public_bytes(serialization.Encoding.PEM))
        lab.kill_api()
        lab.start_api()

    def kubeconfig(self, user: str, group: str) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [(NameOID.COMMON_NAME, user), (NameOID.ORGANIZATION_NAME, group)]
        subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in names])
        may = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _certificate(subject, self.ca.subject, key).add_extension(may, False)
        pem = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        secret = key.private_bytes(serialization.Encoding.PEM, *plain)
        config = json.loads(self.lab.kubeconfig.read_text())
        login = {"client-certificate-data": pem, "client-key-data": secret}
        config["users"][0]["user"] = {name: base64.b64encode(text).decode() for name, text in login.items()}
        path = self.folder / f"{user}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    now = datetime.now(UTC)
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=6))


def test_a_login_that_our_policies_do_not_know_is_an_alarm_and_a_wait_until_they_do(
    place: tuple[DevCluster, DevCluster, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Penstock logged in by certificate: its own policy denied it, and that was the user's failed Job."""
    lab, east, namespace = place
    user, group = f"penstock-{namespace}", f"operators-{namespace}"
    path = Certified(lab, tmp_path).kubeconfig(user, group)
    logins = manifests.Logins((user,), (group,))
    lab.apply(*manifests.rbac("home", "penstock", namespace, logins=logins))
    policies = manifests.admission("penstock", namespace)  # the service account's alone
    lab.apply(*policies)
    monkeypatch.setattr(binding_driver, "DENIED_MS", 1000)
    (tmp_path / "sites.yaml").write_text(SITES.format(path=path, namespace=namespace))

    async def tell() -> None:
        async with Clustered(lab, east, namespace, tmp_path, kubeconfig=path, limited={"lab": path}) as here:
            here.apply(home_job("a"))
            async with asyncio.timeout(55):
                while not any("penstock-bindings" in alarm.text for alarm in here.plane.alarms.now()):
                    await asyncio.sleep(0.1)
            assert here.phase("j0") == "waiting"  # no failure of the user's
            assert "does not know the login" in (await here.says("a", "StartFailed"))["message"]
            printed = CliRunner().invoke(penstock, ["manifests", "admission", "-n", namespace, "--as-group", group])
            assert user not in printed.output
            lab.kubectl("apply", "-f", "-", stdin=printed.output)  # it knows the group
            await here.shows("a", running)
            async with asyncio.timeout(55):
                while here.plane.alarms.now():
                    await asyncio.sleep(0.1)
            asked = ["manifests", "admission", "-n", namespace, "--sites", str(tmp_path / "sites.yaml")]
            known = await asyncio.to_thread(CliRunner().invoke, penstock, asked)
            assert f'request.userInfo.username in ["system:serviceaccount:{namespace}:penstock", "{user}"]' in " ".join(
                str(document) for document in yaml.safe_load_all(known.output)
            )
            lab.kubectl("apply", "-f", "-", stdin=known.output)  # by its user's name alone
            here.delete("a")
            await here.is_gone("a")

    try:
        _until_ruled(lab, namespace, "kubectl penstock apply")
        asyncio.run(tell())
    finally:
        for thing in policies:
            lab.kubectl("delete", thing["kind"], thing["metadata"]["name"])


SITES = """
sites:
  - name: lab
    driver: kubernetes
    kubernetes: {{kubeconfig: {path}, namespace: {namespace}}}
    offers: [{{name: a100, gpu: A100, term: owned, gpus_per_node: 8}}]
"""


def _until_ruled(cluster: ExternalCluster, namespace: str, word: str) -> None:
    """An API server takes policies up a moment after they are written; each try is a request of its own. `word`: of
    what it makes of an incomplete Job from then on, or of its refusal."""
    for _ in range(200):
        try:
            answer = json.dumps(created(cluster, namespace, plain("probe"), "--dry-run=server"))
        except Refusal as refusal:
            answer = str(refusal)
        if word in answer:
            return
    raise AssertionError("the policies were never taken up")


def _until_forgery_is_refused(cluster: ExternalCluster, namespace: str) -> None:
    """Each policy is taken up by itself: the same for the name of a new Job's user."""
    for _ in range(200):
        try:
            created(cluster, namespace, home_job("probe", annotations={"user": "bob"}), "--dry-run=server")
        except Refusal:
            return
    raise AssertionError("the policy was never taken up")


def _until_protected(cluster: ExternalCluster, namespace: str, job: str) -> None:
    """The same for the name of a Job's user."""
    for _ in range(200):
        try:
            change = (f"{annotations.USER}=bob", "--overwrite", "--dry-run=server")
            cluster.kubectl("-n", namespace, "annotate", "job", job, *change)
        except Refusal:
            return
    raise AssertionError("the policy was never taken up")


def created(cluster: ExternalCluster, namespace: str, thing: Json, *more: str) -> Json:
    text = cluster.kubectl("-n", namespace, "create", "-o", "json", *more, "-f", "-", stdin=json.dumps(thing))
    made: Json = json.loads(text)
    return made


@pytest.fixture
def completing(place: tuple[DevCluster, DevCluster, str]) -> Iterator[tuple[DevCluster, DevCluster, str]]:
    """The policy that adds what a labelled Job lacks, beside the one that demands it."""
    lab, _, namespace = place
    made = [*manifests.mutation(beta=True), *manifests.admission("penstock", namespace)[:2]]
    lab.apply(*made)
    _until_ruled(lab, namespace, f'"managedBy": "{annotations.MANAGER}"')
    yield place
    for thing in made:
        lab.kubectl("delete", thing["kind"], thing["metadata"]["name"])


def plain(name: str, **more: Any) -> Json:
    job = home_job(name, **more)
    for key in ("suspend", "managedBy"):
        job["spec"].pop(key, None)
    return job


def refused(cluster: DevCluster, namespace: str, thing: Json) -> str:
    with pytest.raises(Refusal) as raised:
        cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(thing))
    return str(raised.value)


def test_admission_refuses_what_goes_around_us(ruled: tuple[DevCluster, str]) -> None:
    lab, namespace = ruled
    assert "kubectl penstock apply" in refused(lab, namespace, plain("unmanaged"))
    unlabelled = home_job("unlabelled")
    del unlabelled["metadata"]["labels"]
    assert "GPUs are used through Penstock here" in refused(lab, namespace, unlabelled)
    metadata: Json = {"name": "bare"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": home_job("x")["spec"]["template"]["spec"],
    }
    assert "GPUs are used through Penstock here" in refused(lab, namespace, pod)
    metadata["labels"] = {annotations.EXECUTION: "forged", annotations.QUEUE: "vision"}
    assert "GPUs are used through Penstock here" in refused(lab, namespace, pod)
    forged = home_job("forged", annotations={"binding": "{}"})
    assert "Only Penstock writes" in refused(lab, namespace, forged)
    execution = home_job("execution", labels={annotations.EXECUTION: "x"})
    assert "Only Penstock writes" in refused(lab, namespace, execution)
    lab.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(home_job("good")))
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "u"}
    of_job_set = home_job("of-job-set", spec={"suspend": False})
    of_job_set["metadata"]["ownerReferences"] = [owner]
    created(lab, namespace, of_job_set)
    del of_job_set["spec"]["managedBy"]
    assert "needs suspend: true and managedBy" in refused(lab, namespace, of_job_set)
    with pytest.raises(Refusal, match="Only Penstock writes"):
        lab.kubectl("-n", namespace, "annotate", "job", "good", f"{annotations.BINDING}=x")


def test_in_a_governed_namespace_no_container_of_any_kind_gets_past(ruled: tuple[DevCluster, str]) -> None:
    lab, namespace = ruled
    gpus, privileged = {"limits": {"nvidia.com/gpu": "1"}}, {"privileged": True}
    slice_of_one = {"limits": {"nvidia.com/mig-1g.10gb": "1"}}
    container: Json = {"name": "main", "image": "train:1"}
    step: Json = {"name": "step", "image": "train:1"}
    hidden = [
        {"containers": [container], "initContainers": [{**step, "resources": gpus}]},
        {"containers": [container], "initContainers": [{**step, "restartPolicy": "Always", "resources": gpus}]},
        {"containers": [{**container, "resources": slice_of_one}]},
        {"containers": [container], "initContainers": [{**step, "resources": slice_of_one}]},
        {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    ]
    for pod in hidden:
        for thing in (_pod(pod), _job(pod)):
            assert "GPUs are used through Penstock here" in refused(lab, namespace, thing), pod
        assert job_needs(_job(pod)).gpus or "resourceClaims" in pod  # the front door counts what admission finds
    none = {"containers": [{**container, "resources": {"limits": {"nvidia.com/gpu": "0", "rdma/hca": "1"}}}]}
    created(lab, namespace, _job(none))
    assert job_needs(_job(none)).gpus == ()
    bad_step = {"containers": [container], "initContainers": [{**step, "securityContext": privileged}]}
    for thing in (_pod(bad_step), _job(bad_step)):
        assert "Privileged containers are not allowed here" in refused(lab, namespace, thing)
    created(lab, namespace, _pod({"containers": [container]}))
    added = {"spec": {"ephemeralContainers": [{**step, "securityContext": privileged}]}}
    change = ("--subresource", "ephemeralcontainers", "--type", "strategic", "-p", json.dumps(added))
    with pytest.raises(Refusal, match="Privileged containers are not allowed here"):
        lab.kubectl("-n", namespace, "patch", "pod", "hidden", *change)


def _pod(spec: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hidden"}, "spec": spec}


def _job(pod: Json) -> Json:
    template = {"spec": {**pod, "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hidden"}, "spec": {"template": template}}


def person(cluster: DevCluster, namespace: str, name: str) -> ExternalCluster:
    """Somebody who may create and change Jobs, and nothing else."""
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "patch"]}]
    return ExternalCluster(name, cluster.token_for(f"{name}-{namespace}", rules, namespace))


def applied_by(who: ExternalCluster, namespace: str, job: Json) -> Json:
    """As `kubectl penstock apply` does it."""

    async def apply() -> Json:
        cluster = connect(Access(kubeconfig=str(who.kubeconfig)))
        try:
            return (await Applier(cluster, "vision", namespace).apply(job)).manifest
        finally:
            await cluster.close()

    return asyncio.run(apply())


def test_nobody_writes_anothers_name_on_a_job_and_it_never_changes(ruled: tuple[DevCluster, str]) -> None:
    lab, namespace = ruled
    ada = person(lab, namespace, "ada")
    her_name = f"system:serviceaccount:{namespace}:ada-{namespace}"
    wrong = "names whoever created the Job, and cannot be changed"
    with pytest.raises(Refusal, match=wrong):
        created(ada, namespace, home_job("forged", annotations={"user": "bob"}))
    made = created(ada, namespace, home_job("hers", annotations={"user": her_name}))
    assert made["metadata"]["annotations"][annotations.USER] == her_name
    for change in (f"{annotations.USER}=bob", f"{annotations.USER}-"):
        with pytest.raises(Refusal, match=wrong):
            ada.kubectl("-n", namespace, "annotate", "job", "hers", "--overwrite", change)
    applied = applied_by(ada, namespace, plain("applied"))
    assert applied["metadata"]["annotations"][annotations.USER] == her_name
    created(ada, namespace, home_job("nobodys"))
    with pytest.raises(Refusal, match=wrong):
        ada.kubectl("-n", namespace, "annotate", "job", "nobodys", f"{annotations.USER}={her_name}")


def test_where_admission_records_it_a_job_is_its_users_by_an_opaque_id_and_otherwise_its_teams(
    completing: tuple[DevCluster, DevCluster, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, east, namespace = completing
    monkeypatch.setattr(recorded_users, "TAKEN_UP", timedelta(seconds=0))
    ada = person(lab, namespace, "ada")
    her_name = f"system:serviceaccount:{namespace}:ada-{namespace}"

    async def users(**jobs: Json) -> dict[str, str]:
        async with Clustered(lab, east, namespace, tmp_path, kubeconfig=kubeconfig(lab, "home", namespace)) as here:
            for job in jobs.values():
                created(ada, namespace, job)
            for name in jobs:
                await here.shows(name, lambda shown: annotations.JOB in (shown["metadata"].get("annotations") or {}))
            rows = here.reader.jobs(Filter())
            assert her_name not in str([here.reader.spec(row.id) for row in rows])
            return {row.name.partition("/")[2]: row.user for row in rows}

    unprotected = plain("a", annotations={"user": "bob"})
    assert asyncio.run(users(a=unprotected)) == {"a": "vision"}  # nothing keeps people from writing a name of theirs
    policies = manifests.admission("penstock", namespace)[-2:]
    lab.apply(*policies)
    try:
        _until_protected(lab, namespace, "a")
        hers = recorded_users.opaque(b"", "lab", her_name)
        assert asyncio.run(users(b=plain("b"), c=home_job("c"))) == {"a": "vision", "b": hers, "c": hers}
    finally:
        for thing in policies:
            lab.kubectl("delete", thing["kind"], thing["metadata"]["name"])


def test_where_the_cluster_completes_jobs_the_label_alone_is_enough(
    completing: tuple[DevCluster, DevCluster, str], tmp_path: Path
) -> None:
    lab, east, namespace = completing
    job = plain("a")
    job["spec"]["template"]["metadata"] = {"annotations": {DELAY: "1s"}}

    async def tell() -> None:
        async with Clustered(lab, east, namespace, tmp_path) as here:
            made = created(lab, namespace, job)
            assert (made["spec"]["suspend"], made["spec"]["managedBy"]) == (True, annotations.MANAGER)
            assert made["metadata"]["labels"] == {annotations.QUEUE: "vision", kueue.QUEUE: kueue.NOWHERE}
            await here.shows("a", complete)

    asyncio.run(tell())


def test_a_job_that_is_complete_or_not_ours_stays_as_it_was_written(
    completing: tuple[DevCluster, DevCluster, str],
) -> None:
    lab, _, namespace = completing
    queued = created(lab, namespace, plain("queued", labels={kueue.QUEUE: "research"}))["metadata"]
    assert (queued["labels"][kueue.QUEUE], queued["annotations"][kueue.MEANT]) == (kueue.NOWHERE, "research")
    whole = created(lab, namespace, home_job("whole", labels={kueue.QUEUE: "mine"}))
    assert whole["metadata"]["labels"][kueue.QUEUE] == "mine"
    unlabelled = plain("unlabelled")
    del unlabelled["metadata"]["labels"]
    spec = created(lab, namespace, unlabelled)["spec"]
    assert (spec["suspend"], spec.get("managedBy")) == (False, None)
    theirs = home_job("theirs", spec={"managedBy": "kueue.x-k8s.io/multikueue"})
    assert "needs suspend: true and managedBy" in refused(lab, namespace, theirs)
