"""One cluster, one request at a time: plain dicts in and out, errors by what to do next. `access.connect` makes it.

Typed objects cost more than they give here: most of an object is passed on or never looked at.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError

from penstock.core.values import value
from penstock.kube import channels
from penstock.kube.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, KubeError, NotFound, Unreachable

if TYPE_CHECKING:
    from httpx2.websockets import AsyncWebSocketSession

Obj: TypeAlias = dict[str, Any]
Params: TypeAlias = Mapping[str, str | list[str]]
T = TypeVar("T")

PAGE: Final = 500  #: objects in one piece of a list
#: Requests at once. More would each make a connection of their own, which costs both sides more than the request.
LANES: Final = 16
BUSY_TRIES: Final = 4  #: an overloaded server says when to come again
BUSY_MOST_SECONDS: Final = 10.0
#: A server sends a bookmark about once a minute. A watch that says nothing for longer is dead, whatever TCP believes.
SILENCE_SECONDS: Final = 100.0
CONNECT_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 3_000  #: then the server ends it, and it is taken up again where it was
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
#: A login program that fails is lightkube's own error; the file of a token may be gone for a moment.
FAILED: Final = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, ConfigError, OSError)
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
PODS: Final = Kind("Pod", "pods")
NODES: Final = Kind("Node", "nodes", namespaced=False)
NAMESPACES: Final = Kind("Namespace", "namespaces", namespaced=False)
EVENTS: Final = Kind("Event", "events")
CONFIG_MAPS: Final = Kind("ConfigMap", "configmaps")
SECRETS: Final = Kind("Secret", "secrets")
LEASES: Final = Kind("Lease", "leases", "coordination.k8s.io/v1")
REVIEWS: Final = Kind(
    "SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io/v1", namespaced=False
)


class Cluster:
    def __init__(self, http: httpx2.AsyncClient, context: str, namespace: str) -> None:
        self.http, self.context, self.namespace = http, context, namespace
        #: Of its last answer, by the cluster's own clock, in whole seconds; compared with its own times only.
        self.said_at = datetime.fromtimestamp(0, UTC)
        self.requests = 0  #: sent so far; a bench counts them
        self.lanes = asyncio.Semaphore(LANES)
        self.doubt = asyncio.Event()  #: set, and another put in its place, when a request got no answer
        self.pending: set[asyncio.Task[Any]] = set()  #: on their way, also those that nobody waits for any more

    async def close(self) -> None:
        while self.pending:
            _, late = await asyncio.wait(self.pending, timeout=CONNECT_SECONDS)
            for task in late:
                task.cancel()
        await self.http.aclose()

    # --- one object --------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Obj:
        return await self._ask("GET", kind, kind.path(namespace, name))

    async def create(self, kind: Kind, obj: Obj, namespace: str = "") -> Obj:
        body = {"apiVersion": kind.api, "kind": kind.name, **obj}
        namespace = namespace or str(obj["metadata"].get("namespace", ""))
        return await self._ask("POST", kind, kind.path(namespace), body)

    async def patch(
        self, kind: Kind, name: str, change: Obj, namespace: str = "", *, seen: str = "", part: str = ""
    ) -> Obj:
        """A merge patch: keys that are None go. `seen`: only if this is still its resourceVersion, else `Conflict`."""
        if seen:
            change = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": seen}}
        return await self._ask("PATCH", kind, kind.path(namespace, name, part), change, headers=MERGE, part=part)

    async def patch_status(self, kind: Kind, name: str, status: Obj, namespace: str = "", *, seen: str = "") -> Obj:
        return await self.patch(kind, name, {"status": status}, namespace, seen=seen, part="status")

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Only the one of this `uid`: another of the same name is a `Conflict`. What it owns goes after it."""
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
        """All of them, and the version from which to watch on. Half of a list is never given out as all of it."""
        items: list[Obj] = []
        more = ""
        while True:
            params = _selected(labels, fields) | {"limit": str(page)} | ({"continue": more} if more else {})
            found = await self._ask("GET", kind, kind.path(namespace), params=params, verb="list")
            items += found.get("items") or []
            more = found["metadata"].get("continue", "")
            if not more:
                return items, str(found["metadata"]["resourceVersion"])

    async def watch(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", since: str
    ) -> AsyncIterator[tuple[str, Obj]]:
        """What changes from a version on: OPEN once it is heard, then ADDED, MODIFIED, DELETED, BOOKMARK. Ends when
        the server ends it."""
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
        """What it printed, in pieces as they come. `params` as the log API has them: follow, timestamps, sinceTime."""
        async with self._stream(PODS, PODS.path(namespace, pod, "log"), params, "get", silence_s) as answer:
            yield _pieces(answer)

    @asynccontextmanager
    async def attach(self, pod: str, namespace: str, params: Params) -> "AsyncIterator[AsyncWebSocketSession]":
        """A command in it, begun; messages of `channels` from here on. `params` as the exec API has them."""
        path, asked = PODS.path(namespace, pod, "exec"), channels.upgrade()
        async with (
            self._stream(PODS, path, params, "create", CONNECT_SECONDS * 3, asked) as answer,
            channels.session(answer) as socket,
        ):
            yield socket

    # --- what we may -------------------------------------------------------------------------------------------------

    async def may(self, verb: str, kind: Kind, namespace: str = "", part: str = "") -> bool:
        """Does our account have this right? Asked, not tried."""
        what = {"verb": verb, "group": kind.api.rpartition("/")[0], "resource": kind.plural, "subresource": part}
        spec = {"resourceAttributes": {**what, "namespace": namespace}}
        answer = await self.create(REVIEWS, {"metadata": {}, "spec": spec})
        return bool(answer["status"]["allowed"])

    async def version(self) -> str:
        """Like v1.35.8."""
        answer = await self._send("GET", "/version", None, {}, {})
        if answer.status_code != 200:
            raise _refusal(answer, "get", "version")
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
        headers: Mapping[str, str] | None = None,
        verb: str = "",
        part: str = "",
    ) -> Obj:
        answer = await self._send(method, path, body, params or {}, headers or {})
        if answer.status_code >= 300:
            raise _refusal(answer, verb or VERBS[method], kind.resource + (f"/{part}" if part else ""))
        found: Obj = _decoded(answer.content)
        return found

    async def _send(
        self, method: str, path: str, body: Obj | None, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> httpx2.Response:
        content = None if body is None else _encoded(body)
        told = {"Content-Type": "application/json", **headers} if body is not None else dict(headers)
        tries = 1
        while True:
            self.requests += 1
            try:
                sent = self.http.build_request(method, path, content=content, params=dict(params), headers=told)
                answer = await asyncio.shield(self._on_its_way(self._in_a_lane(sent)))
            except FAILED as error:
                if isinstance(error, httpx2.TransportError):
                    self._cast_doubt()
                raise _unheard(error) from error
            self._note_time(answer)
            if answer.status_code != 429 or tries == BUSY_TRIES:
                return answer
            tries += 1
            await asyncio.sleep(min(BUSY_MOST_SECONDS, _retry_after(answer)))

    @asynccontextmanager
    async def _stream(
        self,
        kind: Kind,
        path: str,
        params: Params,
        verb: str,
        silence_s: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=silence_s, pool=None)
        self.requests += 1
        try:
            sent = self.http.build_request(
                "GET", path, params=dict(params), headers=dict(headers or {}), timeout=timeout
            )
            answer = await self._opened(sent)
            try:
                self._note_time(answer)
                if answer.status_code >= 300:
                    await answer.aread()
                    raise _refusal(answer, verb, kind.resource)
                yield answer
            finally:
                await answer.aclose()
        except FAILED as error:
            raise _unheard(error) from error

    async def _in_a_lane(self, request: httpx2.Request) -> httpx2.Response:
        async with self.lanes:
            return await self.http.send(request)

    async def _opened(self, request: httpx2.Request) -> httpx2.Response:
        task = self._on_its_way(self.http.send(request, stream=True))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._on_its_way(_see_off(task))
            raise

    def _on_its_way(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Whoever is cancelled no longer waits for it, and it goes on by itself: a connection that is cut off while it
        is being made would never be closed."""
        task = asyncio.create_task(work)
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)
        return task

    def _cast_doubt(self) -> None:
        """A request got no answer: then a watch that says nothing may be dead, too, and it would not be noticed for
        minutes. Whoever watches asks anew."""
        doubt, self.doubt = self.doubt, asyncio.Event()
        doubt.set()

    def _note_time(self, answer: httpx2.Response) -> None:
        if date := answer.headers.get("Date"):
            self.said_at = parsedate_to_datetime(date)


async def _see_off(opening: "asyncio.Task[httpx2.Response]") -> None:
    """A stream that was opened for somebody who has left."""
    with suppress(*FAILED):
        await (await opening).aclose()


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
        raise Unreachable(f"the answer is not JSON: {error}") from None


def _retry_after(answer: httpx2.Response) -> float:
    said = answer.headers.get("Retry-After", "1")
    return float(said) if said.isdigit() else 1.0


def _unheard(error: Exception) -> Unreachable:
    return Unreachable(str(error) or type(error).__name__)


def _refusal(answer: httpx2.Response, verb: str, resource: str) -> KubeError:
    try:
        status = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        status = {"message": answer.content[:200].decode("utf-8", "replace")}
    return _error(status if isinstance(status, dict) else {}, answer.status_code, verb, resource)


def _error(status: Obj, code: int, verb: str, resource: str) -> KubeError:
    words = str(status.get("message") or f"it answers {code}")
    match code:
        case 401:
            return Unreachable(f"the cluster does not know us (401): the token is wrong or has expired; {words}")
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
            return Unreachable(words)


async def _pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    async for piece in answer.aiter_bytes():
        yield piece


async def _lines(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Whole lines only: one that was cut off by a disconnect never happened."""
    parts: list[bytes] = []
    async for piece in answer.aiter_bytes():
        first, *others = piece.split(b"\n")
        parts.append(first)
        for line in others:
            if whole := b"".join(parts):
                yield whole
            parts = [line]
