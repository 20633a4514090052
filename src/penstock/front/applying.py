"""Apply manifests as `kubectl apply` would, and Jobs with GPUs as home Jobs. `kubectl penstock apply` and `penstock
submit` call it with the user's own credentials.

The API server decides: a change is tried as a dry run first, shown, and refused in the server's own words.
"""

import copy
from typing import Final, Literal, TypeAlias

from penstock.core.errors import BadInput
from penstock.core.values import value
from penstock.front import defaulting, home_kinds
from penstock.front.three_way import difference, last_applied, merge_patch, noted
from penstock.kube import annotations, kueue
from penstock.kube.client import SELF_REVIEWS, Cluster, Kind
from penstock.kube.errors import Forbidden, KubeError, NotFound
from penstock.kube.references import Json, part

MANAGER: Final = "kubectl-penstock"  #: of fields, in server-side apply
FIXED: Final = "spec.managedBy cannot be added to a Job that is there; delete it first, then apply it again"
Outcome: TypeAlias = Literal["created", "configured", "unchanged"]


@value
class Applied:
    name: str  # as kubectl writes it: `job.batch/train`
    namespace: str
    outcome: Outcome
    manifest: Json  # as the cluster has it now
    diff: str = ""
    note: str = ""

    @property
    def line(self) -> str:
        return f"{self.name} {self.outcome}"


class Applier:
    """`team`: whose home Jobs these are, unless a Job's own label says it. `namespace`: as `kubectl -n`."""

    def __init__(self, cluster: Cluster, team: str = "", namespace: str = "") -> None:
        self.cluster, self.team, self.namespace = cluster, team, namespace
        self.kinds: dict[tuple[str, str], Kind] = {}
        self.user: str | None = None
        self.kueue: Kind | None = None
        self.has_default: dict[str, bool] = {}  #: by namespace: whether Kueue gives each Job there a queue

    async def apply(self, manifest: Json) -> Applied:
        """Raises `BadInput` if the manifest is wrong, and `KubeError` if the cluster refuses it."""
        kind = await self._kind(manifest)
        manifest, namespace = self._placed(manifest, kind)
        name = str(part(manifest, "metadata").get("name") or "")
        live = await self._live(kind, name, namespace) if name else None
        if home_kinds.is_home_kind(manifest) and self._is_ours(manifest):
            return await self._apply_home(kind, manifest, namespace, live)
        if not name:
            made = await self.cluster.create(kind, manifest, namespace)
            return Applied(_said(kind, made), namespace, "created", made)
        if live is None:
            made = await self.cluster.apply(kind, manifest, namespace, MANAGER)
            return Applied(_said(kind, made), namespace, "created", made, note=self._note(manifest))
        then = await self.cluster.apply(kind, manifest, namespace, MANAGER, dry_run=True)
        diff = difference(live, then, _said(kind, live))
        if diff:
            then = await self.cluster.apply(kind, manifest, namespace, MANAGER)
        return Applied(_said(kind, live), namespace, "configured" if diff else "unchanged", then, diff)

    # --- home kinds ---------------------------------------------------------------------------------------------------

    async def _apply_home(self, kind: Kind, manifest: Json, namespace: str, live: Json | None) -> Applied:
        team = self.team or (defaulting.team_of(live) if live else "")
        kueue_takes_it = await self._is_for_kueue(manifest, namespace, live)
        home = defaulting.as_home(manifest, team, kueue_takes_it=kueue_takes_it)
        if live is None:
            made = await self.cluster.create(kind, noted(await self._signed(home), manifest), namespace)
            return Applied(_said(kind, made), namespace, "created", made)
        if home_kinds.kind_of(live_kind(kind, live)) == home_kinds.JOB:
            if part(live, "spec").get("managedBy") != annotations.MANAGER:
                raise BadInput(f"{namespace}/{part(live, 'metadata')['name']}: {FIXED}.")
            home = _suspended_as_meant(home, manifest, live)
        name = str(part(live, "metadata")["name"])
        last = _last_home(live, team, kueue_takes_it)
        patch = merge_patch(last, home, live)
        then = await self.cluster.patch(kind, name, patch, namespace, dry_run=True)
        diff = difference(live_kind(kind, live), live_kind(kind, then), _said(kind, live))
        if diff:
            patch = merge_patch(last, noted(home, manifest), live)
            then = await self.cluster.patch(kind, name, patch, namespace)
        return Applied(_said(kind, live), namespace, "configured" if diff else "unchanged", then, diff)

    def _is_ours(self, manifest: Json) -> bool:
        """A Job without GPUs and without our label is the cluster's own."""
        return defaulting.has_label(manifest) or not defaulting.why_not_ours(manifest)

    def _note(self, manifest: Json) -> str:
        return defaulting.why_not_ours(manifest) if home_kinds.is_home_kind(manifest) else ""

    async def _is_for_kueue(self, manifest: Json, namespace: str, live: Json | None) -> bool:
        """True if a Kueue would take it, or has it already: it names a queue, or its namespace has a default one."""
        if live is not None and home_kinds.kind_of(manifest) == home_kinds.JOB:
            return kueue.is_kueues(part(live, "metadata"))
        if not self.has_default:
            self.kueue = await self.cluster.first_kind(kueue.VERSIONS, kueue.LOCAL_QUEUE)
        if self.kueue is None:
            self.has_default[namespace] = False
        elif namespace not in self.has_default:
            self.has_default[namespace] = await self._has_default(self.kueue, namespace)
        jobs = home_kinds.jobs_in(manifest)
        named = self.kueue is not None and any(kueue.queue_of(part(job, "metadata")) for job in jobs)
        return named or self.has_default[namespace]

    async def _has_default(self, queues: Kind, namespace: str) -> bool:
        """True also if we may not read it: then Kueue has no chance, and the cluster's administrator no surprise."""
        try:
            await self.cluster.get(queues, kueue.DEFAULT, namespace)
        except NotFound:
            return False
        except Forbidden:
            return True
        return True

    async def _signed(self, home: Json) -> Json:
        """The Job with the user name that the cluster reports for our credentials. The policy `penstock-users` refuses
        any other name; where that policy is missing, `RecordedUsers` ignores the annotation. Jobs that a controller
        makes are not signed: it is another user.
        """
        if home_kinds.kind_of(home) != home_kinds.JOB:
            return home
        if self.user is None:
            self.user = await self._who()
        metadata = part(home, "metadata")
        written = {**part(metadata, "annotations"), **({annotations.USER: self.user} if self.user else {})}
        return {**home, "metadata": {**metadata, "annotations": written}}

    async def _who(self) -> str:
        try:
            review = await self.cluster.create(SELF_REVIEWS, {"metadata": {}})
        except KubeError:
            return ""
        return str(part(part(review, "status"), "userInfo").get("username") or "")

    # --- any object ---------------------------------------------------------------------------------------------------

    async def _kind(self, manifest: Json) -> Kind:
        api, name = key = home_kinds.kind_of(manifest)
        if not api or not name or not isinstance(manifest.get("metadata"), dict):
            raise BadInput("This is not a Kubernetes object; it needs 'apiVersion', 'kind' and 'metadata'.")
        if key not in self.kinds:
            kind = await self.cluster.kind(api, name)
            if kind is None:
                raise BadInput(f'no matches for kind "{name}" in version "{api}"; install its definition (CRD) first.')
            self.kinds[key] = kind
        return self.kinds[key]

    def _placed(self, manifest: Json, kind: Kind) -> tuple[Json, str]:
        """In its namespace: the object's own, or the one that was asked for, or the context's."""
        metadata = part(manifest, "metadata")
        if not (metadata.get("name") or metadata.get("generateName")):
            raise BadInput(f"The {kind.name} has no metadata.name.")
        if not kind.namespaced:
            return manifest, ""
        own = str(metadata.get("namespace") or "")
        if own and self.namespace and own != self.namespace:
            raise BadInput(
                f'the namespace from the provided object "{own}" does not match the namespace "{self.namespace}". '
                f"You must pass '--namespace={own}' to perform this operation."
            )
        namespace = own or self.namespace or self.cluster.namespace or "default"
        return {**manifest, "metadata": {**metadata, "namespace": namespace}}, namespace

    async def _live(self, kind: Kind, name: str, namespace: str) -> Json | None:
        try:
            return live_kind(kind, await self.cluster.get(kind, name, namespace))
        except NotFound:
            return None


def live_kind(kind: Kind, obj: Json) -> Json:
    return {"apiVersion": kind.api, "kind": kind.name, **obj}


def _said(kind: Kind, obj: Json) -> str:
    group = kind.api.rpartition("/")[0]
    return f"{kind.name.lower()}{f'.{group}' if group else ''}/{part(obj, 'metadata')['name']}"


def _last_home(live: Json, team: str, kueue_takes_it: bool) -> Json:
    """What was last applied, defaulted as it was then: else what we add would count as its author's change."""
    last = last_applied(live)
    try:
        return defaulting.as_home(last, team, kueue_takes_it=kueue_takes_it) if last else {}
    except BadInput:
        return last


def _suspended_as_meant(home: Json, manifest: Json, live: Json) -> Json:
    """`suspend` belongs to Penstock, unless its author changed it in the manifest since: then the Job is suspended or
    resumed, as in plain Kubernetes. Where Kueue keeps it true, an annotation says what its author wants.
    """
    meant, before = (part(written, "spec").get("suspend") for written in (manifest, last_applied(live)))
    changed = bool(last_applied(live)) and bool(meant) != bool(before)
    home = copy.deepcopy(home)
    if changed and kueue.is_kueues(part(live, "metadata")):
        home["metadata"]["annotations"] = {
            **part(home["metadata"], "annotations"),
            annotations.SUSPEND: "true" if meant else "false",
        }
        changed = False
    home["spec"]["suspend"] = bool(meant) if changed else part(live, "spec").get("suspend")
    return home
