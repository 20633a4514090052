"""Removes what `connect` and `penstock manifests` made in a cluster; `penstock disconnect` calls `remove`.

By name, and in all namespaces: whoever removes it need not remember where Jobs were allowed. It deletes no namespace,
and nothing in one but our roles and account. It leaves what a Helm release owns, and what another Penstock here needs.
"""

import json
import re
from typing import Final

from penstock.core.values import value
from penstock.kube import annotations, kueue_api, manifests
from penstock.kube.client import JOBS, POLICIES, POLICY_BINDINGS, Cluster, Kind, Obj
from penstock.kube.connect.account import ACCOUNTS, CHECK, KINDS
from penstock.kube.errors import Invalid, NotFound

#: Newest first: in 1.34 and 1.35 only the beta is served, and only if it is switched on.
VERSIONS: Final = (f"{manifests.ADMISSION}/v1", f"{manifests.ADMISSION}/v1beta1")
RELEASE: Final = "meta.helm.sh/release-name"  #: on whatever Helm owns
LOGIN: Final = re.compile(r"system:serviceaccount:([a-z0-9.-]+):([a-z0-9.-]+)")
HELD: Final = frozenset({annotations.RESULT, annotations.CANCEL})


@value
class OldAccount:
    """Whose rights go."""

    name: str
    own: str  # its namespace

    def roles(self) -> set[str]:
        """Of roles and bindings that `penstock manifests rbac` and `connect` make for it."""
        shared = (manifests.granted_as(self.name, self.own, kind) for kind in ("look", "act"))
        return {*shared, *(f"{self.name}-{what}" for what in ("token", "kubeconfigs", "policy"))}


@value
class Removed:
    deleted: tuple[str, ...] = ()  # `Role vision/penstock-act`
    kept: tuple[str, ...] = ()  # sentences: what, and why


async def held_jobs(cluster: Cluster, account: OldAccount) -> list[str]:
    """Jobs that wait for Penstock before they may go: without its rights nobody would ever let go of them. In its own
    namespaces: another Penstock may have Jobs in others.
    """
    bindings = await _all(cluster, KINDS["RoleBinding"])
    mine = (binding for binding in bindings if _name(binding) in account.roles() and _is_for(binding, account))
    spaces = {_space(binding) for binding in mine}
    held = (job["metadata"] for job in await _all(cluster, JOBS) if HELD & set(job["metadata"].get("finalizers") or ()))
    return sorted(f"{meta['namespace']}/{meta['name']}" for meta in held if meta["namespace"] in spaces)


async def remove(cluster: Cluster, account: OldAccount) -> Removed:
    """Policies first, so that they refuse nothing any more; the account last."""
    policies = await _policies(cluster)
    others = await _others(cluster, [obj for _, obj in policies], account)
    shared = f"the Penstock of account {others[0]} uses it, too." if others else ""
    deleted: list[str] = []
    kept: list[str] = []
    for kind, obj in [*policies, *await _rights(cluster, account)]:
        where = f"{_space(obj)}/" if kind.namespaced else ""
        what = f"{kind.name} {where}{_name(obj)}"
        if why := _owned(kind, obj) or (shared if (kind, obj) in policies else ""):
            kept.append(f"{what} stays: {why}")
            continue
        await cluster.delete(kind, _name(obj), _space(obj), uid=str(obj["metadata"]["uid"]))
        deleted.append(what)
    return Removed(tuple(deleted), tuple(kept))


async def _policies(cluster: Cluster) -> list[tuple[Kind, Obj]]:
    """One set for the whole cluster."""
    names = {item["metadata"]["name"] for item in (*manifests.admission("a", "b"), *manifests.mutation())}
    kinds = [POLICY_BINDINGS, POLICIES]
    for name in ("MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"):
        served = [await cluster.kind(version, name) for version in VERSIONS]
        kinds += [kind for kind in served if kind is not None][:1]
    return [(kind, obj) for kind in kinds for obj in await _all(cluster, kind) if _name(obj) in names]


async def _others(cluster: Cluster, policies: list[Obj], account: OldAccount) -> list[str]:
    """Accounts beside ours that a policy takes for Penstock, and that are still there."""
    named = {login for policy in policies for login in LOGIN.findall(json.dumps(policy["spec"]))}
    there = {(_space(found), _name(found)) for found in await _all(cluster, ACCOUNTS)}
    controllers = set(LOGIN.findall(" ".join(manifests.CONTROLLERS)))
    return sorted("/".join(login) for login in (named & there) - controllers - {(account.own, account.name)})


async def _rights(cluster: Cluster, account: OldAccount) -> list[tuple[Kind, Obj]]:
    names = account.roles()
    found = [
        (KINDS[kind], obj)
        for kind in ("ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role")
        for obj in await _all(cluster, KINDS[kind])
        if _name(obj) in names and ("subjects" not in obj or _is_for(obj, account))
    ]
    checks = await _all(cluster, KINDS["AdmissionCheck"])
    found += [(KINDS["AdmissionCheck"], check) for check in checks if _name(check) == CHECK and _is_our_check(check)]
    own = await _all(cluster, ACCOUNTS, account.own)
    return [*found, *((ACCOUNTS, obj) for obj in own if _name(obj) == account.name)]


async def _all(cluster: Cluster, kind: Kind, namespace: str = "") -> list[Obj]:
    """None where the cluster has no such kind."""
    try:
        return (await cluster.list(kind, namespace))[0]
    except (NotFound, Invalid):
        return []


def _owned(kind: Kind, obj: Obj) -> str:
    if release := (obj["metadata"].get("annotations") or {}).get(RELEASE):
        return f"it belongs to the Helm release {release}; helm uninstall removes it."
    if kind.name == "AdmissionCheck":
        return f"queues of Kueue may name it; if none does: kubectl delete admissioncheck {CHECK}"
    return ""


def _is_our_check(check: Obj) -> bool:
    return bool(check["spec"].get("controllerName") == kueue_api.CONTROLLER)


def _is_for(binding: Obj, account: OldAccount) -> bool:
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.own}
    return any(subject.items() <= given.items() for given in binding.get("subjects") or ())


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _space(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace", ""))
