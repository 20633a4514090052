"""What a platform engineer applies to a cluster: exactly the rights Penstock needs, and admission policies. Pure.

`penstock manifests` prints them; docs/kubernetes.md explains them; tests run with these rights and no others.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from penstock.kube import annotations, kueue
from penstock.kube.gpu_requests import WHOLE

Json: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["look", "act", "home"]
ROLES: Final = ("look", "act", "home")
RBAC: Final = "rbac.authorization.k8s.io"
ADMISSION: Final = "admissionregistration.k8s.io"
USERS: Final = "penstock-users"  #: the policies by which a home Job says who created it
GOVERNED: Final = "penstock.dev/governed"  #: label of namespaces in which GPUs are used through Penstock only


def _rule(group: str, resources: str, verbs: str) -> Json:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


LOOKING: Final = (
    _rule("batch", "jobs", "get list watch"),
    _rule("", "pods nodes", "get list watch"),
)
#: In all namespaces: nodes are nobody's, other people's pods hold GPUs, and a Lease says whose cluster this is.
EVERYWHERE: Final = (
    _rule("", "pods nodes", "get list watch"),
    _rule("coordination.k8s.io", "leases", "get list"),
)
#: Is the annotation that names a home Job's user protected there?
CHECKING_USERS: Final = {
    **_rule(ADMISSION, "validatingadmissionpolicies validatingadmissionpolicybindings", "get"),
    "resourceNames": [USERS],
}
#: Where attempts run.
ACTING: Final = (
    _rule("batch", "jobs", "get list watch create patch delete"),
    _rule("", "pods", "get list watch delete"),
    _rule("", "pods/log", "get"),
    _rule("", "configmaps", "get list create patch delete"),
    _rule("coordination.k8s.io", "leases", "get list create patch delete"),
)
#: Where home Jobs are, beside that.
SHOWING: Final = (
    _rule("batch", "jobs/status", "patch"),
    _rule("", "events", "create"),
)
#: For `penstock exec`, only if asked for: whoever has this right can do whatever those pods can.
RUNNING: Final = (_rule("", "pods/exec", "get create"),)  # newer clusters want the second, too


def rbac(
    role: Role,
    account: str,
    own: str,
    namespaces: Sequence[str] = (),
    *,
    commands: bool = False,
    secrets: Sequence[str] = (),
) -> list[Json]:
    """A service account in namespace `own`, and its rights: to look, to act, or to act and show home Jobs; to run
    commands in pods; and to read these Secrets in `own`, which hold kubeconfigs of other clusters."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": own}
    made: list[Json] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": own}}]
    if secrets:
        reading = {**_rule("", "secrets", "get"), "resourceNames": list(secrets)}
        made += _granted([reading], f"{account}-kubeconfigs", subject, own)
    if role == "look":
        return [*made, *_granted(LOOKING, f"{account}-look", subject)]
    made += _granted([*EVERYWHERE, *([CHECKING_USERS] if role == "home" else [])], f"{account}-act", subject)
    for namespace in dict.fromkeys((own, *namespaces)):
        rules = (ACTING if role == "act" else ACTING + SHOWING) + (RUNNING if commands else ())
        made += _granted(rules, f"{account}-act", subject, namespace)
    return made


def _granted(rules: Iterable[Json], name: str, subject: Json, namespace: str = "") -> list[Json]:
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


# --- admission --------------------------------------------------------------------------------------------------------


def admission(account: str, own: str) -> list[Json]:
    """Four policies that need no webhook. Nothing changes for objects without our label, nor outside of namespaces
    that are labelled as governed, but that only we write our own annotations."""
    user = f"system:serviceaccount:{own}:{account}"
    return [
        *_policy("penstock-home-jobs", ["CREATE"], ["jobs"], _home_jobs(), {"objectSelector": _has(annotations.QUEUE)}),
        *_policy("penstock-bindings", ["CREATE", "UPDATE"], ["jobs"], _bindings(user), {}),
        *_policy("penstock-governed", ["CREATE"], ["jobs", "pods"], _governed(), {"namespaceSelector": _is(GOVERNED)}),
        *_policy(USERS, ["CREATE", "UPDATE"], ["jobs"], _users(user), {}),
    ]


def mutation(*, beta: bool = False) -> list[Json]:
    """The label alone is enough, and the Job says who created it, where the cluster serves MutatingAdmissionPolicy: by
    itself from 1.36 on, as `beta` if it is switched on in 1.34 and 1.35."""
    version = f"{ADMISSION}/{'v1beta1' if beta else 'v1'}"
    labels, queue = "object.metadata.labels", kueue.QUEUE
    meant = f'"{queue}" in {labels} && {labels}["{queue}"] != "{kueue.NOWHERE}" ? {labels}["{queue}"] : ""'
    metadata = f'labels: {{"{queue}": "{kueue.NOWHERE}"}}, annotations: {{"{kueue.MEANT}": {meant}}}'
    managed = f'suspend: true, managedBy: "{annotations.MANAGER}"'
    completed = f"Object{{metadata: Object.metadata{{{metadata}}}, spec: Object.spec{{{managed}}}}}"
    unmanaged = [{"name": "unmanaged", "expression": "!has(object.spec.managedBy)"}]
    user = f'annotations: {{"{annotations.USER}": request.userInfo.username}}'
    signed = f"Object{{metadata: Object.metadata{{{user}}}}}"
    return [
        *_mutating_policy(version, "penstock-home-jobs", completed, unmanaged),
        *_mutating_policy(version, USERS, signed, []),
    ]


def _mutating_policy(version: str, name: str, change: str, conditions: list[Json]) -> list[Json]:
    """For every Job with our label, when it is created."""
    match = {"resourceRules": [_resources(["CREATE"], ["jobs"])], "objectSelector": _has(annotations.QUEUE)}
    return [
        {
            "apiVersion": version,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": match,
                **({"matchConditions": conditions} if conditions else {}),
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
            },
        },
        {
            "apiVersion": version,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]


def _policy(name: str, operations: list[str], kinds: list[str], checks: list[Json], match: Json) -> list[Json]:
    constraints = {"resourceRules": [_resources(operations, [kind]) for kind in kinds], **match}
    return [
        {
            "apiVersion": f"{ADMISSION}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {"failurePolicy": "Fail", "matchConstraints": constraints, "validations": checks},
        },
        {
            "apiVersion": f"{ADMISSION}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _resources(operations: list[str], kinds: list[str]) -> Json:
    group = "" if kinds == ["pods"] else "batch"
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": kinds}


def _has(label: str) -> Json:
    return {"matchExpressions": [{"key": label, "operator": "Exists"}]}


def _is(label: str) -> Json:
    return {"matchLabels": {label: "true"}}


def _home_jobs() -> list[Json]:
    managed = f'has(object.spec.managedBy) && object.spec.managedBy == "{annotations.MANAGER}"'
    suspended = "has(object.spec.suspend) && object.spec.suspend"
    wrong = f"A Job with the label {annotations.QUEUE} needs suspend: true and managedBy: {annotations.MANAGER}; "
    return [
        {
            "expression": f"{managed} && {suspended}",
            "message": wrong + "create it with 'kubectl penstock apply', which adds them.",
        }
    ]


def _bindings(user: str) -> list[Json]:
    """People's own annotations begin with the same words; these are ours to write."""
    return [
        _only_we("annotations", [annotations.BINDING, annotations.JOB, annotations.ATTEMPT, annotations.HOME], user),
        _only_we("labels", [annotations.EXECUTION, annotations.INSTALLATION], user),
    ]


def _users(user: str) -> list[Json]:
    """Whoever creates a Job may write its own name on it, or nothing; and it stays as it was."""
    now, before = _said("annotations", annotations.USER, "object"), _said("annotations", annotations.USER, "oldObject")
    true = f'oldObject == null ? ({now} in ["", request.userInfo.username]) : ({now} == {before})'
    return [
        {
            "expression": f'request.userInfo.username == "{user}" || ({true})',
            "message": f"{annotations.USER} names whoever created the Job, and cannot be changed.",
        }
    ]


def _only_we(kind: str, keys: list[str], user: str) -> Json:
    unchanged = " && ".join(f"({_said(kind, key, 'object')} == {_said(kind, key, 'oldObject')})" for key in keys)
    return {
        "expression": f'request.userInfo.username == "{user}" || ({unchanged})',
        "message": f"Only Penstock writes {', '.join(keys)}.",
    }


def _said(kind: str, key: str, whose: str) -> str:
    there = f"{whose} != null && " if whose == "oldObject" else ""
    held = f"{whose}.metadata.{kind}"
    return f'({there}has({held}) && "{key}" in {held} ? {held}["{key}"] : "")'


def _governed() -> list[Json]:
    """Whatever asks for GPUs there is a home Job, one of ours, or the pod of one: no GPU is used unaccounted for."""
    pod = '(object.kind == "Pod" ? object.spec : object.spec.template.spec)'
    wants = " || ".join(
        f'(has(c.resources) && has(c.resources.limits) && "{kind}" in c.resources.limits)' for kind in WHOLE
    )
    labels, by_hand = "object.metadata.labels", f"!(request.userInfo.username in {list(CONTROLLERS)})"
    labelled = f'has({labels}) && ("{annotations.QUEUE}" in {labels} || "{annotations.EXECUTION}" in {labels})'
    passed = f'object.kind == "Pod" ? !({by_hand}) : ({labelled})'
    context = "c.securityContext"
    privileged = f"has({context}) && has({context}.privileged) && {context}.privileged"
    return [
        {
            "expression": f"!({pod}.containers.exists(c, {wants})) || ({passed})",
            "message": "GPUs are used through Penstock here: 'kubectl penstock apply',"
            f" with the label {annotations.QUEUE}.",
        },
        {
            "expression": f"!({pod}.containers.exists(c, {privileged}))",
            "message": "Privileged containers are not allowed here.",
        },
    ]


#: Who makes the pods of Jobs. A pod that somebody else makes is not accounted for, whatever its labels say.
CONTROLLERS: Final = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
