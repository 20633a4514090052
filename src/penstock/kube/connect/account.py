"""Makes Penstock's account in a cluster: namespaces, rights, a token that may renew itself, and the kubeconfig around
it. Everything may be done again; what is there already is brought up to date.
"""

import base64
from collections.abc import Iterable
from typing import Any, Final

from penstock.core.values import value
from penstock.kube import manifests
from penstock.kube.client import NAMESPACES, Cluster, Kind, Obj
from penstock.kube.errors import AlreadyExists, Forbidden, NotFound
from penstock.kube.kueue_api import ADMISSION_CHECKS
from penstock.kube.manifests import RBAC, Role
from penstock.kube.token_renewal import LIFE_S, marked, token_request

ACCOUNTS: Final = Kind("ServiceAccount", "serviceaccounts")
KINDS: Final = {
    kind.name: kind
    for kind in (
        NAMESPACES,
        ACCOUNTS,
        Kind("ClusterRole", "clusterroles", f"{RBAC}/v1", namespaced=False),
        Kind("ClusterRoleBinding", "clusterrolebindings", f"{RBAC}/v1", namespaced=False),
        Kind("Role", "roles", f"{RBAC}/v1"),
        Kind("RoleBinding", "rolebindings", f"{RBAC}/v1"),
        ADMISSION_CHECKS,
    )
}
CHECK: Final = "penstock"  #: our AdmissionCheck
#: What may differ between two applies of the same object.
PARTS: Final = ("rules", "subjects")


class MayNot(Exception):
    """The login that was given lacks a right; an administrator can apply what `--print` prints."""


@value
class Wanted:
    role: Role
    account: str
    own: str  # the account's namespace
    namespaces: tuple[str, ...] = ()  # further ones
    commands: bool = False  # for `penstock exec`
    rent: bool = False  # nodes, by Karpenter or Cluster API
    kueue: bool = False  # govern Workloads


def objects(wanted: Wanted) -> list[Obj]:
    """Namespaces, the account, its rights as `penstock manifests rbac` has them, and the right to renew its token."""
    named = dict.fromkeys((wanted.own, *wanted.namespaces))
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in named]
    rights = manifests.rbac(
        *(wanted.role, wanted.account, wanted.own, wanted.namespaces),
        commands=wanted.commands,
        rent=wanted.rent,
        kueue=wanted.kueue,
    )
    checks = [manifests.admission_check(CHECK)] if wanted.kueue else []
    return [*spaces, *rights, *_renewal(wanted.account, wanted.own), *checks]


def _renewal(account: str, own: str) -> list[Obj]:
    """It may create tokens for itself, and for no other account."""
    rule = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [account], "verbs": ["create"]}
    metadata = {"name": f"{account}-token", "namespace": own}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": f"{account}-token"}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": own}
    version = f"{RBAC}/v1"
    return [
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


async def apply(cluster: Cluster, wanted: Iterable[Obj]) -> list[str]:
    """Create what is missing and correct what differs. Returns what changed: `created Role penstock/penstock-act`."""
    changed = []
    for obj in wanted:
        word = await _apply(cluster, obj)
        if word:
            metadata = obj["metadata"]
            where = f"{metadata['namespace']}/" if "namespace" in metadata else ""
            changed.append(f"{word} {obj['kind']} {where}{metadata['name']}")
    return changed


async def _apply(cluster: Cluster, obj: Obj) -> str:
    kind, metadata = KINDS[obj["kind"]], obj["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace", ""))
    try:
        await cluster.create(kind, obj, namespace)
        return "created"
    except AlreadyExists:
        pass
    except Forbidden as error:
        if not await _is_so(cluster, kind, obj):
            raise MayNot(str(error)) from None
        return ""
    if await _is_so(cluster, kind, obj):
        return ""
    try:
        await cluster.patch(kind, name, {part: obj[part] for part in PARTS if part in obj}, namespace)
    except Forbidden as error:
        raise MayNot(str(error)) from None
    return "changed"


async def _is_so(cluster: Cluster, kind: Kind, obj: Obj) -> bool:
    """An administrator may have made it, and our login may only look."""
    try:
        live = await cluster.get(kind, str(obj["metadata"]["name"]), str(obj["metadata"].get("namespace", "")))
    except (NotFound, Forbidden):
        return False
    return all(_same(live.get(part), obj[part]) for part in PARTS if part in obj)


def _same(live: Any, wanted: Any) -> bool:
    """Every row, in any order; a server adds nothing to rules, and an apiGroup to subjects."""
    rows_there, asked = (
        [{key: row[key] for key in row if key != "apiGroup"} for row in rows or ()] for rows in (live, wanted)
    )
    return len(rows_there) == len(asked) and all(row in rows_there for row in asked)


async def token_for(cluster: Cluster, wanted: Wanted, life_s: int = LIFE_S) -> str:
    """A token of the account, bound in time."""
    try:
        answer = await cluster.create_part(ACCOUNTS, wanted.account, "token", token_request(life_s), wanted.own)
    except Forbidden as error:
        raise MayNot(str(error)) from None
    return str(answer["status"]["token"])


def kubeconfig(name: str, server: str, authority: bytes, token: str, namespace: str) -> dict[str, Any]:
    """For the account alone. It names no other file, so it may also go into a Secret; the mark has it renewed."""
    cluster: dict[str, Any] = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": f"penstock@{name}", "user": {"token": token, "extensions": marked()}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"penstock@{name}", "namespace": namespace}}],
        "current-context": name,
    }
