"""An API server that does as the test says: one kind of object, lists in pages, watches that break on demand.

What no real server does when asked to: end a stream in the middle of a line, forget old versions, fall silent.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec

from penstock.kube.client import Cluster
from tests.kube.told import Told


class Server:
    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[int, dict[str, Any]]] = []  #: what happened, with its version
        self.oldest = 0  #: versions before this one are no longer kept
        self.news = asyncio.Event()
        self.cut = asyncio.Event()  #: ends all streams that are open
        self.down = False
        self.forbidden = False
        self.asked: list[httpx2.Request] = []

    def cluster(self) -> Cluster:
        return Cluster(Told(self.answer), "scripted", "default")

    # --- what the test does ------------------------------------------------------------------------------------------

    def put(self, name: str, uid: str = "", **more: Any) -> None:
        what = "MODIFIED" if name in self.objects else "ADDED"
        self.version += 1
        uid = uid or self.objects.get(name, {}).get("metadata", {}).get("uid", f"uid-{name}")
        meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": meta, **more}
        self._tell(what, self.objects[name])

    def remove(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._tell("DELETED", gone)

    def bookmark(self) -> None:
        self.version += 5
        self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def forget_old_versions(self) -> None:
        self.oldest = self.version + 1

    def disconnect(self) -> None:
        """All streams end in the middle of a line."""
        self.cut.set()
        self.cut = asyncio.Event()

    def _tell(self, what: str, obj: dict[str, Any]) -> None:
        self.log.append((self.version, {"type": what, "object": obj}))
        self.news.set()
        self.news = asyncio.Event()

    # --- what the client sees ----------------------------------------------------------------------------------------

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        if self.down:
            raise httpx2.ConnectError("refused")
        if self.forbidden:
            return _status(403, 'jobs.batch is forbidden: User "u" cannot list resource "jobs" in API group "batch"')
        asked = request.url.params
        return self._watched(int(asked["resourceVersion"])) if "watch" in asked else self._listed(asked)

    def _listed(self, asked: httpx2.QueryParams) -> httpx2.Response:
        begin, limit = int(asked.get("continue", "0")), int(asked["limit"])
        items = list(self.objects.values())[begin : begin + limit]
        more = str(begin + limit) if begin + limit < len(self.objects) else ""
        return httpx2.Response(
            200, json={"items": items, "metadata": {"resourceVersion": str(self.version), "continue": more}}
        )

    def _watched(self, since: int) -> httpx2.Response:
        if since < self.oldest:
            return _status(410, "too old resource version")
        return httpx2.Response(200, content=self._stream(since))

    async def _stream(self, since: int) -> AsyncIterator[bytes]:
        cut = self.cut
        while True:
            news = self.news
            for version, event in self.log:
                if version > since:
                    since = version
                    line = msgspec.json.encode(event) + b"\n"
                    yield line[:7]
                    yield line[7:]
            ends = [asyncio.ensure_future(cut.wait()), asyncio.ensure_future(news.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
            if cut.is_set():
                yield b'{"type":"ADDED","object":{"metadata":{"name":"half'
                raise httpx2.ReadError("reset by peer")


def _status(code: int, message: str, reason: str = "") -> httpx2.Response:
    return httpx2.Response(code, json={"kind": "Status", "code": code, "message": message, "reason": reason})
