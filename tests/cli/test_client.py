"""Whom a command tells its token: the address it belongs to, and nobody who could overhear it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from penstock.cli.client import Client, Failed
from penstock.cli.main import main

SECRET = "pst_the-secret-of-home"


class Other:
    """A server that is no Penstock of ours. It keeps what it is told."""

    def __init__(self, location: str = "") -> None:
        tokens: list[str] = []
        self.body = ""
        this = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tokens.append(self.headers.get("Authorization", "none"))
                self.send_response(307 if location else 200 if this.body else 401)
                self.send_header("Location", location)
                self.send_header("Content-Length", str(len(this.body)))
                self.end_headers()
                self.wfile.write(this.body.encode())

            do_POST = do_PUT = do_GET  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None: ...

        self.told, self.server = tokens, HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def other(location: str = "") -> Iterator[Other]:
    other_server = Other(location)
    thread = threading.Thread(target=other_server.server.serve_forever)
    thread.start()
    try:
        yield other_server
    finally:
        other_server.server.shutdown()
        thread.join()
        other_server.server.server_close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A home folder with a token for this address."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    for name in ("PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_CA_FILE"):
        monkeypatch.delenv(name, raising=False)

    def of(address: str) -> None:
        (tmp_path / "address").write_text(address + "\n")
        (tmp_path / "token").write_text(SECRET + "\n")
        (tmp_path / "token").chmod(0o600)

    return of


def test_the_token_of_home_goes_home_only(home: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    with other() as own, other() as stranger:
        home(own.url)
        assert main(["jobs"]) == 4
        assert main(["jobs", "--url", stranger.url]) == 4
        assert (own.told, stranger.told) == ([f"Bearer {SECRET}"], ["none"])
        assert f"is for {own.url} and was not sent to {stranger.url}" in capsys.readouterr().err


def test_a_token_of_the_environment_goes_to_the_address_beside_it(
    home: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with other() as own, other() as named, other() as stranger:
        home(own.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", "pst_named")
        main(["jobs"])
        main(["jobs", "--url", stranger.url])
        monkeypatch.setenv("PENSTOCK_URL", named.url)
        main(["jobs"])
        main(["jobs", "--url", stranger.url])
        main(["jobs", "--url", own.url])
        assert named.told == ["Bearer pst_named"]
        assert own.told == ["Bearer pst_named", "none"]
        assert stranger.told == ["none", "none"]


def test_a_redirect_takes_no_token_along(home: Callable[[str], None]) -> None:
    with other() as stranger, other(f"{stranger.url}/v1/jobs") as own:
        home(own.url)
        main(["jobs"])
        assert stranger.told == []


@pytest.mark.parametrize(
    "url",
    [
        "http://penstock.example.org",
        "http://10.0.0.1:7070",
        "http://localhost.example.org",
        "http://0.0.0.0:7070",
        "http://[2001:db8::1]:7070",
        "HTTP://EXAMPLE.ORG",
    ],
)
def test_no_token_goes_over_plain_http_beyond_this_machine(
    home: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    home("http://127.0.0.1:1")
    monkeypatch.setenv("PENSTOCK_URL", url)
    monkeypatch.setenv("PENSTOCK_TOKEN", SECRET)
    with pytest.raises(Failed, match="Others could read your token"):
        Client().get("/v1/jobs")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1@example.org", "ftp://a", "http://", "7070", "http://a b", "http://a:99999", "http://\ud800"],
)
def test_what_is_no_address_is_said(home: Callable[[str], None], url: str) -> None:
    home("http://127.0.0.1:1")
    with pytest.raises(Failed) as failed:
        Client(url).get("/v1/jobs")
    assert failed.value.message.isprintable()


def test_a_server_s_words_do_not_move_the_cursor() -> None:
    assert Failed("no\x1b[2J way\nat all").message == "no\\x1b[2J way\nat all"


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--journal", "postgresql://penstock:s3cret@db/journal"],
        ["up", "--journal=postgres://penstock:s3cret@db/journal"],
        ["up", "--journal", "postgresql://db/journal?user=a&password=s3cret"],
        ["journal", "verify", "postgresql://penstock:s3cret@db/journal"],
        ["why", "a", "--journal", "postgresql://:s3cret@db"],
    ],
)
def test_a_password_among_a_commands_words_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Everybody can read them in `ps`."""
    assert main(words) == 2
    stderr = capsys.readouterr().err
    assert "PGPASSWORD" in stderr
    assert "s3cret" not in stderr


def test_a_journal_s_address_may_come_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_JOURNAL", "postgresql://somebody:secret@127.0.0.1:1/journal")
    assert main(["journal", "verify"]) == 2
    stderr = capsys.readouterr().err
    assert "postgresql://somebody@127.0.0.1:1/journal cannot be read now" in stderr
    assert "secret" not in stderr


COMMANDS = (
    "jobs",
    "why j0",
    "cancel j0",
    "budget",
    "nodes",
    "sites",
    "approvals ls",
    "token list",
    "audit",
    "policy show",
    "doctor",
    "logs j0",
    "cluster ls",
    "submit -- true",
    "open",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_no_penstock_gives_is_one_sentence(
    home: Callable[[str], None], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Another program at this address, or another version: `penstock jobs` ended in "list indices must be integers"."""
    row = '[{"job": 5, "currency": null, "at": "x", "id": [], "offers": 3}]'
    keys = (
        "jobs",
        "sites",
        "nodes",
        "tokens",
        "approvals",
        "lines",
        "scopes",
        "rows",
        "clusters",
        "alarms",
        "currency",
    )
    strange = ["[]", "null", "5", '"words"', "{}", "<html>", "[" * 100_000, "{" + '"a":{' * 100_000]
    strange += [json.dumps(dict.fromkeys(keys, json.loads(some))) for some in ("5", "null", '"x"', "[[]]")]
    strange += ["{" + ",".join(f'"{key}":{row}' for key in keys) + "}"]
    with other() as server:
        home(server.url)
        for server.body in strange:
            assert main(command.split()) in (0, 2, 3, *((1,) if command == "doctor" else ())), server.body[:40]
            assert "Traceback" not in capsys.readouterr().err, server.body[:40]
