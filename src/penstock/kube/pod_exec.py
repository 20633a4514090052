"""Run a command in a pod: `pods/exec` over a WebSocket. The Kubernetes driver calls it for `penstock exec`."""

import asyncio
from contextlib import suppress

from penstock.kube import exec_protocol
from penstock.kube.client import Cluster
from penstock.kube.errors import Invalid, KubeError, Unavailable
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.transport import Channel


async def run(
    cluster: Cluster,
    pod: str,
    namespace: str,
    container: str,
    command: tuple[str, ...],
    typed: Typed | None,
    printed: Printed,
    tty: bool = False,
) -> int:
    """Run the command and return its exit code. If cancelled, its terminal or its streams are closed."""
    # With a TTY there is one stream: the API refuses stderr beside it.
    params: dict[str, str | list[str]] = {
        "container": container,
        "command": list(command),
        "stdin": _flag(typed is not None),
        "stdout": "true",
        "stderr": _flag(not tty),
        "tty": _flag(tty),
    }
    result: tuple[int | None, str, str] | KubeError
    async with cluster.attach(pod, namespace, params) as socket:
        typing = asyncio.create_task(_type(socket, typed)) if typed is not None else None
        try:
            result = await _listen(socket, printed)
        except Unavailable as error:
            result = error
        finally:
            if typing is not None:
                typing.cancel()
                await asyncio.wait([typing])
    return _code(result)


async def _listen(socket: Channel, printed: Printed) -> tuple[int | None, str, str]:
    """Pass output on until the command's result arrives."""
    while True:
        heard = await socket.receive()
        channel, text = heard[0] if heard else exec_protocol.CLOSE, heard[1:]
        if channel == exec_protocol.STATUS:
            return exec_protocol.result(text)
        if channel in (exec_protocol.STDOUT, exec_protocol.STDERR) and text:
            await printed(text, channel == exec_protocol.STDERR)


async def _type(socket: Channel, typed: Typed) -> None:
    with suppress(Unavailable):  # the command has ended; `_listen` returns its result
        async for item in typed:
            await socket.send(
                exec_protocol.message(exec_protocol.STDIN, item)
                if isinstance(item, bytes)
                else exec_protocol.resized(*item)
            )
        await socket.send(exec_protocol.END_OF_INPUT)


def _code(result: tuple[int | None, str, str] | KubeError) -> int:
    if isinstance(result, KubeError):
        raise result
    code, words, _ = result
    if code is None:
        raise Invalid(words)
    return code


def _flag(so: bool) -> str:
    return "true" if so else "false"
