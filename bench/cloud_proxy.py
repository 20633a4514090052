"""A proxy in front of an API server that loses questions and answers about what rents nodes, is late, and shows lists
as they were a while ago. `bench.kill_clouds` puts it between its control planes and the cluster.

It has the API server's certificate, and asks as the cluster's administrator. Watches pass through: a list from a while
ago has its own resourceVersion, and a watch from there tells all that came after.
"""

import asyncio
import logging
import random
import ssl
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from penstock.devcluster import DevCluster

POLL_S: Final = 0.5
SLOW_S: Final = 0.8  #: the longest that a request is late, usually
KEPT_S: Final = 3.0  #: how long one in fifty creates is kept: its sender has given up by then
LOST: Final = 0.1
LOST_READS: Final = 0.15  #: an HTTP client asks once more by itself
UNWANTED_S: Final = 30.0  #: how long a list is followed that nobody asks for
PASSED_ON: Final = ("Content-Type", "Accept")


@dataclass
class Snapshots:
    """Answers to one list, newest last."""

    taken: deque[tuple[float, bytes]] = field(default_factory=deque)
    wanted_at: float = 0.0  #: when somebody asked for it last

    def add(self, now: float, body: bytes, keep_s: float) -> None:
        self.taken.append((now, body))
        while len(self.taken) > 1 and self.taken[1][0] < now - keep_s:
            self.taken.popleft()

    def at(self, instant: float) -> tuple[float, bytes] | None:
        """As it was then, or when somebody looked first, and when that was; None: nobody has."""
        earlier = [snapshot for snapshot in self.taken if snapshot[0] <= instant]
        return earlier[-1] if earlier else self.taken[0] if self.taken else None


class CloudProxy:
    """`late_s`: how old a list may be at most. Every half minute another lateness is drawn."""

    def __init__(self, cluster: DevCluster, folder: Path, chance: random.Random, late_s: float, claims: str) -> None:
        """`claims`: what rents nodes, in the plural, as in a path."""
        self.claims = claims
        self.access, self.chance, self.late_s = cluster.api.access, chance, late_s
        self.kubeconfig, self.text = folder / "proxied.kubeconfig", cluster.kubeconfig.read_text()
        self.lists: dict[str, Snapshots] = {}
        self.lost_questions = self.lost_answers = self.kept = self.old_lists = 0
        self.owes_a_loss = True  #: the answer to the first create is lost: a short run has one, too
        self.lateness = 2.0
        self.oldest_s = 0.0  #: the greatest age of a list that somebody was shown
        self.tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """In a thread of its own: whoever asks the journal beside it must not keep requests waiting."""
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="cloud-proxy", daemon=True)
        self.thread.start()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._start(), self.loop))

    async def _start(self) -> None:
        trust = ssl.create_default_context(cafile=str(self.access.ca))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        headers = {"Authorization": f"Bearer {self.access.token}"}
        self.session = aiohttp.ClientSession(connector=connector, headers=headers, auto_decompress=False)
        logging.getLogger("aiohttp.server").disabled = True  # connections that break here are no news
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        as_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        as_server.load_cert_chain(self.access.ca, self.access.ca.with_suffix(".key"))  # the API server's own
        site = web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=as_server)
        await site.start()
        port = self.runner.addresses[0][1]
        self.kubeconfig.write_text(self.text.replace(self.access.url, f"https://127.0.0.1:{port}"))
        self._keep(self._watch_lists())

    async def close(self) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), self.loop))
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self.thread.join)
        self.loop.close()

    async def _close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        server = self.runner.server
        open_still = [handler.transport for handler in server.connections] if server is not None else []
        await self.runner.cleanup()
        for transport in open_still:  # over TLS `close` waits for the client's answer, and a killed one sends none
            if transport is not None:
                transport.abort()
        await self.session.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}  # of connections that waited for their next request
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- one request -------------------------------------------------------------------------------------------------

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.query.get("watch") == "true" or request.query.get("follow") == "true":
            return await self._stream(request)
        if self._is_list(request) and (old := self._old_list(request)) is not None:
            return web.Response(body=old, content_type="application/json")
        about_claims = f"/{self.claims}" in request.path
        fate = self.chance.random() if about_claims else 0.5
        if request.method != "GET" and self.chance.random() < 0.3:
            await asyncio.sleep(SLOW_S * self.chance.random())
        lost = LOST_READS if request.method == "GET" else LOST
        if fate < lost:
            self.lost_questions += 1
            if request.method == "POST" and self.chance.random() < 0.2:  # it arrives, when nobody waits for it any more
                self.kept += 1
                self._keep(self._later(request, body))
            raise _hung_up(request)
        status, headers, answer = await self._forward(request, body)
        is_first = self.owes_a_loss and about_claims and request.method == "POST" and status == 201
        if fate > 1 - lost or is_first:
            self.owes_a_loss = self.owes_a_loss and not is_first
            self.lost_answers += 1
            raise _hung_up(request)
        return web.Response(status=status, body=answer, headers=headers)

    async def _later(self, request: web.Request, body: bytes) -> None:
        await asyncio.sleep(KEPT_S * self.chance.random())
        with suppress(aiohttp.ClientError):
            await self._forward(request, body)

    async def _forward(self, request: web.Request, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {key: request.headers[key] for key in PASSED_ON if key in request.headers}
        url = f"{self.access.url.rstrip('/')}{request.raw_path}"
        async with self.session.request(request.method, url, data=body or None, headers=headers) as answer:
            kept = {
                key: answer.headers[key] for key in ("Content-Type", "Date", "Retry-After") if key in answer.headers
            }
            return answer.status, kept, await answer.read()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        url = f"{self.access.url.rstrip('/')}{request.raw_path}"
        forever = aiohttp.ClientTimeout(total=None)
        async with self.session.get(url, timeout=forever) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            with suppress(ConnectionError, aiohttp.ClientError):
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            return response

    # --- late lists --------------------------------------------------------------------------------------------------

    def _is_list(self, request: web.Request) -> bool:
        return (
            request.method == "GET"
            and request.path.rpartition("/")[2] in (self.claims, "nodes")
            and "continue" not in request.query
        )

    def _old_list(self, request: web.Request) -> bytes | None:
        snapshots = self.lists.setdefault(request.raw_path, Snapshots())
        snapshots.wanted_at = now = time.monotonic()
        old = snapshots.at(now - self.lateness)
        if old is None:
            return None
        self.old_lists += 1
        self.oldest_s = max(self.oldest_s, now - old[0])
        return old[1]

    async def _watch_lists(self) -> None:
        draw_at = 0.0
        while True:
            now = time.monotonic()
            if now > draw_at:
                self.lateness, draw_at = self.chance.uniform(min(2.0, self.late_s), self.late_s), now + 30
            for path, snapshots in list(self.lists.items()):
                if now - snapshots.wanted_at > self.late_s + UNWANTED_S:
                    del self.lists[path]  # most are asked for while one node goes, and never again
                    continue
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with self.session.get(f"{self.access.url.rstrip('/')}{path}") as answer:
                        if answer.status == 200:
                            snapshots.add(now, await answer.read(), self.late_s + 5)
            await asyncio.sleep(POLL_S)


def _hung_up(request: web.Request) -> Exception:
    """Its connection breaks: whoever asked cannot know what was done."""
    if request.transport is not None:
        request.transport.abort()
    return web.HTTPBadGateway()
