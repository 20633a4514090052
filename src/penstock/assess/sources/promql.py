"""Asks a Prometheus server, or one that speaks its API, by range queries. `prometheus` says what to ask.

A month is asked for in windows. A window that the server refuses as too large, or does not answer in time, is asked
for in two halves; one that fails otherwise is asked for once more. What stays unanswered is said and never filled in.
A window has one deadline for all of its answer, and a number that is none (NaN, +Inf) says nothing.
Nothing is followed to another address, so that a token stays with the server it is for.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from penstock.core.errors import BadInput
from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis

if TYPE_CHECKING:
    import httpx2

ANSWER_SECONDS: Final = 60.0  #: for one window; the server is told the same
CONNECT_SECONDS: Final = 10.0
NO_ANSWER: Final = ("the answer is not JSON, or was cut short", "the answer is no object")
MOST_BYTES: Final = 32 << 20  #: of one answer
MOST_NUMBER: Final = 1e12  #: of a sample: GPUs, percents, seconds since 1970
MOST_WARNINGS: Final = 20
WINDOW_MS: Final[Millis] = 6 * HOUR
LEAST_WINDOW_MS: Final[Millis] = 45 * MINUTE
PAUSE_SECONDS: Final = 1.0  #: before a second try
MOST_LOST: Final = 2  #: windows in a row without a whole answer, then the metric is not asked for any more
TOKEN_VARIABLE: Final = "PENSTOCK_PROMETHEUS_TOKEN"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Series(NamedTuple):
    labels: Mapping[str, str]
    points: Sequence[tuple[Instant, float]]


class NoAnswer(Exception):
    """A window that stays unanswered; the text is the end of a sentence."""


class TooLarge(NoAnswer):
    """The server would answer a smaller window."""


class Slow(TooLarge):
    """It did not answer in time."""


class QueryDenied(NoAnswer):
    """No other window will be answered either."""


def token_of(file: str | None) -> str:
    """The bearer token: of a file, or of the environment. Empty: none."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise BadInput(
            f"--prometheus-token {file}: cannot be read ({getattr(error, 'strerror', None) or error})."
        ) from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(f"--prometheus-token {file}: this is no token; the file holds one line without spaces.")
    return token


class Prometheus:
    """One server. `missing` collects a sentence for each window and metric without an answer."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        transport: "httpx2.BaseTransport | None" = None,
        sleep: Callable[[float], None] = time.sleep,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        import httpx2

        _check(url, token)
        self.url, self.sleep, self.answer_seconds = url.rstrip("/"), sleep, answer_seconds
        self.deadline = _Deadline(answer_seconds)
        self.host = urlsplit(url).netloc.rpartition("@")[2]
        self.missing: list[str] = []
        self.warnings: dict[str, None] = {}  #: partial answers, by the server's own words
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        timeout = httpx2.Timeout(answer_seconds + 5, connect=CONNECT_SECONDS)
        self.client = httpx2.Client(headers=headers, timeout=timeout, follow_redirects=False, transport=transport)

    def close(self) -> None:
        self.client.close()

    def ranges(
        self,
        name: str,
        query: str,
        from_at: Instant,
        to_at: Instant,
        step_ms: Millis,
        advance: Callable[[Millis], None] = lambda _: None,
    ) -> Iterator[Series]:
        """All series of all windows, one after another; a series that spans windows comes in parts."""
        lost: list[tuple[Instant, Instant, str]] = []
        failed = 0
        for begins_at in range(from_at, to_at, WINDOW_MS):
            ends_at, before = min(begins_at + WINDOW_MS, to_at), len(lost)
            try:
                yield from self._window(query, begins_at, ends_at, step_ms, lost)
            except QueryDenied as refusal:
                lost.append((begins_at, ends_at, str(refusal)))
                failed = MOST_LOST
            failed = failed + 1 if len(lost) > before else 0
            advance(ends_at - begins_at)
            if failed >= MOST_LOST and ends_at < to_at:
                lost.append((ends_at, to_at, "it was not asked any more"))
                advance(to_at - ends_at)
                break
        if lost:
            hours = sum(end - begin for begin, end, _ in lost) / HOUR
            self.missing.append(
                f"{name} is missing for {hours:,.1f} h of {(to_at - from_at) / HOUR:,.1f} h: {lost[0][2]}."
            )

    def _window(
        self,
        query: str,
        begins_at: Instant,
        ends_at: Instant,
        step_ms: Millis,
        lost: list[tuple[Instant, Instant, str]],
    ) -> Iterator[Series]:
        """The half-open window: its end is the beginning of the next one."""
        try:
            yield from self._twice(query, begins_at, ends_at, step_ms)
        except TooLarge as refusal:
            half = (ends_at - begins_at) // 2 // step_ms * step_ms
            # A slow server is asked for halves once; waiting for ever smaller ones would take hours.
            least = WINDOW_MS - 1 if isinstance(refusal, Slow) else LEAST_WINDOW_MS
            if half == 0 or ends_at - begins_at <= least:
                lost.append((begins_at, ends_at, str(refusal)))
                return
            yield from self._window(query, begins_at, begins_at + half, step_ms, lost)
            yield from self._window(query, begins_at + half, ends_at, step_ms, lost)
        except QueryDenied:
            raise
        except NoAnswer as refusal:
            lost.append((begins_at, ends_at, str(refusal)))

    def _twice(self, query: str, begins_at: Instant, ends_at: Instant, step_ms: Millis) -> list[Series]:
        asked = {
            "query": query,
            "start": f"{begins_at / SECOND:.3f}",
            "end": f"{(ends_at - 1) / SECOND:.3f}",
            "step": f"{step_ms / SECOND:.3f}",
            "timeout": f"{self.answer_seconds:.0f}s",
        }
        try:
            body = self._once(asked)
        except (TooLarge, QueryDenied):
            raise
        except NoAnswer:
            self.sleep(PAUSE_SECONDS)
            body = self._once(asked)
        return _matrix(body, self.host, begins_at, ends_at)

    def _once(self, asked: Mapping[str, str]) -> dict[str, Any]:
        import httpx2

        slow = f"{self.host} did not answer in {self.answer_seconds:.0f} s"
        with self.deadline:
            try:
                with self.client.stream(
                    "GET",
                    f"{self.url}/api/v1/query_range",
                    params=dict(asked),
                    extensions={"trace": self.deadline.watch},
                ) as answer:
                    content = _bounded(answer)
                return self._body(answer.status_code, answer.headers.get("Location", ""), content)
            except httpx2.ReadTimeout:
                raise Slow(slow) from None
            except httpx2.HTTPError as error:
                if self.deadline.is_over:
                    raise Slow(slow) from None
                why = " ".join(str(error).split()) or type(error).__name__
                raise NoAnswer(f"{self.host} cannot be reached ({why})") from None

    def _body(self, status: int, location: str, content: bytes) -> dict[str, Any]:
        if 300 <= status < 400:
            where = urlsplit(location).netloc or "another path"
            raise QueryDenied(
                f"{self.host} redirects to {where}, which is not followed; give the address that answers itself"
            )
        body = _decoded(content)
        words = f": {' '.join(str(body['error']).split())[:200]}" if body.get("error") else ""
        if status in (401, 403):
            why = "" if body.get("error") in NO_ANSWER else words  # a proxy refuses in a page of its own
            raise QueryDenied(f"{self.host} refuses us ({status}){why}; give a token that may read: --prometheus-token")
        if status in (404, 405):
            raise QueryDenied(f"{self.host} has no Prometheus API under this address ({status})")
        if status in (413, 422) or (status == 503 and "timed out" in words):
            raise TooLarge(f"{self.host} refuses the window as too large ({status}){words}")
        if status == 400:
            raise QueryDenied(f"{self.host} does not understand the query ({status}){words}")
        if status != 200 or body.get("status") != "success":
            raise NoAnswer(f"{self.host} answers {status}{words}")
        warnings = body.get("warnings")
        for warning in warnings[:MOST_WARNINGS] if isinstance(warnings, list) else ():
            if len(self.warnings) < MOST_WARNINGS:
                self.warnings[" ".join(str(warning).split())[:200]] = None
        return body


def _check(url: str, token: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"--prometheus '{url}' is no address; write it like https://prometheus.example.com.")
    if parts.username or parts.password:
        raise BadInput("--prometheus: everybody on this machine can read a password in an address; use a token file.")
    if token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise BadInput(f"--prometheus {url}: a token is sent by https only; anybody on the way could read it.")


class _Deadline:
    """For a whole answer: whoever sends a byte a second keeps every timeout of a single read. Ends the connection."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.connected: socket.socket | None = None  #: also of the answers before: a connection serves many
        self.is_over = False
        self.timer = threading.Timer(seconds, self._end)

    def __enter__(self) -> None:
        self.is_over = False
        self.timer = threading.Timer(self.seconds, self._end)
        self.timer.daemon = True
        self.timer.start()

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by the HTTP client at each step of a request. TLS takes the socket over."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self.connected = info["return_value"].get_extra_info("socket")

    def _end(self) -> None:
        self.is_over = True
        with suppress(OSError):
            if self.connected is not None:
                self.connected.shutdown(socket.SHUT_RDWR)


def _bounded(answer: Any) -> bytes:
    pieces, size = [], 0
    for piece in answer.iter_bytes():
        size += len(piece)
        if size > MOST_BYTES:
            raise TooLarge(f"the answer is larger than {MOST_BYTES >> 20} MiB")
        pieces.append(piece)
    return b"".join(pieces)


def _decoded(content: bytes) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"error": NO_ANSWER[0]}
    return body if isinstance(body, dict) else {"error": NO_ANSWER[1]}


def _matrix(body: Mapping[str, Any], host: str, begins_at: Instant, ends_at: Instant) -> list[Series]:
    try:
        data = body["data"]
        if data["resultType"] != "matrix":
            kind = " ".join(str(data["resultType"]).split())[:40]
            raise NoAnswer(f"{host} answers with a {kind} where a matrix was asked for")
        series = (
            Series(
                {str(key): str(text) for key, text in row["metric"].items()},
                list(_points(row["values"], begins_at, ends_at)),
            )
            for row in data["result"]
        )
        return [one for one in series if one.points]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise NoAnswer(f"{host} answers in a form that is not Prometheus's") from None


def _points(values: Iterable[Any], begins_at: Instant, ends_at: Instant) -> Iterator[tuple[Instant, float]]:
    """Those of the window that are numbers. A comparison with NaN is false."""
    for text, number_text in values:
        at, number = float(text) * SECOND, float(number_text)
        if begins_at - 1 <= at < ends_at and abs(number) <= MOST_NUMBER:
            yield round(at), number
