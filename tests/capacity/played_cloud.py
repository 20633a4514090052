"""A cloud that is played: pools over plain http, with delays, faults and lost answers. Its machines are Nodes of a real
API server, if it is given one.

A subclass speaks one cloud's API (`answer`). This file is what all have in common: when a machine comes, that a group
replaces one which ends, and what goes wrong on the way.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
#: How a cloud makes, lists and removes Nodes: method, path, body.
AskApi = Callable[[str, str, Mapping[str, Any] | None], Any]


@dataclass
class PlayedPool:
    name: str
    asked: dict[str, Any]  # as the request said it
    labels: dict[str, str]  # of its Nodes
    taints: list[dict[str, str]]
    resource: dict[str, str]  # allocatable of each Node
    comes_at: float
    shown_at: float
    nodes: int = 1
    goes_at: float | None = None  # it is being deleted
    made: list[str] = field(default_factory=list)  # names of its Nodes


@dataclass
class Faults:
    """What goes wrong from now on."""

    lose_answers: int = 0  # so many creates are done, and nobody hears of it
    answers: list[Answer] = field(default_factory=list)  # to the next requests, whatever they ask
    on_create: list[Answer] = field(default_factory=list)  # to the next creates
    issue: tuple[str, str] | None = None  # code and words: no machine comes
    blind: bool = False  # machines come without GPUs
    starts_after: float = 0.15
    ends_after: float = 0.1
    shows_after: float = 0.0  # a pool is on no list, and nowhere else, for so long


class PlayedCloud:
    def __init__(self, nodes: AskApi | None = None) -> None:
        self.nodes, self.faults = nodes, Faults()
        self.pools: dict[str, PlayedPool] = {}
        self.requests: list[tuple[str, str]] = []  #: method and path of all that were asked
        self.wrong: list[Exception] = []  #: what requests broke; the test fails by it
        self.creates = 0  #: pools that were made, all in all
        self.lock = threading.RLock()
        self.over = threading.Event()

    # --- what a cloud says -------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        raise NotImplementedError

    def is_create(self, method: str) -> bool:
        return method == "POST"

    def shown(self) -> dict[str, PlayedPool]:
        return {name: pool for name, pool in self.pools.items() if time.monotonic() >= pool.shown_at}

    def add(self, pool: PlayedPool) -> None:
        self.pools[pool.name] = pool
        self.creates += 1

    def times(self, kind: str) -> tuple[float, float]:
        """When a machine of this type comes, and when its pool is shown."""
        now = time.monotonic()
        return now + (600 if "slow" in kind else self.faults.starts_after), now + self.faults.shows_after

    def end(self, name: str) -> None:
        if self.pools[name].goes_at is None:
            self.pools[name].goes_at = time.monotonic() + self.faults.ends_after

    # --- its machines ------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        now = time.monotonic()
        for pool in list(self.pools.values()):
            if pool.goes_at is not None and now >= pool.goes_at:
                self.remove_nodes(pool)
                self.forget(pool)
            elif pool.goes_at is None and now >= pool.comes_at and self.faults.issue is None:
                while len(pool.made) < pool.nodes:
                    self._make_node(pool)

    def provider_id(self, name: str) -> str:
        """As the cloud's own controller writes it on a Node."""
        return f"played:///{name}"

    def forget(self, pool: PlayedPool) -> None:
        del self.pools[pool.name]

    def let_go(self) -> None:
        """At the end of a test: nothing of it stays in the cluster."""

    def reclaim(self, name: str) -> None:
        """The machine is taken away, as spot machines are; its group will replace it."""
        with self.lock:
            pool = self.pools[name]
            self.remove_nodes(pool)
            pool.comes_at = time.monotonic() + self.faults.starts_after

    def _make_node(self, pool: PlayedPool) -> None:
        name = f"{pool.name}-{time.monotonic_ns() % 10**10}"
        pool.made.append(name)
        if self.nodes is None:
            return
        resource = {"cpu": "8", "memory": "64Gi", "pods": "110", **({} if self.faults.blind else pool.resource)}
        node = {
            "metadata": {"name": name, "labels": pool.labels},
            "spec": {"taints": pool.taints, "providerID": self.provider_id(name)},
            "status": {
                "allocatable": resource,
                "capacity": resource,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Played", "message": ""}],
            },
        }
        answer = self.nodes("POST", "/api/v1/nodes", node)
        assert answer.code == 201, answer

    def remove_nodes(self, pool: PlayedPool) -> None:
        for name in pool.made if self.nodes is not None else ():
            assert self.nodes is not None
            self.nodes("DELETE", f"/api/v1/nodes/{name}", None)
        pool.made.clear()

    # --- serving -----------------------------------------------------------------------------------------------------

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer | None:
        """None: the connection breaks without an answer."""
        with self.lock:
            self.requests.append((method, path))
            if self.faults.answers:
                return self.faults.answers.pop(0)
            if self.is_create(method) and self.faults.on_create:
                return self.faults.on_create.pop(0)
            before = self.creates
            answer = self.answer(method, path, headers, body)
            if self.creates > before and self.faults.lose_answers:
                self.faults.lose_answers -= 1
                return None
            return answer

    def serve_safely(self, *request: Any) -> Answer | None:
        try:
            return self.serve(*request)
        except Exception as error:  # noqa: BLE001 - all that went wrong; `playing` raises it
            self.wrong.append(error)
            return 500, {"message": repr(error)}

    def live(self) -> None:
        while not self.over.wait(0.03):
            try:
                with self.lock:
                    self.tick()
            except Exception as error:  # noqa: BLE001 - as above
                self.wrong.append(error)
                return


@contextmanager
def playing(cloud: PlayedCloud) -> Iterator[str]:
    """Its address, as long as it plays. Afterwards it has no Nodes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            with suppress(ConnectionError):
                super().handle_one_request()

        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            told = cloud.serve_safely(
                self.command,
                self.path,
                {key.lower(): text for key, text in self.headers.items()},
                json.loads(raw) if raw else None,
            )
            if told is None:
                self.close_connection = True
                self.connection.close()
                return
            status, said = told
            out = b"" if said is None else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815 - the server's own names

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,)), threading.Thread(target=cloud.live)]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        cloud.over.set()
        server.shutdown()
        for thread in threads:
            thread.join()
        server.server_close()
        for pool in list(cloud.pools.values()):
            cloud.remove_nodes(pool)
        cloud.let_go()
        if cloud.wrong:
            raise cloud.wrong[0]
