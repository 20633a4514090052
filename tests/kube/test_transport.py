"""How one logs in: lightkube's ways, each asked once, and again when a server refuses what it said."""

import asyncio
import json
from pathlib import Path

from lightkube.config.client_adapter import BearerAuth, BearerTokenFileAuth, ExecAuth
from lightkube.config.models import UserExec

from penstock.kube.transport import Login
from tests.awaiting import story

SERVER = "https://cluster.example"


@story
async def test_a_token_file_is_read_again_once_its_token_is_refused_and_not_before(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    login = Login(BearerTokenFileAuth(str(file)), SERVER)
    assert await login.header() == "Bearer one"
    file.write_text("two")
    assert await login.header() == "Bearer one"
    assert await login.header(refused="Bearer one") == "Bearer two"
    assert await login.header(refused="Bearer one") == "Bearer two"  # somebody else was told before


@story
async def test_a_login_program_runs_once_for_all_who_ask_and_once_more_when_refused(tmp_path: Path) -> None:
    program, runs = tmp_path / "login", tmp_path / "runs"
    token = json.dumps({"status": {"token": "T"}}).replace("T", "'$(wc -l <" + str(runs) + ")'")
    program.write_text(f"#!/bin/sh\necho run >> {runs}\necho '{token}'\n")
    program.chmod(0o700)
    login = Login(ExecAuth(UserExec("client.authentication.k8s.io/v1beta1", command=str(program))), SERVER)
    assert set(await asyncio.gather(*(login.header() for _ in range(5)))) == {"Bearer 1"}
    refused = await asyncio.gather(*(login.header(refused="Bearer 1") for _ in range(5)))
    assert set(refused) == {"Bearer 2"}
    assert runs.read_text() == "run\nrun\n"


@story
async def test_a_token_that_cannot_change_and_nobody_at_all_are_as_they_are() -> None:
    fixed, nobody = Login(BearerAuth("t"), SERVER), Login(None, SERVER)
    assert (await fixed.header(), await fixed.header(refused="Bearer t")) == ("Bearer t", "Bearer t")
    assert (await nobody.header(), await nobody.header(refused="")) == ("", "")
