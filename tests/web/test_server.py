"""The server's end: nothing that it accepted stays open."""

import asyncio
import contextlib
from typing import Any

from penstock.web.server import address_of, bind, serving
from tests.awaiting import story


@story
async def test_a_server_that_ends_closes_the_answers_it_cut_off() -> None:
    """It told them to end and left the connections of those that took their time open: their clients waited on."""
    stopped = asyncio.Event()

    async def stubborn(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while not stopped.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await stopped.wait()

    sock = bind("127.0.0.1", 0)
    host, port = address_of(sock).removeprefix("http://").split(":")
    async with serving(stubborn, sock):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"begun")
    try:
        rest = await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        rest = b""
    finally:
        stopped.set()
        writer.close()
    assert rest in (b"", b"\r\n")
