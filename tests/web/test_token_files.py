"""`tokens.json` of older versions: read whole or refused with one sentence, and never waited for."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import BadInput
from penstock.web.token_files import older_tokens, read_regular, set_aside
from penstock.web.tokens import Token

ROW: dict[str, Any] = {
    "id": "82fafb8d07be", "digest": sha256(b"x").hexdigest(), "role": "member", "team": "a", "expires_at": 5,
    "revoked": True, "made_by": "",
}  # fmt: skip
OTHER = ROW | {"id": "0123456789ab", "digest": sha256(b"y").hexdigest()}


def test_what_an_older_version_wrote_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    assert older_tokens(path) == []
    path.write_text(
        json.dumps([ROW, {key: ROW[key] for key in ("id", "digest", "role")} | {"id": "b", "digest": "f" * 64}])
    )
    assert older_tokens(path) == [
        Token("82fafb8d07be", ROW["digest"], "member", "a", 5, revoked=True),
        Token("b", "f" * 64, "member"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"{}",
        b"[1]",
        b"[[]]",
        b"\xff\xfe",
        b'["\\ud800"]',
        b"[" * 100_000,
        json.dumps([{}]).encode(),
        json.dumps([ROW | {"role": "god"}]).encode(),
        json.dumps([ROW | {"id": ""}]).encode(),
        json.dumps([ROW | {"id": 5}]).encode(),
        json.dumps([ROW | {"digest": "short"}]).encode(),
        json.dumps([ROW | {"team": "a\0b"}]).encode(),
        json.dumps([ROW | {"made_by": "x" * 10_000}]).encode(),
        json.dumps([ROW | {"expires_at": "never"}]).encode(),
        json.dumps([ROW | {"expires_at": -1}]).encode(),
        json.dumps([ROW | {"expires_at": 10**40}]).encode(),
        json.dumps([ROW | {"more": 1}]).encode(),
        json.dumps([ROW, ROW]).encode(),
        json.dumps([ROW, ROW | {"id": "other"}]).encode(),
        json.dumps([ROW, OTHER]).encode()[:-3],
    ],
)
def test_a_damaged_file_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"is damaged .*changed nothing\. Restore it") as raised:
        older_tokens(path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == content


def test_a_pipe_and_a_folder_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(BadInput, match=r"no file|Is a directory"):
            read_regular(tmp_path / name, 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(BadInput, match="more than 10 bytes"):
        read_regular(tmp_path / "large", 10)


def test_a_file_is_set_aside_over_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    for text in ("first", "second"):
        path.write_text(text)
        set_aside(path)
    assert (tmp_path / "tokens.json.imported").read_text() == "first"
    assert (tmp_path / "tokens.json.imported.2").read_text() == "second"
