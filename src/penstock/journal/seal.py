"""Seals what the hash chain does not cover and a start believes: snapshots. The writer seals and opens them.

A seal is an HMAC over the bytes, their schema, and the number and hash of the step that they stand for. Its key is a
file of the installation outside the database, so that write access to the database is not enough to forge one.
"""

import hmac
from hashlib import sha256
from typing import Final

SEAL_BYTES: Final = sha256().digest_size


class Doubtful(Exception):
    """A snapshot is not what this installation stored. Fold the steps instead, and tell a person."""


def key_name(key: bytes) -> str:
    """Names a key without telling it: planes with other keys keep snapshots of their own."""
    return hmac.digest(key, b"penstock key", "sha256").hex()[:16]


def seal(key: bytes, schema: str, number: int, link: bytes, content: bytes) -> bytes:
    """The content behind its seal."""
    return _mac(key, schema, number, link, content) + content


def opened(key: bytes, schema: str, number: int, link: bytes, sealed: bytes) -> bytes:
    """The content. Raises `Doubtful` if it was not sealed with this key for this step."""
    content = sealed[SEAL_BYTES:]
    if not hmac.compare_digest(sealed[:SEAL_BYTES], _mac(key, schema, number, link, content)):
        raise Doubtful(f"the snapshot of step {number} is not what was stored")
    return content


def _mac(key: bytes, schema: str, number: int, link: bytes, content: bytes) -> bytes:
    made = hmac.new(key, f"penstock snapshot|{schema}|{number}|{link.hex()}|{len(content)}|".encode(), sha256)
    made.update(content)
    return made.digest()
