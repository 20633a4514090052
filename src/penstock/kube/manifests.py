"""Manifests that a platform engineer applies: RBAC with exactly the rights Penstock needs, and admission policies.
Pure.

`penstock manifests` prints them and docs/kubernetes.md explains them. The tests run with these rights and no others.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from penstock.core.values import value
from penstock.kube import annotations, kueue_api
from penstock.kube import kueue as home_queue
from penstock.kube.gpu_requests import MIG, WHOLE

Json: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["look", "act", "home"]
ROLES: Final = ("look", "act", "home")
RBAC: Final = "rbac.authorization.k8s.io"
ADMISSION: Final = "admissionregistration.k8s.io"
USERS: Final = "penstock-users"  #: the policies that record and protect a home Job's user
GOVERNED: Final = "penstock.dev/governed"  #: label of namespaces where GPUs may be used only through Penstock


@value
class Logins:
    """Who Penstock is at a cluster beside its service account, as `kubectl auth whoami` names users and groups."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


NO_OTHERS: Final = Logins()


def _rule(group: str, resources: str, verbs: str) -> Json:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


LOOKING: Final = (
    _rule("batch", "jobs", "get list watch"),
    _rule("", "pods nodes", "get list watch"),
)
#: Cluster-wide: nodes have no namespace, other people's pods hold GPUs, and a Lease names the owner. A namespace that
#: is deleted loses its Roles before our Jobs: what then lets go of these must not live in it. A status cannot change
#: what a Job runs.
EVERYWHERE: Final = (
    _rule("", "pods nodes", "get list watch"),
    _rule("coordination.k8s.io", "leases", "get list"),
    _rule("batch", "jobs/status", "patch"),
    _rule("resource.k8s.io", "resourceslices resourceclaims", "list watch"),  # GPUs as devices, and who holds them
)
#: To check that a policy protects the annotation with a home Job's user.
CHECKING_USERS: Final = {
    **_rule(ADMISSION, "validatingadmissionpolicies validatingadmissionpolicybindings", "get"),
    "resourceNames": [USERS],
}
#: In namespaces where attempts run.
ACTING: Final = (
    _rule("batch", "jobs", "get list watch create patch delete"),
    _rule("batch", "jobs/status", "patch"),
    _rule("", "pods", "get list watch delete"),
    _rule("", "pods/log", "get"),
    _rule("", "events", "list watch"),  # why a start hangs: a volume that cannot be mounted is said nowhere else
    _rule("", "configmaps", "get list create patch delete"),
    _rule("", "services", "get list create patch delete"),  # copies of headless ones, by which pods find each other
    _rule("discovery.k8s.io", "endpointslices", "list create patch delete"),  # their pods' host names
    _rule("coordination.k8s.io", "leases", "get list create patch delete"),
)
#: In namespaces with home Jobs, in addition.
SHOWING: Final = (_rule("", "events", "create"),)
#: Of the ConfigMap that has the policy, and for Events about it; only on request.
POLICY_READING: Final = _rule("", "configmaps", "get list watch")
POLICY_TELLING: Final = _rule("", "events", "create")
#: To rent nodes by Karpenter NodeClaims, Cluster API or pools of OVHcloud, only on request. Claims, pools and Nodes
#: have no namespace; Karpenter says in Events why it gave a claim up, a Node that outlives its claim is deleted, and
#: one of Cluster API is marked.
RENTING: Final = (
    _rule("karpenter.sh", "nodeclaims", "get list watch create delete"),
    _rule("cluster.x-k8s.io", "machinedeployments", "get list watch create patch delete"),
    _rule("cluster.x-k8s.io", "machines", "list watch"),
    _rule("kube.cloud.ovh.com", "nodepools", "list create delete"),
    _rule("", "nodes", "patch delete"),
    _rule("", "events", "list watch"),
)
#: The same in namespaces where attempts run: to ask an autoscaler for all nodes of an attempt at once.
ASKING_AT_ONCE: Final = (
    _rule("autoscaling.x-k8s.io", "provisioningrequests", "get list create delete"),
    _rule("", "podtemplates", "create delete"),
)
#: To govern Workloads of Kueue, only on request: read them and their owners, bound their time, and answer our check.
#: An AdmissionCheck has no namespace. Of owners, a label is written.
GOVERNING: Final = (
    _rule("kueue.x-k8s.io", "workloads", "get list watch patch"),
    _rule("kueue.x-k8s.io", "workloads/status", "patch"),
    _rule("kueue.x-k8s.io", "admissionchecks", "get list watch patch"),
    _rule("kueue.x-k8s.io", "admissionchecks/status", "patch"),
    *(_rule(group, " ".join(kinds), "get patch") for group, kinds in kueue_api.owner_resources().items()),
)
#: Of the watchman: it lists rented objects and deletes those past their deadline, in every namespace.
WATCHING: Final = (_rule("cluster.x-k8s.io", "machinedeployments clusters", "list delete"),)
#: For `penstock exec`, only on request: this right allows everything that those pods may do.
RUNNING: Final = (_rule("", "pods/exec", "get create"),)  # newer clusters require `create`, too


def rbac(
    role: Role,
    account: str,
    own: str,
    namespaces: Sequence[str] = (),
    *,
    commands: bool = False,
    secrets: Sequence[str] = (),
    policy: str = "",
    rent: bool = False,
    kueue: bool = False,
    logins: Logins = NO_OTHERS,
) -> list[Json]:
    """A service account in namespace `own` with its rights: read only, or run attempts, or that and manage home Jobs.
    On request it may run commands in pods, and read these Secrets in `own`, which hold kubeconfigs of other clusters,
    and write renewed tokens into them. `policy`: a ConfigMap in `own` with the policy file, to watch. `rent`: it may
    rent nodes, by Karpenter, Cluster API or ProvisioningRequests. `kueue`: it may govern Workloads. `logins` get the
    same rights.
    """
    subject = [
        {"kind": "ServiceAccount", "name": account, "namespace": own},
        *({"kind": "User", "name": name, "apiGroup": RBAC} for name in logins.users),
        *({"kind": "Group", "name": name, "apiGroup": RBAC} for name in logins.groups),
    ]
    made: list[Json] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": own}}]
    if secrets:
        renewed = {**_rule("", "secrets", "get patch"), "resourceNames": list(secrets)}
        made += _granted([renewed], f"{account}-kubeconfigs", subject, own)
    if policy:
        reading = {**POLICY_READING, "resourceNames": [policy]}
        made += _granted([reading, POLICY_TELLING], f"{account}-policy", subject, own)
    if role == "look":
        looking = [*LOOKING, *(GOVERNING if kueue else ())]
        return [*made, *_granted(looking, granted_as(account, own, "look"), subject)]
    name = granted_as(account, own, "act")
    everywhere = [*EVERYWHERE, *([CHECKING_USERS] if role == "home" else []), *(RENTING if rent else ())]
    everywhere += GOVERNING if kueue else ()
    made += _granted(everywhere, name, subject)
    for namespace in dict.fromkeys((own, *namespaces)):
        rules = (ACTING if role == "act" else ACTING + SHOWING) + (RUNNING if commands else ())
        rules += ASKING_AT_ONCE if rent else ()
        made += _granted(rules, name, subject, namespace)
    return made


def granted_as(account: str, own: str, role: Literal["look", "act"]) -> str:
    """The name of roles and bindings that others may see, too: two installations whose accounts have the same name
    would otherwise take each other's rights away. No namespace has a dot, so two of them never agree.
    """
    return f"{account}-{role}" if account == own else f"{own}.{account}-{role}"


def _granted(rules: Iterable[Json], name: str, subjects: list[Json], namespace: str = "") -> list[Json]:
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
            "subjects": subjects,
        },
    ]


# --- Kueue ------------------------------------------------------------------------------------------------------------


def admission_check(name: str) -> Json:
    """What a ClusterQueue names, so that its Workloads wait until money is held for them."""
    controller = {"controllerName": kueue_api.CONTROLLER}
    return {"apiVersion": kueue_api.API, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": controller}


# --- the watchman -----------------------------------------------------------------------------------------------------


def watchman(image: str, own: str) -> list[Json]:
    """What ends rented objects while Penstock may be dead: its account, its rights, and one small pod in `own`."""
    name = annotations.WATCHMAN
    subject = [{"kind": "ServiceAccount", "name": name, "namespace": own}]
    leases = [
        _rule("coordination.k8s.io", "leases", "create"),
        {**_rule("coordination.k8s.io", "leases", "get patch"), "resourceNames": [name]},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": own}},
        *_granted(WATCHING, f"{own}.{name}", subject),
        *_granted(leases, name, subject, own),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": own},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": _watchman_pod(image, name, own)},
            },
        },
    ]


def _watchman_pod(image: str, name: str, own: str) -> Json:
    container = {
        "name": "watchman",
        "image": image,
        "args": ["watchman", f"--namespace={own}"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"serviceAccountName": name, "securityContext": security, "containers": [container]}


# --- admission --------------------------------------------------------------------------------------------------------


def admission(account: str, own: str, logins: Logins = NO_OTHERS) -> list[Json]:
    """Four policies without a webhook. They affect only objects with our label and namespaces labelled as governed, and
    reserve our own annotations for us: the service account, and all `logins`.
    """
    ours = _is_ours(Logins((f"system:serviceaccount:{own}:{account}", *logins.users), logins.groups))
    return [
        *_policy("penstock-home-jobs", ["CREATE"], ["jobs"], _home_jobs(), {"objectSelector": _has(annotations.QUEUE)}),
        *_policy("penstock-bindings", ["CREATE", "UPDATE"], ["jobs"], _bindings(ours), {}),
        *_governed_policy(),
        *_policy(USERS, ["CREATE", "UPDATE"], ["jobs"], _users(ours), {}),
    ]


def mutation(*, beta: bool = False) -> list[Json]:
    """For clusters that serve MutatingAdmissionPolicy: the label alone makes a home Job, and the policy records its
    creator. Served from 1.36 on; `beta`: in 1.34 and 1.35 if it is switched on.
    """
    version = f"{ADMISSION}/{'v1beta1' if beta else 'v1'}"
    labels, queue = "object.metadata.labels", home_queue.QUEUE
    meant = f'"{queue}" in {labels} && {labels}["{queue}"] != "{home_queue.NOWHERE}" ? {labels}["{queue}"] : ""'
    metadata = f'labels: {{"{queue}": "{home_queue.NOWHERE}"}}, annotations: {{"{home_queue.MEANT}": {meant}}}'
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
    """For every new Job with our label."""
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
    return _validating(name, [_resources(operations, [kind]) for kind in kinds], checks, match)


def _validating(name: str, rules: list[Json], checks: list[Json], match: Json) -> list[Json]:
    constraints = {"resourceRules": rules, **match}
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
    group = "" if kinds[0].startswith("pods") else "batch"
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": kinds}


def _has(label: str) -> Json:
    return {"matchExpressions": [{"key": label, "operator": "Exists"}]}


def _is(label: str) -> Json:
    return {"matchLabels": {label: "true"}}


def _home_jobs() -> list[Json]:
    """JobSet's controller itself says whether its Jobs are suspended; `managedBy` keeps the cluster away from them."""
    managed = f'has(object.spec.managedBy) && object.spec.managedBy == "{annotations.MANAGER}"'
    suspended = "has(object.spec.suspend) && object.spec.suspend"
    of_job_set = 'has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == "JobSet")'
    wrong = f"A Job with the label {annotations.QUEUE} needs suspend: true and managedBy: {annotations.MANAGER}; "
    return [
        {
            "expression": f"{managed} && (({suspended}) || ({of_job_set}))",
            "message": wrong + "create it with 'kubectl penstock apply', which adds them.",
        }
    ]


def _is_ours(logins: Logins) -> str:
    """CEL: the request is by one of these."""
    users, groups = (
        json.dumps(list(dict.fromkeys(names)), ensure_ascii=False) for names in (logins.users, logins.groups)
    )
    by_user = f"request.userInfo.username in {users}"
    who = "request.userInfo.groups"
    return f"({by_user} || (has({who}) && {who}.exists(g, g in {groups})))" if logins.groups else by_user


def _bindings(ours: str) -> list[Json]:
    """Only we may write these annotations. Users' own annotations share the prefix."""
    return [
        _only_we("annotations", [annotations.BINDING, annotations.JOB, annotations.ATTEMPT, annotations.HOME], ours),
        _only_we("labels", [annotations.EXECUTION, annotations.INSTALLATION], ours),
    ]


def _users(ours: str) -> list[Json]:
    """The creator may write their own name or nothing, and the value never changes."""
    now, before = _said("annotations", annotations.USER, "object"), _said("annotations", annotations.USER, "oldObject")
    true = f'oldObject == null ? ({now} in ["", request.userInfo.username]) : ({now} == {before})'
    return [
        {
            "expression": f"{ours} || ({true})",
            "message": f"{annotations.USER} names whoever created the Job, and cannot be changed.",
        }
    ]


def _only_we(kind: str, keys: list[str], ours: str) -> Json:
    unchanged = " && ".join(f"({_said(kind, key, 'object')} == {_said(kind, key, 'oldObject')})" for key in keys)
    return {
        "expression": f"{ours} || ({unchanged})",
        "message": f"Only Penstock writes {', '.join(keys)}.",
    }


def _said(kind: str, key: str, whose: str) -> str:
    guard = f"{whose} != null && " if whose == "oldObject" else ""
    held = f"{whose}.metadata.{kind}"
    return f'({guard}has({held}) && "{key}" in {held} ? {held}["{key}"] : "")'


def _governed_policy() -> list[Json]:
    """A suspended Job's containers may be changed later, and a pod's ephemeral ones are added by a request of their
    own.
    """
    rules = [
        _resources(["CREATE", "UPDATE"], ["jobs"]),
        _resources(["CREATE"], ["pods"]),
        _resources(["UPDATE"], ["pods/ephemeralcontainers"]),
    ]
    return _validating("penstock-governed", rules, _governed(), {"namespaceSelector": _is(GOVERNED)})


def _governed() -> list[Json]:
    """Whatever requests GPUs there must be a home Job, an execution Job, or a pod of one: no GPU is unaccounted for.
    What was so before an update is not checked again.
    """
    labels, by_hand = "object.metadata.labels", f"!(request.userInfo.username in {list(CONTROLLERS)})"
    labelled = f'has({labels}) && ("{annotations.QUEUE}" in {labels} || "{annotations.EXECUTION}" in {labels})'
    passed = f'object.kind == "Pod" ? !({by_hand}) : ({labelled})'
    return [
        {
            "expression": f"!({_newly(_wants_gpus)}) || ({passed})",
            "message": "GPUs are used through Penstock here: 'kubectl penstock apply',"
            f" with the label {annotations.QUEUE}.",
        },
        {"expression": f"!({_newly(_is_privileged)})", "message": "Privileged containers are not allowed here."},
    ]


def _newly(holds: Callable[[str], str]) -> str:
    """CEL: it holds for the pod now, and did not before."""
    now, before = _pod_in("object"), _pod_in("oldObject")
    return f"({holds(now)}) && (oldObject == null || !({holds(before)}))"


def _pod_in(whose: str) -> str:
    return f'({whose}.kind == "Pod" ? {whose}.spec : {whose}.spec.template.spec)'


def _wants_gpus(pod: str) -> str:
    """CEL: any container of the pod requests GPUs or parts of one, as `gpu_requests` counts, or a device by a claim,
    which may be a GPU.
    """
    gpu = f'k in {list(WHOLE)} || k.startsWith("{MIG}")'.replace("'", '"')
    counts = [f"c.resources.{kind}" for kind in ("limits", "requests")]
    asked = [f'(has({count}) && {count}.exists(k, ({gpu}) && string({count}[k]) != "0"))' for count in counts]
    claimed = f"has({pod}.resourceClaims) && size({pod}.resourceClaims) > 0"
    holds = f"has(c.resources) && ({' || '.join(asked)})"
    return f"{_any_container(pod, holds)} || ({claimed})"


def _is_privileged(pod: str) -> str:
    context = "c.securityContext"
    return _any_container(pod, f"has({context}) && has({context}.privileged) && {context}.privileged")


def _any_container(pod: str, holds: str) -> str:
    """CEL: it holds for `c`, any container of the pod, whatever kind it is of."""
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return " || ".join(f"(has({pod}.{kind}) && {pod}.{kind}.exists(c, {holds}))" for kind in kinds)


#: The accounts that create pods of Jobs. A pod of any other account is unaccounted for, whatever its labels say.
CONTROLLERS: Final = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
