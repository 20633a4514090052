"""When a token is renewed, where the new one goes, and what is said if it cannot be had or kept. By its own clock."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.kube.token_renewal import AGAIN_S, LIFE_S, KubeconfigFile, TokenRenewal, life_asked, marked, read_token

Json = dict[str, Any]


def token(begins: int, ends: int, subject: str = "system:serviceaccount:penstock:penstock") -> str:
    claims = json.dumps({"sub": subject, "iat": begins, "exp": ends}).encode()
    return f"head.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.seal"


class Kept:
    """A kubeconfig in memory."""

    def __init__(self, first: str) -> None:
        self.kubeconfig: Json = {"users": [{"name": "us", "user": {"token": first}}]}
        self.full = False

    def load(self) -> Json:
        copy: Json = json.loads(json.dumps(self.kubeconfig))
        return copy

    def save(self, kubeconfig: Json) -> None:
        if self.full:
            raise OSError(30, "Read-only file system")
        self.kubeconfig = kubeconfig


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def renewal(first: str) -> tuple[TokenRenewal, Kept, Clock]:
    kept, clock = Kept(first), Clock()
    made = TokenRenewal(kept, "us", LIFE_S, clock)
    made.take(first)
    return made, kept, clock


def answer(new: str) -> bytes:
    return json.dumps({"status": {"token": new}}).encode()


def test_it_is_due_at_half_its_life_and_the_new_one_is_kept_and_due_later() -> None:
    made, kept, clock = renewal(token(0, 1_000))
    assert not made.due()
    clock.now = 500
    assert made.due()
    assert made.path == "/api/v1/namespaces/penstock/serviceaccounts/penstock/token"
    assert json.loads(made.begin())["spec"] == {"expirationSeconds": LIFE_S}
    assert not made.due(), "one request at a time"
    new = token(500, 1_500)
    assert asyncio.run(made.renewed(201, answer(new))) == new
    assert kept.kubeconfig["users"][0]["user"]["token"] == new
    clock.now = 999
    assert not made.due()


@pytest.mark.parametrize(
    ("status", "content"), [(403, b'{"message": "not allowed"}'), (500, b"oops"), (201, b"{}"), (201, b"[]")]
)
def test_a_refusal_is_said_once_and_tried_again_after_a_minute(
    status: int, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    made, kept, clock = renewal(token(0, 1_000))
    clock.now = 600
    for _ in range(2):
        made.begin()
        assert asyncio.run(made.renewed(status, content)) == ""
    assert capsys.readouterr().err.count("Notice: The token of 'us' was not renewed") == 1
    assert kept.kubeconfig["users"][0]["user"]["token"] == token(0, 1_000)
    assert not made.due()
    clock.now += AGAIN_S
    assert made.due()


def test_a_token_that_cannot_be_stored_is_used_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    made, kept, clock = renewal(token(0, 1_000))
    kept.full = True
    clock.now = 600
    new = token(600, 1_600)
    assert asyncio.run(made.renewed(201, answer(new))) == new
    assert "cannot be stored" in capsys.readouterr().err
    assert not made.due()


def test_what_another_process_stored_is_read_and_a_user_that_is_gone_is_named() -> None:
    made, kept, _ = renewal(token(0, 1_000))
    kept.kubeconfig["users"][0]["user"]["token"] = token(400, 1_400)
    assert asyncio.run(made.newest()) == token(400, 1_400)
    assert made.token is not None
    assert made.token.half == 900
    kept.kubeconfig["users"] = []
    with pytest.raises(ValueError, match="no token for 'us'"):
        asyncio.run(made.newest())


@pytest.mark.parametrize(
    "text",
    ["", "t", "a.b.c", "a.e30.c", token(0, 9, "system:node:n"), token(0, 9, "system:serviceaccount:x"), "..", "a.MQ.c"],
)
def test_other_tokens_are_left_alone(text: str) -> None:
    assert read_token(text) is None
    made, _, clock = renewal(text)
    clock.now = 1e12
    assert not made.due()


def test_only_our_mark_asks_for_renewal() -> None:
    assert life_asked({"token": "t"}) == 0
    assert life_asked({"extensions": [{"name": "other", "extension": {}}]}) == 0
    assert life_asked({"extensions": marked(600)}) == 600
    assert life_asked({"extensions": [{"name": "penstock.dev/renew"}]}) == LIFE_S


def test_a_file_is_replaced_whole_and_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("users: []\n")
    path.chmod(0o644)
    KubeconfigFile(path).save({"users": [1]})
    assert KubeconfigFile(path).load() == {"users": [1]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["kubeconfig"]
