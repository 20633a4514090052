"""Counts denied requests by address and by token, in a file of bounded size beside the journal.

However many requests strangers send, the file has the same size, and the audit trail, which is in the journal, is not
touched.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.values import value
from penstock.web.token_files import write_private

MOST_LINES: Final = 1_000  #: addresses kept, and tokens; what is forgotten is summed up
SAVE_SECONDS: Final = 10.0  #: between two writes of the file; a crash loses what was counted since
KEEP_SECONDS: Final = 90 * 86_400  #: an address is personal: forgotten after so long without a denial
MOST_WORDS: Final = 200  #: characters kept of a request's path
REST: Final = "others"  #: stands for all that were forgotten


@value
class Denied:
    """Denied requests of one address without a valid token, or of one token."""

    source: str  # an address, a /64 network of IPv6, or a token's id
    requests: int
    first_at: int  # milliseconds since 1970
    last_at: int
    asked: str  # the last one's method and path
    why: str


class Denials:
    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self.path, self.now = path, now
        self.strangers: dict[str, Denied] = {}  #: least recently denied first
        self.tokens: dict[str, Denied] = {}
        self.dirty = False
        with suppress(OSError, ValueError, msgspec.ValidationError):  # a summary only: a damaged one begins anew
            kept = msgspec.json.decode(path.read_bytes(), type=dict[str, list[Denied]])
            self.strangers = {line.source: line for line in kept.get("strangers", ())}
            self.tokens = {line.source: line for line in kept.get("tokens", ())}

    def count_stranger(self, address: str, asked: str, why: str) -> None:
        self._count(self.strangers, _network(address), asked, why)

    def count_token(self, token: str, asked: str, why: str) -> None:
        self._count(self.tokens, token, asked, why)

    def _count(self, lines: dict[str, Denied], source: str, asked: str, why: str) -> None:
        at, asked = int(self.now() * 1000), asked[:MOST_WORDS]
        known = lines.pop(source, None)
        requests, first_at = (known.requests, known.first_at) if known else (0, at)
        lines[source] = Denied(source, requests + 1, first_at, at, asked, why)
        rest = lines.pop(REST, None)
        if rest is not None:
            lines[REST] = rest
        while len(lines) > MOST_LINES:
            self._sum_up(lines)
        self.dirty = True

    def _sum_up(self, lines: dict[str, Denied]) -> None:
        """Add the line that was counted to least recently to the rest."""
        oldest = lines.pop(next(iter(lines)))
        rest = lines.get(REST, replace(oldest, source=REST, requests=0))
        first_at, last_at = min(rest.first_at, oldest.first_at), max(rest.last_at, oldest.last_at)
        lines[REST] = replace(rest, requests=rest.requests + oldest.requests, first_at=first_at, last_at=last_at)

    def lines(self) -> list[Denied]:
        """Newest first."""
        denied = [*self.strangers.values(), *self.tokens.values()]
        return sorted(denied, key=lambda line: line.last_at, reverse=True)

    def forget(self, source: str) -> int:
        """Erase what is counted of an address or a token; returns how many lines."""
        forgotten = [
            lines.pop(name, None) for lines in (self.strangers, self.tokens) for name in {source, _network(source)}
        ]
        self.dirty = True
        return sum(line is not None for line in forgotten)

    @asynccontextmanager
    async def saved(self) -> AsyncIterator[None]:
        """Write the file while this lasts, and at its end."""
        saving = asyncio.create_task(self._save_on())
        try:
            yield
        finally:
            saving.cancel()
            await asyncio.wait([saving])
            with suppress(OSError):
                self.save()

    async def _save_on(self) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            if self.dirty:
                text, self.dirty = self._text(), False
                with suppress(OSError):  # no space now: the next write has it all
                    await asyncio.to_thread(write_private, self.path, text)

    def save(self) -> None:
        if self.dirty:
            write_private(self.path, self._text())

    def _text(self) -> str:
        since = int((self.now() - KEEP_SECONDS) * 1000)
        for lines in (self.strangers, self.tokens):
            for source in [line.source for line in lines.values() if line.last_at < since]:
                del lines[source]
        kept = {"strangers": list(self.strangers.values()), "tokens": list(self.tokens.values())}
        return msgspec.json.encode(kept).decode() + "\n"


def _network(address: str) -> str:
    """One line for all addresses that one machine can choose from."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or f"{IPv6Address(int(parsed) >> 64 << 64)}/64")
