"""The chart: it grants exactly what `penstock manifests` prints, its pods are restricted, and bad values are refused in
clear words.

As a program (`make docs`) this file writes what the chart has from `penstock.kube.manifests`.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

import penstock
from penstock.devcluster.external import ExternalCluster
from penstock.kube import manifests
from tests.deploy.helm import CHART, helm, refused, rendered

FILES = CHART / "files"
ACCOUNT, NAMESPACE, IMAGE = "ACCOUNT-OF-PENSTOCK", "NAMESPACE-OF-PENSTOCK", "IMAGE-OF-PENSTOCK"
Json = dict[str, Any]
SITES = """\
sites:
  - name: lab
    front_door: true
    kubernetes: {in_cluster: true}
    offers:
      - {name: a100, term: owned, gpu: A100, gpus_per_node: 8}
"""
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
LEAST: Json = {"image": {"repository": "registry.example.com/penstock"}, "sites": SITES}
POSTGRES: Json = {**LEAST, "journal": {"postgresSecret": "database"}, "replicas": 2}
ALL: Json = {
    **POSTGRES,
    "image": {"repository": "registry.example.com/penstock", "digest": f"sha256:{'0' * 64}", "pullSecrets": ["pull"]},
    "rights": {"role": "home", "namespaces": ["vision"], "exec": True, "kubeconfigSecrets": ["east"]},
    "admission": {"enabled": True, "mutating": True, "beta": True},
    "watchman": {"enabled": True},
    "tls": {"secret": "certificate"},
    "serviceMonitor": {"enabled": True, "tokenSecret": "metrics", "labels": {"release": "prometheus"}},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "ml"}}}]},
    "env": {"HTTPS_PROXY": "http://proxy:3128"},
    "envSecret": "store",
    "podLabels": {"team": "platform"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/penstock"}},
    "extraEnv": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}],
    "caBundle": {"configMap": "authorities"},
    "extraVolumes": [{"name": "logins", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "logins", "mountPath": "/logins"}],
    "initContainers": [{"name": "first", "image": "x", "securityContext": RESTRICTED}],
    "extraContainers": [{"name": "beside", "image": "x", "securityContext": RESTRICTED}],
    "priorityClassName": "system-cluster-critical",
    "ingress": {"enabled": True, "className": "nginx", "host": "penstock.example.com", "tlsSecret": "penstock-example"},
    "trustProxy": ["10.0.0.0/8", "fd00::1"],
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "x", "operator": "Exists"}],
}
SETS = {"least": LEAST, "postgres": POSTGRES, "all": ALL}
each_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


# --- one source of truth ----------------------------------------------------------------------------------------------


def generated() -> dict[str, str]:
    """What the chart has from `manifests`, by file."""
    (_, role, *_) = manifests.rbac("look", ACCOUNT, NAMESPACE, secrets=["x"])
    kubeconfigs = {key: value for key, value in role["rules"][0].items() if key != "resourceNames"}
    rights = {
        "look": manifests.LOOKING,
        "everywhere": manifests.EVERYWHERE,
        "users": [manifests.CHECKING_USERS],
        "act": manifests.ACTING,
        "home": manifests.SHOWING,
        "exec": manifests.RUNNING,
        "rent": manifests.RENTING,
        "atOnce": manifests.ASKING_AT_ONCE,
        "kueue": manifests.GOVERNING,
        "kubeconfigs": kubeconfigs,
        "policy": manifests.POLICY_READING,
        "policyEvents": [manifests.POLICY_TELLING],
    }
    return {
        "rights.json": json.dumps(rights, indent=2) + "\n",
        "admission.yaml": _dumped(manifests.admission(ACCOUNT, NAMESPACE)),
        "mutating.yaml": _dumped(manifests.mutation()),
        "watchman.yaml": _dumped(manifests.watchman(IMAGE, NAMESPACE)),
        "kueue.yaml": _dumped([manifests.admission_check("penstock")]),
    }


def _dumped(objects: list[Json]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=100_000)


def test_what_the_chart_has_from_manifests_is_up_to_date() -> None:
    assert {name: (FILES / name).read_text() for name in generated()} == generated(), "run `make docs`"


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (penstock.__version__, penstock.__version__)


# --- rendered ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "namespaces", "commands", "secrets", "policy", "more"),
    [
        ("look", [], False, [], "", []),
        ("look", [], False, [], "", ["kueue"]),
        ("act", ["vision"], True, [], "", ["rent"]),
        ("home", ["vision", "nlp"], False, ["east", "west"], "penstock-policy", ["kueue"]),
        ("home", ["vision"], True, [], "rules", ["rent", "kueue"]),
    ],
)
def test_its_rights_are_those_of_manifests_rule_by_rule(
    role: manifests.Role, namespaces: list[str], commands: bool, secrets: list[str], policy: str, more: list[str]
) -> None:
    rent, kueue = "rent" in more, "kueue" in more
    rights = {
        "role": role,
        "namespaces": namespaces,
        "exec": commands,
        "kubeconfigSecrets": secrets,
        "policyConfigMap": policy,
        "rent": rent,
        "kueue": kueue,
    }
    made = rendered({**LEAST, "rights": rights}, release="pen", namespace="platform")
    named: Json = {"commands": commands, "secrets": secrets, "policy": policy, "rent": rent, "kueue": kueue}
    printed = manifests.rbac(role, "pen", "platform", namespaces, **named)
    printed += [manifests.admission_check("penstock")] if kueue else []
    assert by_name(made, printed) == by_name(printed, printed)


@pytest.mark.parametrize("beta", [False, True])
def test_its_policies_are_those_of_manifests(beta: bool) -> None:
    others = ["system:serviceaccount:nlp:pen", "robot@example.com"] if beta else []
    admission = {"enabled": True, "mutating": True, "beta": beta, "users": others}
    made = rendered({**LEAST, "admission": admission}, release="pen", namespace="platform")
    logins = manifests.Logins(tuple(others))
    printed = [*manifests.admission("pen", "platform", logins), *manifests.mutation(beta=beta)]
    assert by_name(made, printed) == by_name(printed, printed)


def test_its_watchman_is_that_of_manifests() -> None:
    made = rendered({**LEAST, "watchman": {"enabled": True}}, release="pen", namespace="platform")
    printed = manifests.watchman(f"registry.example.com/penstock:{penstock.__version__}", "platform")
    ours = by_name(made, printed)
    assert {key: ours[key] for key in by_name(printed, printed)} == by_name(printed, printed)


def by_name(objects: list[Json], like: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Objects of the same kinds, without the labels that helm adds."""
    kinds = {item["kind"] for item in like}
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): {
            key: value for key, value in item.items() if key != "metadata"
        }
        for item in objects
        if item["kind"] in kinds
    }


@each_set
def test_lint_finds_nothing(values: Json) -> None:
    done = helm("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


@each_set
def test_pods_are_restricted_and_their_files_are_read_only(values: Json) -> None:
    for pod in [made["spec"]["template"]["spec"] for made in rendered(values) if made["kind"] == "Deployment"]:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"] == RESTRICTED


def test_a_volume_holds_the_journal_of_one_replica_and_postgresql_that_of_several() -> None:
    small, large = rendered(LEAST), rendered(POSTGRES)
    kinds = [{item["kind"] for item in made} for made in (small, large)]
    assert ["PersistentVolumeClaim" in kind for kind in kinds] == [True, False]
    assert ["Secret" in kind for kind in kinds] == [False, True]
    (single,), (several,) = ([made["spec"] for made in some if made["kind"] == "Deployment"] for some in (small, large))
    assert (single["replicas"], single["strategy"]) == (1, {"type": "Recreate"})
    assert (several["replicas"], "--stand-by" in several["template"]["spec"]["containers"][0]["args"]) == (2, True)


def test_its_pod_logs_in_to_a_cloud_by_its_own_identity() -> None:
    """Penstock in a pod could log in to EKS, AKS and GKE by stored tokens only: the account took no annotations, and
    the pod neither volumes nor variables that name them.
    """
    annotations = {"azure.workload.identity/client-id": "00000000-0000-0000-0000-000000000000"}
    token = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"audience": "sts", "path": "token"}}]}}
    made = rendered(
        {
            **LEAST,
            "serviceAccount": {"annotations": annotations},
            "podLabels": {"azure.workload.identity/use": "true"},
            "extraVolumes": [token],
            "extraVolumeMounts": [{"name": "token", "mountPath": "/var/run/identity"}],
            "extraEnv": [{"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/var/run/identity/token"}],
        }
    )
    (account,) = [item for item in made if item["kind"] == "ServiceAccount"]
    assert account["metadata"]["annotations"] == annotations
    template = the_deployment(made)["spec"]["template"]
    assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert template["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert token in template["spec"]["volumes"]
    (container,) = template["spec"]["containers"]
    assert {"name": "token", "mountPath": "/var/run/identity"} in container["volumeMounts"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["AWS_WEB_IDENTITY_TOKEN_FILE"] == "/var/run/identity/token"
    assert env["HOME"] in {mount["mountPath"] for mount in container["volumeMounts"]}  # login programs write there


def test_it_uses_the_account_and_the_rights_that_connect_made() -> None:
    there = {"serviceAccount": {"create": False, "name": "penstock"}, "rights": {"create": False}}
    made = rendered({**LEAST, **there, "admission": {"enabled": True}}, release="pen", namespace="platform")
    assert not {"ServiceAccount", "Role", "ClusterRole", "RoleBinding"} & {item["kind"] for item in made}
    assert the_deployment(made)["spec"]["template"]["spec"]["serviceAccountName"] == "penstock"
    assert '"system:serviceaccount:platform:penstock"' in json.dumps(made).replace('\\"', '"')
    secrets = {**there, "rights": {"create": False, "kubeconfigSecrets": ["east"]}}
    roles = [item["metadata"]["name"] for item in rendered({**LEAST, **secrets}) if item["kind"] == "Role"]
    assert roles == ["penstock-kubeconfigs"]  # connect does not know of it


def test_a_certificate_of_its_own_encrypts_the_api_and_its_names_are_the_services() -> None:
    """Without `tls.secret` tokens crossed the cluster's network in clear, and nothing said so."""
    made = rendered({**LEAST, "tls": {"selfMade": True}, "serviceMonitor": {"enabled": True}})
    (secret,) = [item for item in made if item["kind"] == "Secret"]
    pem = base64.b64decode(secret["data"]["tls.crt"])
    names = load_pem_x509_certificate(pem).extensions.get_extension_for_class(SubjectAlternativeName).value
    assert {"penstock.penstock.svc", "localhost"} <= set(names.get_values_for_type(DNSName))
    spec = the_deployment(made)["spec"]["template"]["spec"]
    assert "--plain-http" not in spec["containers"][0]["args"]
    assert {"name": "tls", "secret": {"secretName": secret["metadata"]["name"]}} in spec["volumes"]
    (monitor,) = [item for item in made if item["kind"] == "ServiceMonitor"]
    assert monitor["spec"]["endpoints"][0]["scheme"] == "https"


def the_deployment(made: list[Json]) -> Json:
    (deployment,) = [item for item in made if item["kind"] == "Deployment"]
    return deployment


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": {}}, "image.repository is needed"),
        ({"sites": ""}, "--set-file sites=sites.yaml"),
        ({"replicas": 2}, "replicas above 1 need PostgreSQL"),
        ({"replicas": 0}, "replicas"),
        ({"replica": 2}, "replica"),
        ({"rights": {"role": "admin"}}, "role"),
        ({"rights": {"role": "look", "exec": True}}, "rights.exec is not for looking"),
        ({"rights": {"role": "look", "rent": True}}, "rights.rent is not for looking"),
        ({"rights": {"namespaces": ["Vision"]}}, "namespaces"),
        ({"admission": {"enabled": True, "users": ["it's me"]}}, "users"),
        ({"admission": {"mutating": True}}, "admission.mutating needs admission.enabled"),
        ({"admission": {"enabled": True, "beta": True}}, "set both, or neither"),
        ({"image": {"repository": "x", "digest": "latest"}}, "digest"),
        ({"journal": {"volume": {"size": "10"}}}, "size"),
        ({"service": {"type": "Ingress"}}, "type"),
        ({"serviceAccount": {"annotation": {}}}, "annotation"),
        ({"extraVolumes": [{"emptyDir": {}}]}, "name"),
        ({"ingress": {"enabled": True}}, "ingress.host is needed"),
        ({"tls": {"secret": "mine", "selfMade": True}}, "set one of them"),
        ({"trustProxy": ["proxy.local"]}, "trustProxy"),
        ({"env": {"A": 1}}, "env"),
    ],
)
def test_bad_values_are_refused_and_the_value_is_named(change: Json, words: str) -> None:
    assert words in refused({**LEAST, **change})


# --- a real API server ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_api_server_takes_it_in_a_restricted_namespace(lab: ExternalCluster, namespace: str) -> None:
    lab.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted",
                "pod-security.kubernetes.io/warn=restricted")  # fmt: skip
    for values in ({**LEAST, "admission": {"enabled": True}}, POSTGRES):
        made = rendered(values, release=f"pen-{namespace}", namespace=namespace)
        for manifest in made:
            lab.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(manifest))
        (pod,) = [item["spec"]["template"] for item in made if item["kind"] == "Deployment"]
        plain = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x", "namespace": namespace},
            "spec": pod["spec"],
        }
        lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(plain))


def write() -> None:
    Path(FILES).mkdir(exist_ok=True)
    for name, text in generated().items():
        (FILES / name).write_text(text)


if __name__ == "__main__":
    write()
