"""A real `penstock up` for hostile tests: a process of its own that may be attacked, killed and started again."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import httpx2
import yaml

from tests.conftest import ROOT
from tests.hostile.mistakes import VARIABLE

LIMIT_S: Final = 60  #: a wait that takes longer has failed
ENDED: Final = ("succeeded", "failed", "cancelled", "refused")


class ControlPlane:
    """One home folder and its control plane, in as many lives as a test needs. A context manager: it leaves nothing
    behind."""

    def __init__(
        self,
        home: Path,
        *options: str,
        sites: str | Mapping[str, Any] = "",
        env: Mapping[str, str] | None = None,
        trust_teams: bool = True,
        by: Sequence[str] = (),
        umask: int = -1,
    ) -> None:
        """`trust_teams`: jobs run as the test's own user, whatever team's, so that they can run its Python. `by`: a
        command that starts the command that follows it. `umask`: of the control plane.
        """
        self.home, self.options, self.env = home, list(options), dict(env or {})
        self.by, self.umask = list(by), umask
        self.options += ["--trust-teams"] if trust_teams else []
        self.address, self.token_file, self.clients = "", "", list[httpx2.Client]()
        self.process: subprocess.Popen[str] | None = None
        home.mkdir(exist_ok=True)
        if sites:
            file = home.with_name(home.name + "-sites.yaml")
            file.write_text(sites if isinstance(sites, str) else yaml.safe_dump(dict(sites)))
            self.options += ["--sites", str(file)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        self.stop()

    def start(self, *more: str) -> None:
        """Returns once it answers; raises with its own words if it ends instead."""
        program = "tests.hostile.mistakes" if VARIABLE in os.environ else "penstock.cli"
        command = [sys.executable, "-m", program, "up", "--home", str(self.home), "--port", "0", "--json"]
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [*self.by, *command, *self.options, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=os.environ | {"PENSTOCK_HOME": str(self.home)} | self.env,
                umask=self.umask,
            )
        with self._killed_if_late() as process:
            assert process.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                line = process.stdout.readline()
                if not line:
                    raise AssertionError(f"penstock up ended with {process.wait()}: {self.words}")
                text += line
        announced = json.loads(text)
        self.address, self.token_file = announced["address"], announced["token_file"]

    @contextmanager
    def _killed_if_late(self) -> Iterator[subprocess.Popen[str]]:
        assert self.process is not None
        timer = threading.Timer(LIMIT_S, self.process.kill)
        timer.start()
        try:
            yield self.process
        finally:
            timer.cancel()

    @property
    def errors(self) -> Path:
        return self.home.with_name(self.home.name + "-stderr")

    @property
    def words(self) -> str:
        """All that its lives wrote to stderr."""
        return self.errors.read_text()

    def stop(self, by: int = signal.SIGTERM) -> int:
        """End it and return its exit code: SIGTERM as an operator does, SIGKILL as a bad day does."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(by)
        code = process.wait(LIMIT_S)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def client(self, secret: str | None = None) -> httpx2.Client:
        """A client with this token; None: the admin's. Closed with the control plane. For HTTP only: to read the
        authorities that HTTPS would need takes longer than a request, and tests ask again and again."""
        secret = Path(self.token_file).read_text().strip() if secret is None else secret
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        client = httpx2.Client(base_url=self.address, headers=headers, timeout=LIMIT_S, trust_env=False, verify=False)
        self.clients.append(client)
        return client

    def token(self, role: str = "member", team: str = "") -> str:
        """The secret of a new token."""
        answer = self.client().post("/v1/tokens", json={"role": role, "team": team})
        answer.raise_for_status()
        return str(answer.json()["secret"])

    def submit(self, *command: str, client: httpx2.Client | None = None, **more: Any) -> str:
        answer = (client or self.client()).post("/v1/jobs", json={"gpus": 1, "command": list(command), **more})
        answer.raise_for_status()
        return str(answer.json()["job"])

    def job(self, name: str) -> dict[str, Any]:
        job: dict[str, Any] = self.client().get(f"/v1/jobs/{name}").json()
        return job

    def ended(self, name: str) -> dict[str, Any]:
        """The job, once it has ended."""
        client = self.client()
        ended: dict[str, Any] = until(lambda: client.get(f"/v1/jobs/{name}").json(), lambda job: job["state"] in ENDED)
        return ended


def until(look: Callable[[], Any], good: Callable[[Any], bool] = bool) -> Any:
    """What `look` returns once it is good. Over the network there is nothing to await."""
    deadline = time.monotonic() + LIMIT_S
    while not good(answer := look()):
        assert time.monotonic() < deadline, f"still {answer!r} after {LIMIT_S} s"
        time.sleep(0.05)
    return answer
