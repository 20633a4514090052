"""Kubernetes' remote command protocol (`v5.channel.k8s.io`): each message is one byte for the channel, then the data.

The driver speaks it with clusters (`kube.pod_exec`), the API with its clients, and `penstock exec` with the API.
"""

import base64
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import httpx2
    from httpx2.websockets import AsyncWebSocketSession

Typed: TypeAlias = AsyncIterator[bytes | tuple[int, int]]  #: input bytes, and new terminal sizes
Printed: TypeAlias = Callable[[bytes, bool], Awaitable[None]]  #: output bytes, and whether they are stderr

PROTOCOL: Final = "v5.channel.k8s.io"  #: the first version that can close stdin; clusters serve it since 1.30
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
MOST_BYTES: Final = 1 << 20  #: of a message
PIECE_BYTES: Final = 1 << 15  #: of one read from a program or a terminal
END_OF_INPUT: Final = bytes([CLOSE, STDIN])
UPGRADE: Final = {
    "Connection": "upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": PROTOCOL,
}


def upgrade() -> dict[str, str]:
    """Headers of the WebSocket upgrade request."""
    return UPGRADE | {"Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode()}


def session(answer: "httpx2.Response") -> "AsyncWebSocketSession":
    """The WebSocket session after the server's 101. Pings notice a peer that is gone."""
    from httpx2.websockets import AsyncWebSocketSession

    stream = answer.extensions["network_stream"]
    return AsyncWebSocketSession(stream, max_message_size_bytes=MOST_BYTES, response=answer)


def message(channel: int, text: bytes) -> bytes:
    return bytes([channel]) + text


# --- the size of a terminal -------------------------------------------------------------------------------------------


def resized(rows: int, columns: int) -> bytes:
    return message(RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())


def size_in(text: bytes) -> tuple[int, int] | None:
    """Rows and columns; None if the text is no size."""
    terminal_size = _json(text)
    rows, columns = terminal_size.get("Height"), terminal_size.get("Width")
    good = all(isinstance(size, int) and 0 < size < 1 << 16 for size in (rows, columns))
    return (rows, columns) if good and isinstance(rows, int) and isinstance(columns, int) else None


# --- how it ended -----------------------------------------------------------------------------------------------------


def ended(code: int) -> bytes:
    if code == 0:
        return _status({"status": "Success"})
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return _status({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}})


def failed(words: str, reason: str) -> bytes:
    """The message for a command that never started, or whose exit code is unknown."""
    return _status({"status": "Failure", "reason": reason, "message": words})


def result(text: bytes) -> tuple[int | None, str, str]:
    """The exit code; or None, why there is none, and the reason's name."""
    status = _json(text)
    if status.get("status") == "Success":
        return 0, "", ""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else []:
        code = str(cause.get("message", "")) if isinstance(cause, dict) else ""
        if status.get("reason") == "NonZeroExitCode" and code.isdigit():
            return int(code), "", ""
    return None, str(status.get("message") or "it ended without saying how"), str(status.get("reason") or "")


def _status(status: dict[str, Any]) -> bytes:
    return message(STATUS, json.dumps(status).encode())


def _json(text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
