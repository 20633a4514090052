"""Files of the home folder about tokens: `token`, the local administrator's secret, and `tokens.json`, where older
versions kept all tokens. `wiring` calls it at a start.
"""

import os
import stat
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from penstock.core.errors import BadInput
from penstock.web.tokens import Role, Token, Tokens, new_token

MOST_BYTES: Final = 64 << 20  #: of `tokens.json`


def own_secret(tokens: Tokens, path: Path) -> str:
    """The secret of our own commands. Made anew if there is none or it is void; then recorded as soon as we lead."""
    secret = (read_regular(path, 10_000) or b"").decode("utf-8", "replace").strip()
    token = tokens.find(secret)
    if token is None:
        token, secret = new_token("admin")
        write_private(path, secret + "\n")
        tokens.hold(token, unrecorded=True)
    return secret


def older_tokens(path: Path) -> list[Token]:
    """The tokens that an older version kept in this file; a damaged file is refused and stays as it is."""
    content = read_regular(path, MOST_BYTES)
    if content is None:
        return []
    try:
        rows = msgspec.json.decode(content, type=list[dict[str, Any]])
        tokens = [_checked(row) for row in rows]
        if len({token.id for token in tokens}) < len(tokens) or len({token.digest for token in tokens}) < len(tokens):
            raise ValueError("a token is there twice")
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise BadInput(
            f"{path} is damaged ({error}); Penstock changed nothing. Restore it from a backup, or move it away: then "
            "its tokens are void, and `penstock token make` makes new ones."
        ) from None
    return tokens


def _checked(row: dict[str, Any]) -> Token:
    token = msgspec.convert(row, Token)
    unknown = set(row) - {field.name for field in fields(Token)}
    if unknown:
        raise ValueError(f"it has {min(unknown)!r}, which no token has")
    texts = token.id, token.team, token.made_by, token.digest
    good = bool(token.id) and len(token.digest) == 64 and all(text.isprintable() and len(text) <= 100 for text in texts)
    if not good or token.role not in get_args(Role) or not 0 <= token.expires_at < 1 << 40:
        raise ValueError(f"{token.id[:100]!r} is no token")
    return token


def set_aside(path: Path) -> Path:
    """Rename the file, over nothing; returns its new name."""
    names = (path.with_name(f"{path.name}.imported{suffix}") for suffix in ("", *(f".{k}" for k in range(2, 1_000))))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    return aside


def read_regular(path: Path, most: int) -> bytes | None:
    """The content of a file of ours; None if there is none. Never waits for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadInput(f"{path} is no file; move it away and start again.")
            content = file.read(most + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); repair it, or move it away.") from None
    if len(content) > most:
        raise BadInput(f"{path} has more than {most:,} bytes and is not ours; move it away and start again.")
    return content


def write_private(path: Path, text: str) -> None:
    """Write atomically, and never readable by others, not even for a moment."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
