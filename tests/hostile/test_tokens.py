"""Revoked means revoked: on every control plane of the journal, for browsers and streams, and after a kill."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.contract.journals import KINDS, new_address
from tests.hostile.control_plane import LIMIT_S, ControlPlane, until
from tests.hostile.tokens import made, running_job
from tests.postgres import Server, free_port, server

ADMIN = "pst_" + "a" * 43
GONE = "pst_" + "b" * 43


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server() as database:
        yield database


class Standby(ControlPlane):
    """Waits while another leads. `start` returns once it answers."""

    def start(self, *more: str) -> None:
        self.address, self.token_file = f"http://127.0.0.1:{free_port()}", str(self.home / "token")
        command = [sys.executable, "-m", "penstock.cli", "up", "--home", str(self.home), "--stand-by", "--json"]
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*command, "--port", self.address.rpartition(":")[2], *self.options, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        until(lambda: self._answers("/healthz"))

    def leads(self) -> bool:
        return self._answers("/readyz")

    def _answers(self, path: str) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.words
        try:
            answer = httpx2.get(self.address + path, trust_env=False, timeout=LIMIT_S, verify=False)
            return answer.status_code == 200
        except httpx2.TransportError:
            return False


def knows(plane: ControlPlane, secret: str) -> bool:
    """A standby answers 503 to those that it knows, and 401 to strangers."""
    return plane.client(secret).get("/v1/status").status_code != 401


def revoke(plane: ControlPlane, token: str) -> None:
    answer = plane.client().delete(f"/v1/tokens/{token}")
    assert (answer.status_code, answer.json()["revoked"]) == (200, True)


# --- two control planes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_standby_knows_what_its_leader_made_and_revoked(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Once each home folder had tokens of its own."""
    journal = ("--journal", new_address(kind, tmp_path, request))
    with ControlPlane(tmp_path / "a", *journal) as leader, Standby(tmp_path / "b", *journal) as standby:
        assert knows(standby, Path(leader.token_file).read_text().strip())
        token, secret = made(leader, "member", "vision")
        until(lambda: knows(standby, secret))
        revoke(leader, token)
        until(lambda: not knows(standby, secret))
        own = standby.client()
        assert own.get("/v1/status").status_code == 503  # its own file lets it in, and makes nobody's void
        assert own.post("/v1/tokens", json={"role": "admin"}).status_code == 503  # only the leader makes them
        assert knows(leader, Path(leader.token_file).read_text().strip())
        assert "Traceback" not in leader.words + standby.words


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failover_a_revoked_token_is_void_and_a_late_one_is_good(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The leader is killed in the moment that it has answered."""
    journal = ("--journal", new_address(kind, tmp_path, request))
    with ControlPlane(tmp_path / "a", *journal) as leader, Standby(tmp_path / "b", *journal) as standby:
        token, secret = made(leader)
        admins = Path(leader.token_file).read_text().strip()
        _, late = made(leader)
        revoke(leader, token)
        leader.stop(signal.SIGKILL)
        until(standby.leads)
        assert [knows(standby, each) for each in (secret, late, admins)] == [False, True, True]
        revoked = [row["id"] for row in standby.client().get("/v1/tokens").json()["tokens"] if row["revoked"]]
        assert revoked == [token]
        own = Path(standby.token_file).read_text().strip()
        standby.stop(signal.SIGKILL)
        standby.start()
        until(standby.leads)
        assert Path(standby.token_file).read_text().strip() == own  # recorded when it led, so it is not made again


@pytest.mark.slow
def test_a_leader_that_was_suspended_lets_nobody_in_who_was_revoked_meanwhile(tmp_path: Path, postgres: Server) -> None:
    """The request waits in its socket until it wakes up: it is answered before anything else tells it."""
    journal = ("--journal", postgres.new_database())
    with ControlPlane(tmp_path / "a", *journal) as leader, Standby(tmp_path / "b", *journal) as standby:
        token, secret = made(leader)
        host, _, port = leader.address.removeprefix("http://").partition(":")
        ask = f"GET /v1/tokens HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()
        assert leader.process is not None
        with socket.create_connection((host, int(port)), LIMIT_S) as connected:
            connected.sendall(ask)
            assert connected.recv(1 << 16).startswith(b"HTTP/1.1 403 ")  # known, and no admin
            leader.process.send_signal(signal.SIGSTOP)
            try:
                until(standby.leads)
                revoke(standby, token)
                connected.sendall(ask)
            finally:
                leader.process.send_signal(signal.SIGCONT)
            answer = b""
            with suppress(ConnectionResetError):  # it hung up with our request unread, because it no longer leads
                answer = connected.recv(1 << 16)
            assert not answer.startswith(b"HTTP/1.1 403 ")  # 401, or it has hung up


@pytest.mark.parametrize("made_it", [True, False], ids=["made", "revoked"])
def test_what_was_answered_survives_a_kill_right_after(made_it: bool, tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        token, secret = made(plane)
        if not made_it:
            revoke(plane, token)
        plane.stop(signal.SIGKILL)
        plane.start()
        assert knows(plane, secret) == made_it


# --- browsers --------------------------------------------------------------------------------------------------------


def browser(plane: ControlPlane, by: str) -> str:
    """The secret that a browser gets by a link of this token."""
    link = plane.client(by).post("/v1/logins").json()["path"]
    cookie: str = plane.client("").get(link).cookies["penstock_token"]
    return cookie


def test_revoking_a_token_ends_the_browsers_of_its_browsers(tmp_path: Path) -> None:
    """A cookie is a token: whoever takes it out of the browser makes links by it. Once those lived on."""
    with ControlPlane(tmp_path / "home") as plane:
        token, secret = made(plane, "viewer")
        line = [secret]
        for _ in range(3):
            line.append(browser(plane, line[-1]))
        assert [knows(plane, each) for each in line] == [True] * 4
        revoke(plane, token)
        assert [knows(plane, each) for each in line] == [False] * 4
        plane.stop(signal.SIGKILL)
        plane.start()
        assert [knows(plane, each) for each in line] == [False] * 4


def test_revoking_a_browser_ends_what_came_in_by_it_and_nothing_else(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        _, secret = made(plane, "viewer")
        first, other = browser(plane, secret), browser(plane, secret)
        second = browser(plane, first)
        tokens = plane.client().get("/v1/audit", params={"did": "login"}).json()["entries"]
        (middle,) = {entry["before"] for entry in tokens} & {entry["about"] for entry in tokens}
        revoke(plane, middle)
        assert [knows(plane, each) for each in (secret, other, first, second)] == [True, True, False, False]


def test_browsers_do_not_let_in_browsers_without_end(tmp_path: Path) -> None:
    """Each request looks at all that let it in, so a long line would make requests slow."""
    with ControlPlane(tmp_path / "home") as plane:
        last = made(plane, "viewer")[1]
        for _ in range(8):
            last = browser(plane, last)
        link = plane.client(last).post("/v1/logins").json()["path"]
        assert plane.client("").get(link).status_code == 403


# --- what is open ----------------------------------------------------------------------------------------------------


def test_a_revoked_token_ends_all_that_is_open_for_it(tmp_path: Path) -> None:
    """Once a stream ended with the next event, a followed log with its job, and a command within five seconds."""
    with ControlPlane(tmp_path / "home") as plane, ThreadPoolExecutor(8) as threads, running_job(plane) as job:
        token, secret = made(plane)
        cookie = {"Cookie": f"penstock_token={browser(plane, secret)}"}
        open_now = [
            _follow(threads, plane.client(secret), "/v1/events/stream"),
            _follow(threads, plane.client(""), "/news/stream", headers=cookie),
            _follow(threads, plane.client(secret), f"/v1/jobs/{job}/log", params={"follow": "true"}),
        ]
        waits = threads.submit(
            plane.client(secret).get, f"/v1/jobs/{job}/log", params={"after": 5, "wait": 30, "attempt": f"{job}.1"}
        )
        with _exec(plane, secret, job) as typing:
            revoke(plane, token)
            for reading in open_now:
                reading.result(LIMIT_S)
            assert waits.result(LIMIT_S).status_code == 401
            assert typing.wait(LIMIT_S) != 0
        assert plane.job(job)["state"] == "running"
        assert "Traceback" not in plane.words


def test_a_submission_whose_body_arrives_after_the_revocation_is_refused(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        token, secret = made(plane)
        body = json.dumps({"gpus": 1, "command": ["true"]}).encode()
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        )
        host, _, port = plane.address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as connected:
            connected.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            assert connected.recv(1 << 16).startswith(b"HTTP/1.1 100 ")  # it was let in, and its body is read
            revoke(plane, token)
            connected.sendall(body)
            assert connected.recv(1 << 16).startswith(b"HTTP/1.1 401 ")
        assert plane.client().get("/v1/jobs").json()["jobs"] == []


def _follow(threads: ThreadPoolExecutor, client: httpx2.Client, path: str, **more: Any) -> "Future[None]":
    """Reads until the other side ends it. Returns once it is open."""
    is_open: Future[None] = Future()

    def read() -> None:
        with client.stream("GET", path, timeout=None, **more) as answer:
            is_open.set_result(None)
            assert answer.status_code == 200
            for _ in answer.iter_bytes():
                pass

    reading = threads.submit(read)
    is_open.result(LIMIT_S)
    return reading


@contextmanager
def _exec(plane: ControlPlane, secret: str, job: str) -> "Iterator[subprocess.Popen[bytes]]":
    """`penstock exec` of a program that waits for what is typed; it runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "exec", job, "--", "sh", "-c", "echo there; cat"],
        env=os.environ | {"PENSTOCK_URL": plane.address, "PENSTOCK_TOKEN": secret},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield process


# --- tokens.json of older versions -----------------------------------------------------------------------------------


def older(**more: Any) -> dict[str, Any]:
    """A row of `tokens.json`, as older versions wrote it."""
    usual = {"id": "82fafb8d07be", "digest": sha256(ADMIN.encode()).hexdigest(), "role": "admin"}
    return usual | {"team": "", "expires_at": 0, "revoked": False, "made_by": ""} | more


def test_tokens_of_an_older_version_go_on_working_and_its_file_is_set_aside(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    void = older(id="0123456789ab", digest=sha256(GONE.encode()).hexdigest(), revoked=True)
    (home / "tokens.json").write_text(json.dumps([older(), void]))
    (home / "token").write_text(ADMIN + "\n")
    (home / "token").chmod(0o600)
    with ControlPlane(home) as plane:
        assert (home / "token").read_text() == ADMIN + "\n"
        assert (knows(plane, ADMIN), knows(plane, GONE)) == (True, False)
        assert "Notice: tokens are in the journal now" in plane.words
        assert not (home / "tokens.json").exists()
        assert (home / "tokens.json.imported").exists()
        plane.stop(signal.SIGKILL)
        plane.start()
        assert (knows(plane, ADMIN), knows(plane, GONE)) == (True, False)
        assert plane.words.count("Notice: tokens are in the journal now") == 1


def test_an_older_file_that_comes_back_revives_nobody(tmp_path: Path) -> None:
    """A backup of the home folder is restored, or the start was killed before the file was set aside."""
    home = tmp_path / "home"
    home.mkdir()
    text = json.dumps([older(), older(id="0123456789ab", digest=sha256(GONE.encode()).hexdigest())])
    (home / "tokens.json").write_text(text)
    (home / "token").write_text(ADMIN + "\n")
    with ControlPlane(home) as plane:
        revoke(plane, "0123456789ab")
        plane.stop()
        (home / "tokens.json").write_text(text)
        plane.start()
        assert (knows(plane, ADMIN), knows(plane, GONE)) == (True, False)
        assert sorted(path.name for path in home.glob("tokens.json*")) == [
            "tokens.json.imported",
            "tokens.json.imported.2",
        ]


def _cut(path: Path) -> None:
    path.write_text(json.dumps([older()])[:-20])


def _bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00[]")


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [_cut, _bytes, _folder, _pipe])
def test_a_damaged_file_is_one_sentence_and_stays_as_it_is(damage: Callable[[Path], None], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    damage(home / "tokens.json")
    before = (home / "tokens.json").read_bytes() if (home / "tokens.json").is_file() else b""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "up", "--home", str(home), "--port", "0"],
        capture_output=True, text=True, check=False, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "tokens.json" in done.stderr
    assert done.stderr.count("\n") == 1
    assert ((home / "tokens.json").read_bytes() if before else b"") == before
    assert not (home / "journal.db").exists()
