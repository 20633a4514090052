"""How one logs in: lightkube's ways, each asked once, and again when a server refuses what it said. And which
connection a watch takes."""

import asyncio
import json
import ssl
from pathlib import Path

from lightkube.config.client_adapter import BearerAuth, BearerTokenFileAuth, ExecAuth
from lightkube.config.models import UserExec

from penstock.kube.transport import HttpsTransport, Login, Request
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


@story
async def test_a_watch_never_begins_on_a_connection_that_was_kept_from_before() -> None:
    """After an outage a kept connection may be dead. A watch that takes one may hear nothing until it gives up, 100 s
    later."""
    connections: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(connections)
        connections.append(writer)
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % mine)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    wire = HttpsTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", ssl.create_default_context(), None)
    plain, watch = Request("GET", "/api"), Request("GET", "/api", (("watch", "true"),))
    assert [(await wire.send(plain)).content for _ in range(2)] == [b"0", b"0"]
    answer = await wire.open(watch, silence_s=5)
    assert await answer.read() == b"1"
    await answer.close()
    assert (await wire.send(plain)).content == b"0"
    await wire.close()
    server.close()
    for writer in connections:
        writer.close()
