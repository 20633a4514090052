"""Kubernetes API client for one cluster: plain dicts in and out, errors named by what to do next. `access.connect`
makes it.

There are no typed objects: most of an object is passed on or never read.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from penstock.core.values import value
from penstock.kube import exec_protocol
from penstock.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Silent,
    Unavailable,
)
from penstock.kube.request_priority import LATER, NOW, SOON, PriorityLimiter, Rank
from penstock.kube.transport import Channel, Request, Response, Stream, Transport

Obj: TypeAlias = dict[str, Any]
Params: TypeAlias = Mapping[str, str | list[str]]
T = TypeVar("T")

CLUSTER_WIDE: Final = "default"  #: the namespace of Events about objects that have none
PAGE: Final = 500  #: objects in one page of a list
#: Concurrent requests. More would each open a connection, which costs both sides more than the request.
LANES: Final = 16
BUSY_TRIES: Final = 4  #: tries after 429; the server says when to retry
BUSY_MOST_SECONDS: Final = 10.0
#: A server sends a bookmark about once a minute. A watch that is silent for longer is dead, even if TCP does not know.
SILENCE_SECONDS: Final = 100.0
CONNECT_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 3_000  #: then the server closes the watch, and the informer resumes from its version
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
BY_KEY: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
VERBS: Final = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}


@value
class Kind:
    name: str
    plural: str
    api: str = "v1"
    namespaced: bool = True

    @property
    def resource(self) -> str:
        group = self.api.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        within = f"/namespaces/{namespace}" if namespace and self.namespaced else ""
        return root + within + f"/{self.plural}" + (f"/{name}" if name else "") + (f"/{part}" if part else "")


JOBS: Final = Kind("Job", "jobs", "batch/v1")
CRON_JOBS: Final = Kind("CronJob", "cronjobs", "batch/v1")
PODS: Final = Kind("Pod", "pods")
POD_TEMPLATES: Final = Kind("PodTemplate", "podtemplates")
PROVISIONING_REQUESTS: Final = Kind("ProvisioningRequest", "provisioningrequests", "autoscaling.x-k8s.io/v1")
NODES: Final = Kind("Node", "nodes", namespaced=False)
NODE_CLAIMS: Final = Kind("NodeClaim", "nodeclaims", "karpenter.sh/v1", namespaced=False)
MACHINE_DEPLOYMENTS: Final = Kind("MachineDeployment", "machinedeployments", "cluster.x-k8s.io/v1beta2")
CLUSTERS: Final = Kind("Cluster", "clusters", "cluster.x-k8s.io/v1beta2")
CLUSTER_CLASSES: Final = Kind("ClusterClass", "clusterclasses", "cluster.x-k8s.io/v1beta2")
MACHINES: Final = Kind("Machine", "machines", "cluster.x-k8s.io/v1beta2")
NAMESPACES: Final = Kind("Namespace", "namespaces", namespaced=False)
EVENTS: Final = Kind("Event", "events")
CONFIG_MAPS: Final = Kind("ConfigMap", "configmaps")
SERVICES: Final = Kind("Service", "services")
ENDPOINT_SLICES: Final = Kind("EndpointSlice", "endpointslices", "discovery.k8s.io/v1")
SECRETS: Final = Kind("Secret", "secrets")
LEASES: Final = Kind("Lease", "leases", "coordination.k8s.io/v1")
SELF_REVIEWS: Final = Kind("SelfSubjectReview", "selfsubjectreviews", "authentication.k8s.io/v1", namespaced=False)
POLICIES: Final = Kind(
    "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "admissionregistration.k8s.io/v1", namespaced=False
)
POLICY_BINDINGS: Final = Kind(
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    "admissionregistration.k8s.io/v1",
    namespaced=False,
)
REVIEWS: Final = Kind(
    "SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io/v1", namespaced=False
)


class Cluster:
    def __init__(self, transport: Transport, context: str, namespace: str) -> None:
        self.transport, self.context, self.namespace = transport, context, namespace
        #: The Date header of the last answer, in whole seconds. Compare it only with other times of this cluster.
        self.said_at = datetime.fromtimestamp(0, UTC)
        self.heard_at = time.monotonic()  #: the same instant by our monotonic clock
        self.requests: Counter[str] = Counter()  #: requests sent, like "patch jobs.batch/status"
        self.lanes = PriorityLimiter(LANES)
        self.doubt = asyncio.Event()  #: set, and replaced, when a request got no answer: watches check their connection
        self.pending: set[asyncio.Task[Any]] = set()  #: requests in flight, also those whose caller was cancelled

    @property
    def time_there(self) -> datetime:
        """The cluster's clock, up to a second late: its last Date header plus the time since."""
        return self.said_at + timedelta(seconds=time.monotonic() - self.heard_at)

    @property
    def silent_s(self) -> float:
        """Since its last answer, or since we know it."""
        return time.monotonic() - self.heard_at

    async def close(self) -> None:
        while self.pending:
            _, late = await asyncio.wait(self.pending, timeout=CONNECT_SECONDS)
            for task in late:
                task.cancel()
        await self.transport.close()

    # --- one object --------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Obj:
        return await self._ask("GET", kind, kind.path(namespace, name))

    async def create(self, kind: Kind, obj: Obj, namespace: str = "") -> Obj:
        body = {"apiVersion": kind.api, "kind": kind.name, **obj}
        namespace = namespace or str(obj["metadata"].get("namespace", ""))
        return await self._ask("POST", kind, kind.path(namespace), body)

    async def create_when_sent(self, kind: Kind, make: Callable[[], Obj], namespace: str = "") -> Obj:
        """The same of an object that is made in the instant that it leaves, for one that depends on the time. If `make`
        raises, nothing is created.
        """

        def content() -> bytes:
            return _encoded({"apiVersion": kind.api, "kind": kind.name, **make()})

        return await self._ask("POST", kind, kind.path(namespace), make=content)

    async def create_part(self, kind: Kind, name: str, part: str, body: Obj, namespace: str = "") -> Obj:
        """Create a subresource of an object: a token of a service account."""
        return await self._ask("POST", kind, kind.path(namespace, name, part), body, part=part)

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Obj,
        namespace: str = "",
        *,
        seen: str = "",
        part: str = "",
        rank: Rank = NOW,
        dry_run: bool = False,
    ) -> Obj:
        """Merge patch; None deletes a key. `seen`: fails with `Conflict` unless this is still the resourceVersion.
        `dry_run`: the answer as if, and nothing changes.
        """
        if seen:
            change = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": seen}}
        path, params = kind.path(namespace, name, part), {"dryRun": "All"} if dry_run else {}
        return await self._ask("PATCH", kind, path, change, params=params, sort=MERGE, part=part, rank=rank)

    async def add_owner(self, kind: Kind, name: str, owner: Obj, namespace: str) -> Obj:
        """The cluster deletes the object when all its owners are gone. Other owners stay, whoever adds them at the same
        time.
        """
        change = {"metadata": {"ownerReferences": [owner]}}
        return await self._ask("PATCH", kind, kind.path(namespace, name), change, sort=BY_KEY)

    async def apply(
        self, kind: Kind, obj: Obj, namespace: str, manager: str, *, part: str = "", dry_run: bool = False
    ) -> Obj:
        """Server-side apply: create the object, or change what the manager's last apply had and this one has not. Takes
        over fields that others set. `part`: a subresource, like `status`.
        """
        body = {**obj, "apiVersion": kind.api, "kind": kind.name}
        params = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        path = kind.path(namespace, str(obj["metadata"]["name"]), part)
        return await self._ask("PATCH", kind, path, body, params=params, sort=APPLY, part=part)

    async def patch_status(
        self,
        kind: Kind,
        name: str,
        status: Obj,
        namespace: str = "",
        *,
        seen: str = "",
        marks: Obj | None = None,
        rank: Rank = SOON,
    ) -> Obj:
        """Patch the status. `marks`: metadata to change in the same request; some servers ignore it, and the answer
        shows that.
        """
        change = {"status": status, **({"metadata": marks} if marks else {})}
        return await self.patch(kind, name, change, namespace, seen=seen, part="status", rank=rank)

    async def patch_outlived(self, kind: Kind, obj: Obj, change: Obj, *, seen: str, rank: Rank = NOW) -> Obj:
        """Patch an object whose namespace may be on its way out, and the Role by which we may patch it with it: then
        its metadata alone, by its status, which we may write in every namespace.
        """
        name, namespace = str(obj["metadata"]["name"]), str(obj["metadata"]["namespace"])
        try:
            return await self.patch(kind, name, change, namespace, seen=seen, rank=rank)
        except Forbidden as error:
            if not error.by_account or "deletionTimestamp" not in obj["metadata"] or "metadata" not in change:
                raise
        return await self.patch(
            kind, name, {"metadata": change["metadata"]}, namespace, seen=seen, part="status", rank=rank
        )

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete the object of this `uid`; another of the same name is a `Conflict`. Objects that it owns are collected
        after it.
        """
        body: Obj = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        await self._ask("DELETE", kind, kind.path(namespace, name), body)

    # --- many --------------------------------------------------------------------------------------------------------

    async def list(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", page: int = PAGE
    ) -> tuple[list[Obj], str]:
        """All objects, and the resourceVersion to watch from. Never returns a partial list."""
        items: list[Obj] = []
        more = ""
        while True:
            params = _selected(labels, fields) | {"limit": str(page)} | ({"continue": more} if more else {})
            answer = await self._ask("GET", kind, kind.path(namespace), params=params, verb="list")
            items += answer.get("items") or []
            more = answer["metadata"].get("continue", "")
            if not more:
                return items, str(answer["metadata"]["resourceVersion"])

    async def watch(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", since: str
    ) -> AsyncIterator[tuple[str, Obj]]:
        """Changes since a resourceVersion: OPEN once connected, then ADDED, MODIFIED, DELETED, BOOKMARK. Ends when the
        server closes it.
        """
        params = _selected(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with self._stream(kind, kind.path(namespace), params, "watch", SILENCE_SECONDS) as answer:
            yield "OPEN", {}
            async for line in _lines(answer):
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise _error(event["object"], int(event["object"].get("code", 500)), "watch", kind.resource)
                yield event["type"], event["object"]

    # --- of pods -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def log(
        self, pod: str, namespace: str, params: Mapping[str, str], silence_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A pod's log, in pieces as they arrive. `params` are the log API's: follow, timestamps, sinceTime."""
        async with self._stream(PODS, PODS.path(namespace, pod, "log"), params, "get", silence_s) as answer:
            yield answer.pieces()

    @asynccontextmanager
    async def attach(self, pod: str, namespace: str, params: Params) -> AsyncIterator[Channel]:
        """Start a command in a pod and return its channel of `exec_protocol` messages. `params` are the exec API's."""
        self.requests["create pods/exec"] += 1
        pairs = tuple(
            (key, text) for key, many in params.items() for text in ([many] if isinstance(many, str) else many)
        )
        talk = await self.transport.talk(
            Request("GET", PODS.path(namespace, pod, "exec"), pairs), exec_protocol.PROTOCOL
        )
        if isinstance(talk, Response):
            raise _refusal(talk.status, talk.content, "create", PODS.resource)
        try:
            yield talk
        finally:
            await talk.close()

    # --- what we may -------------------------------------------------------------------------------------------------

    async def may(self, verb: str, kind: Kind, namespace: str = "", part: str = "") -> bool:
        """Ask with a SelfSubjectAccessReview whether our account has this right."""
        attributes = {"verb": verb, "group": kind.api.rpartition("/")[0], "resource": kind.plural, "subresource": part}
        spec = {"resourceAttributes": {**attributes, "namespace": namespace}}
        answer = await self.create(REVIEWS, {"metadata": {}, "spec": spec})
        return bool(answer["status"]["allowed"])

    async def kind(self, api: str, name: str) -> Kind | None:
        """The kind as the server serves it; None if it does not."""
        path = f"/apis/{api}" if "/" in api else f"/api/{api}"
        answer = await self._send(Request("GET", path), "get resources")
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise _refusal(answer.status, answer.content, "get", api)
        for row in _decoded(answer.content).get("resources") or ():
            if row["kind"] == name and "/" not in row["name"]:
                return Kind(name, row["name"], api, namespaced=bool(row["namespaced"]))
        return None

    async def first_kind(self, apis: Iterable[str], name: str) -> Kind | None:
        """The kind by the first of these API versions that the server serves."""
        for api in apis:
            if (kind := await self.kind(api, name)) is not None:
                return kind
        return None

    async def version(self) -> str:
        """The server's version, like v1.35.8."""
        answer = await self._send(Request("GET", "/version"), "get version")
        if answer.status != 200:
            raise _refusal(answer.status, answer.content, "get", "version")
        return str(msgspec.json.decode(answer.content)["gitVersion"])

    # --- one request -------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        kind: Kind,
        path: str,
        body: Obj | None = None,
        *,
        params: Mapping[str, str] | None = None,
        sort: str = JSON,
        verb: str = "",
        part: str = "",
        rank: Rank = NOW,
        make: Callable[[], bytes] | None = None,
    ) -> Obj:
        content = None if body is None else _encoded(body)
        request = Request(method, path, tuple((params or {}).items()), content, sort, make)
        verb, resource = verb or VERBS[method], kind.resource + (f"/{part}" if part else "")
        answer = await self._send(request, f"{verb} {resource}", LATER if kind is EVENTS else rank)
        if answer.status >= 300:
            raise _refusal(answer.status, answer.content, verb, resource)
        obj: Obj = _decoded(answer.content)
        return obj

    async def _send(self, request: Request, call: str, rank: Rank = NOW) -> Response:
        tries = 1
        while True:
            self.requests[call] += 1
            try:
                answer = await asyncio.shield(self._on_its_way(self._in_a_lane(request, rank)))
            except Silent:
                self._cast_doubt()
                raise
            self._note_time(answer.headers)
            if answer.status != 429 or tries == BUSY_TRIES:
                return answer
            tries += 1
            await asyncio.sleep(min(BUSY_MOST_SECONDS, _retry_after(answer.headers)))

    @asynccontextmanager
    async def _stream(
        self, kind: Kind, path: str, params: Mapping[str, str], verb: str, silence_s: float | None
    ) -> AsyncIterator[Stream]:
        self.requests[f"{verb} {kind.resource}"] += 1
        answer = await self._opened(Request("GET", path, tuple(params.items())), silence_s)
        try:
            self._note_time(answer.headers)
            if answer.status >= 300:
                raise _refusal(answer.status, await answer.read(), verb, kind.resource)
            yield answer
        finally:
            await answer.close()

    async def _in_a_lane(self, request: Request, rank: Rank) -> Response:
        async with self.lanes.slot(rank):
            return await self.transport.send(request)

    async def _opened(self, request: Request, silence_s: float | None) -> Stream:
        task = self._on_its_way(self.transport.open(request, silence_s))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._on_its_way(_see_off(task))
            raise

    def _on_its_way(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a request in a task that outlives a cancelled caller: a connection that is cancelled while it opens would
        never be closed.
        """
        task = asyncio.create_task(work)
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)
        return task

    def _cast_doubt(self) -> None:
        """A request got no answer, so a silent watch may be dead, too. Wake the watches so that they check at once
        instead of after minutes.
        """
        doubt, self.doubt = self.doubt, asyncio.Event()
        doubt.set()

    def _note_time(self, headers: Mapping[str, str]) -> None:
        if date := headers.get("Date"):
            self.said_at, self.heard_at = parsedate_to_datetime(date), time.monotonic()


async def _see_off(opening: "asyncio.Task[Stream]") -> None:
    """Close a stream that opened after its caller was cancelled."""
    with suppress(KubeError):
        await (await opening).close()


def _selected(labels: str, fields: str) -> dict[str, str]:
    return ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})


def _encoded(body: Obj) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise Invalid(f"it cannot be written as JSON: {error}") from None


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the answer is not JSON: {error}") from None


def _retry_after(headers: Mapping[str, str]) -> float:
    seconds = headers.get("Retry-After", "1")
    return float(seconds) if seconds.isdigit() else 1.0


def _refusal(code: int, content: bytes, verb: str, resource: str) -> KubeError:
    try:
        status = msgspec.json.decode(content)
    except msgspec.DecodeError:
        status = {"message": content[:200].decode("utf-8", "replace")}
    return _error(status if isinstance(status, dict) else {}, code, verb, resource)


def _error(status: Obj, code: int, verb: str, resource: str) -> KubeError:
    words = str(status.get("message") or f"it answers {code}")
    match code:
        case 401:
            return Unavailable(f"the cluster does not know us (401): the token is wrong or has expired; {words}")
        case 403:
            return Forbidden(words, verb, resource)
        case 404:
            return NotFound(words)
        case 409:
            return AlreadyExists(words) if status.get("reason") == "AlreadyExists" else Conflict(words)
        case 410:
            return Gone(words)
        case 400 | 405 | 406 | 413 | 415 | 422:
            return Invalid(words)
        case _:
            return Unavailable(words)


async def _lines(answer: Stream) -> AsyncIterator[bytes]:
    """Whole lines only; a line that a disconnect cut off is dropped."""
    parts: list[bytes] = []
    async for piece in answer.pieces():
        first, *others = piece.split(b"\n")
        parts.append(first)
        for line in others:
            if whole := b"".join(parts):
                yield whole
            parts = [line]
