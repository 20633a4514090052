"""A toy infrastructure provider for Cluster API: a cloud whose machines are Nodes that kwok plays. `cluster_api` starts
it as a process beside the released core manager.

    spec of a ToyMachine   what its cloud does
    gpus: 8                the GPUs that its Node shows; 0: they never register
    boot_ms: 1000          from the request until its Node joins
    end_ms: 1000           from the order to end until the machine is gone
    joins: false           its Node never comes
    refused: WORDS         there is no machine, for this reason; asked again for ever, as real providers do

    spec of a ToyControlPlane
    kubeconfig: FILE       the API server that it is; without one, the dev cluster's own
    boot_ms: 1000          from the request until it is ready; without it, at once
    refused: WORDS         it never is, for this reason
"""

import asyncio
import base64
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock.devcluster.plan import GPU
from penstock.kube import errors
from penstock.kube.access import Access, connect
from penstock.kube.client import NODES, SECRETS, Cluster, Kind, Obj
from penstock.kube.informer import Informer

GROUP: Final = "toy.penstock.dev"
API: Final = f"{GROUP}/v1"
CLUSTERS: Final = Kind("ToyCluster", "toyclusters", API)
CONTROL_PLANES: Final = Kind("ToyControlPlane", "toycontrolplanes", API)
MACHINES: Final = Kind("ToyMachine", "toymachines", API)
TEMPLATES: Final = ("ToyClusterTemplate", "ToyControlPlaneTemplate", "ToyMachineTemplate")
FINALIZER: Final = f"{GROUP}/machine"
CONTRACT: Final = "cluster.x-k8s.io/v1beta2"  #: label of a CRD: the versions that keep this contract
CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
LOOK_SECONDS: Final = 0.2
BOOT_MS: Final = 300


def command(kubeconfig: Path) -> list[str]:
    return [sys.executable, "-m", "penstock.devcluster.toy_provider", str(kubeconfig)]


def definitions() -> list[dict[str, Any]]:
    return [_definition(kind) for kind in ("ToyCluster", "ToyControlPlane", "ToyMachine", *TEMPLATES)]


def _definition(kind: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {CONTRACT: "v1"}},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


class ToyProvider:
    def __init__(self, cluster: Cluster, kubeconfig: bytes) -> None:
        self.cluster, self.kubeconfig = cluster, kubeconfig
        self.news = asyncio.Event()
        self.busy: dict[str, asyncio.Task[None]] = {}  #: by uid: what is being done for an object
        self.later: set[str] = set()  #: what changed meanwhile
        self.kinds = {kind: Informer(cluster, kind, self._changed) for kind in (CLUSTERS, CONTROL_PLANES, MACHINES)}

    def _changed(self, _: Obj | None, __: Obj | None) -> None:
        self.news.set()

    async def run(self) -> None:
        """A round whenever something changed; and every now and then, because machines take time."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.kinds.values():
                tasks.create_task(informer.run())
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), LOOK_SECONDS if self._is_busy() else None)
                self.news.clear()
                for kind, informer in self.kinds.items():
                    for obj in informer:
                        self._begin(tasks, kind, obj)

    def _begin(self, tasks: asyncio.TaskGroup, kind: Kind, obj: Obj) -> None:
        """One thing at a time for each object, and none waits for another's slow answer."""
        uid = str(obj["metadata"]["uid"])
        if _is_done(obj) and "deletionTimestamp" not in obj["metadata"]:
            return
        if uid in self.busy:
            self.later.add(uid)
            return
        self.busy[uid] = tasks.create_task(self._see_to(kind, obj))
        self.busy[uid].add_done_callback(lambda _: self._ended(uid))

    def _ended(self, uid: str) -> None:
        del self.busy[uid]
        if uid in self.later:
            self.later.discard(uid)
            self.news.set()

    def _is_busy(self) -> bool:
        """Whether something may be due although nothing changes."""
        busy = [m for m in self.kinds[MACHINES] if "deletionTimestamp" in m["metadata"] or not _is_done(m)]
        return bool(busy) or any(plane["spec"].get("boot_ms") and not _is_done(plane) for plane in self.planes)

    @property
    def planes(self) -> list[Obj]:
        return list(self.kinds[CONTROL_PLANES])

    async def _see_to(self, kind: Kind, obj: Obj) -> None:
        """Beside the others: a cloud makes many machines at a time."""
        with suppress(errors.KubeError):  # the next round tries again
            if kind is MACHINES:
                await self._machine(obj)
            elif "deletionTimestamp" not in obj["metadata"] and not _is_done(obj) and not self._is_early(kind, obj):
                await (self._control_plane(obj) if kind is CONTROL_PLANES else self._done(kind, obj))

    def _is_early(self, kind: Kind, obj: Obj) -> bool:
        """True for a cluster whose control plane is about to come. Once its infrastructure is there core connects to
        it, and if there is no kubeconfig yet, it tries again only after 30 s.
        """
        planes = [plane for plane in self.planes if _cluster_of(plane) == _cluster_of(obj)]
        coming = [plane for plane in planes if not (plane["spec"].keys() & {"boot_ms", "refused"})]
        return kind is CLUSTERS and not (planes and all(map(_is_done, coming)))

    async def _control_plane(self, obj: Obj) -> None:
        meta, spec, owner = obj["metadata"], obj["spec"], _cluster_of(obj)
        if not owner or _age_ms(meta["creationTimestamp"]) < spec.get("boot_ms", 0):
            return
        if words := spec.get("refused"):
            if not (obj.get("status") or {}).get("conditions"):
                trouble = [_condition(kind, "False", "NotCreated", words) for kind in ("Ready", "Available")]
                await self.cluster.patch_status(
                    CONTROL_PLANES, meta["name"], {"conditions": trouble}, meta["namespace"]
                )
            return
        file = spec.get("kubeconfig")
        kubeconfig = await asyncio.to_thread(Path(file).read_bytes) if file else self.kubeconfig
        secret = {
            "metadata": {"name": f"{owner}-kubeconfig", "labels": {CLUSTER_NAME: owner}},
            "type": "cluster.x-k8s.io/secret",
            "data": {"value": base64.b64encode(kubeconfig).decode()},
        }
        with suppress(errors.AlreadyExists):
            await self.cluster.create(SECRETS, secret, meta["namespace"])
        version = str(obj["spec"].get("version", ""))
        await self._done(CONTROL_PLANES, obj, controlPlaneInitialized=True, version=version)

    async def _done(self, kind: Kind, obj: Obj, *, controlPlaneInitialized: bool = False, version: str = "") -> None:  # noqa: N803 - the contract's word
        started = {"controlPlaneInitialized": True} if controlPlaneInitialized else {}
        status: Obj = {"initialization": {"provisioned": True, **started}, "externalManagedControlPlane": True}
        status |= {"version": version} if version else {}
        status["conditions"] = [_condition("Ready", "True"), _condition("Available", "True")]
        await self.cluster.patch_status(kind, obj["metadata"]["name"], status, obj["metadata"]["namespace"])

    # --- a machine ---------------------------------------------------------------------------------------------------

    async def _machine(self, obj: Obj) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        if "deletionTimestamp" in meta:
            if FINALIZER in meta.get("finalizers", ()) and _age_ms(meta["deletionTimestamp"]) >= spec.get("end_ms", 0):
                await self.cluster.patch(MACHINES, meta["name"], {"metadata": {"finalizers": None}}, meta["namespace"])
        elif FINALIZER not in meta.get("finalizers", ()):
            change = {"metadata": {"finalizers": [FINALIZER]}}
            await self.cluster.patch(MACHINES, meta["name"], change, meta["namespace"])
        elif _is_done(obj) or not meta.get("ownerReferences"):
            return
        elif words := spec.get("refused"):
            if not (obj.get("status") or {}).get("conditions"):
                status = {"conditions": [_condition("Ready", "False", "InstanceProvisionFailed", words)]}
                await self.cluster.patch_status(MACHINES, meta["name"], status, meta["namespace"])
        elif _age_ms(meta["creationTimestamp"]) >= spec.get("boot_ms", BOOT_MS):
            await self._boot(obj)

    async def _boot(self, obj: Obj) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        provider_id = f"toy://{meta['uid']}"
        if spec.get("joins", True):
            with suppress(errors.AlreadyExists):
                await self.cluster.create(NODES, _node(meta["name"], provider_id, int(spec.get("gpus", 0))))
        await self.cluster.patch(MACHINES, meta["name"], {"spec": {"providerID": provider_id}}, meta["namespace"])
        await self._done(MACHINES, obj)


def _node(name: str, provider_id: str, gpus: int) -> Obj:
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"} | (
        {GPU: str(gpus)} if gpus else {}
    )
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": provider_id},
        "status": {"capacity": has, "allocatable": has},
    }


def _is_done(obj: Obj) -> bool:
    return bool(((obj.get("status") or {}).get("initialization") or {}).get("provisioned"))


def _cluster_of(obj: Obj) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["name"]) for owner in owners if owner["kind"] == "Cluster"), "")


def _condition(kind: str, status: str, reason: str = "AsAsked", message: str = "") -> Obj:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


def _age_ms(written: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(written)).total_seconds() * 1000


async def main(kubeconfig: str) -> None:
    cluster = connect(Access(kubeconfig))
    await ToyProvider(cluster, Path(kubeconfig).read_bytes()).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
