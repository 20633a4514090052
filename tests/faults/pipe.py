"""A network between Penstock and an API server that a test can cut: connections then hang instead of breaking.

with Pipe(cluster) as pipe:
    pipe.kubeconfig          # the cluster, through it
    pipe.cut()               # nothing comes through, in either direction; who connects is let in and hears nothing
    pipe.mend()              # new connections work again; the old ones stay dead, as behind a gateway that forgot them
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from penstock.devcluster.cluster import DevCluster


class Pipe:
    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.url, self.kubeconfig = cluster.url, folder / f"{cluster.name}-piped.kubeconfig"
        self.text = cluster.kubeconfig.read_text()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="pipe", daemon=True)
        self.tasks: list[asyncio.Task[None]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.open: list[bool] = []  #: a flag for each generation of connections

    def __enter__(self) -> Self:
        self.thread.start()
        port = self._do(self._listen())
        self.kubeconfig.write_text(self.text.replace(self.url, f"https://127.0.0.1:{port}"))
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def cut(self) -> None:
        self.open[-1] = False

    def mend(self) -> None:
        self.open.append(True)

    def _do(self, work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    async def _listen(self) -> int:
        self.open.append(True)
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passes, there = partial(self.open.__getitem__, len(self.open) - 1), urlsplit(self.url)
        self.writers.append(writer)  # at once: the server behind may refuse, or answer after `_close`
        try:
            onward, back = await asyncio.open_connection(there.hostname, there.port)
        except OSError:
            writer.close()
            return
        self.writers.append(back)
        self.tasks += (
            asyncio.create_task(_copy(source, sink, passes)) for source, sink in ((reader, back), (onward, writer))
        )

    async def _close(self) -> int:
        self.server.close()
        for _ in range(3):  # a connection is accepted in three turns; cancelled before its first, it would stay open
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # connections that are being made, too
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the loop's next turn is when they are closed
        return 0


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, passes: Callable[[], bool]) -> None:
    """What comes while it is cut is swallowed; so is the end of the connection."""
    try:
        while data := await source.read(1 << 16):
            if passes():
                sink.write(data)
                await sink.drain()
        if passes():
            sink.close()
    except ConnectionError:
        sink.close()
