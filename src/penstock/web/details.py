"""What is personal about what somebody did: their name, their address, the words of a command. Blobs beside the
journal's chain, which has their digests only; `penstock audit erase` erases them.
"""

import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from starlette.requests import HTTPConnection

from penstock.core.values import value


@value
class Details:
    digest: str
    content: bytes

    @property
    def blobs(self) -> dict[str, bytes]:
        return {self.digest: self.content} if self.digest else {}


NONE: Final = Details("", b"")


def details(request: HTTPConnection, words: Sequence[str] = ()) -> Details:
    """Salted: a digest alone does not tell whose address or which words it is of."""
    record: dict[str, Any] = {"salt": secrets.token_hex(16), "from": address_of(request)}
    content = msgspec.json.encode(record | {"words": list(words)} if words else record)
    return Details(sha256(content).hexdigest(), content)


def named(name: str) -> Details:
    """The name of whom a token is for, salted likewise."""
    if not name:
        return NONE
    content = msgspec.json.encode({"salt": secrets.token_hex(16), "name": name})
    return Details(sha256(content).hexdigest(), content)


def address_of(request: HTTPConnection) -> str:
    return request.client.host if request.client else ""


def name_in(content: bytes | None) -> str:
    """Empty if it was erased."""
    record: dict[str, Any] = msgspec.json.decode(content) if content else {}
    return str(record.get("name", ""))


def read(content: bytes | None) -> tuple[str, list[str]]:
    """The address and the words; empty if they were erased."""
    record: dict[str, Any] = msgspec.json.decode(content) if content else {}
    return str(record.get("from", "")), [str(word) for word in record.get("words", ())]
