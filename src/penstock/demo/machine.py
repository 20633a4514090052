"""The demo's processes: control plane, CLI commands, and an S3 server if available. `script` and `clusters` use it.

`Machine` starts and ends every process by its pid; none outlives its block.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, Self

from penstock.core.errors import BadInput
from penstock.devcluster import s3_server
from penstock.drivers.local.supervisor import is_locked
from penstock.drivers.records import write

LIMIT_S: Final = 60  #: a process that needs longer is not well
NOTHING: Final[Mapping[str, str]] = {}
SITES: Final = Path(__file__).with_name("sites.yaml")
POLICY: Final = Path(__file__).with_name("policy.yaml")


class Machine:
    def __init__(
        self,
        home: Path,
        sites: Path = SITES,
        hosts: Sequence[str] = (),
        policy: Path = POLICY,
        *,
        checkpoints: bool = True,
    ) -> None:
        """`hosts`: addresses of this machine where its containers look for the S3 server."""
        self.checkpoints = checkpoints
        self.home, self.journal, self.sites, self.hosts = home, home / "journal.db", sites, hosts
        self.policy = policy
        self.plane: subprocess.Popen[str] | None = None
        self.address, self.port, self.kills = "", 0, 0
        # Not the Penstock that the person has otherwise, nor their buckets.
        others = {name: text for name, text in os.environ.items() if not name.startswith(("PENSTOCK_", "AWS_"))}
        self.env = {**others, "PENSTOCK_HOME": str(home)}
        self.stack = ExitStack()
        self.bucket: s3_server.S3Server | None = None  #: where checkpoints pass through, if an S3 server can be had

    def __enter__(self) -> Self:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as begun:  # ^C on the way ends what has begun
            self.log_file = begun.enter_context(open(self.home / "penstock.log", "ab"))
            self._serve_checkpoints(begun)
            self.stack = begun.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.stack:
            self._stop_plane()
            end_all(self.home / "sites")

    def _serve_checkpoints(self, begun: ExitStack) -> None:
        program = s3_server.program_path()
        if not self.checkpoints or program is None or importlib.util.find_spec("obstore") is None:
            return
        self.bucket = begun.enter_context(s3_server.S3Server(program, self.home / "s3", self.hosts))
        store = self.bucket.store
        self.env |= {**store.access, "PENSTOCK_CHECKPOINTS": store.url}

    # --- the control plane -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """`penstock up`, at the same address each time. Returns when it takes submissions."""
        options = ["--home", str(self.home), "--sites", str(self.sites), "--policy", str(self.policy)]
        options += ["--port", str(self.port), "--json"]
        options += ["--trust-teams"]  # the demo's teams are one person's
        self.plane = subprocess.Popen(
            [*COMMAND, "up", *options],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log_file,
            text=True,
            start_new_session=True,  # ^C is for the demo, which ends it in order
        )
        assert self.plane.stdout is not None
        self.address = json.loads(_first_value(self.plane.stdout))["address"]
        self.port = int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """Kills the control plane with SIGKILL, by its pid."""
        assert self.plane is not None
        self.plane.kill()
        if self.plane.wait(LIMIT_S) == -signal.SIGKILL:
            self.kills += 1
        self._close()

    def _stop_plane(self) -> None:
        if self.plane is not None and self.plane.poll() is None:
            self.plane.terminate()
            try:
                self.plane.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.plane.kill()
                self.plane.wait()
        self._close()

    def _close(self) -> None:
        if self.plane is not None and self.plane.stdout is not None:
            self.plane.stdout.close()

    def last_words(self) -> str:
        """The control plane's last errors."""
        log = (self.home / "penstock.log").read_text("utf-8", "replace").strip()
        return f" The control plane last said: {log[-500:]}" if log else ""

    # --- asking it ---------------------------------------------------------------------------------------------------

    def submit(self, job: dict[str, Any]) -> str:
        """Submits through the API and returns the job's id; a `penstock submit` for each would take too long."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"demo-{job['name']}"}
        with self._request("/v1/jobs", json.dumps(job).encode(), headers) as answer:
            return str(json.loads(answer.read())["job"])

    def _request(self, path: str, body: bytes | None = None, headers: Mapping[str, str] = NOTHING) -> Any:
        token = (self.home / "token").read_text("ascii").strip()
        sent = {"Authorization": f"Bearer {token}", **headers}
        request = urllib.request.Request(f"{self.address}{path}", body, sent)
        return _NO_PROXY.open(request, timeout=LIMIT_S)

    def ask(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """What a command prints."""
        done = subprocess.run(
            [*COMMAND, *words], env=self.env, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        if done.returncode not in codes:
            raise BadInput(f"`penstock {' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def log(self, job: str, attempt: str) -> str:
        """What one attempt printed, by the API."""
        text, after, more = b"", 0, True
        while more:
            with self._request(f"/v1/jobs/{job}/log?attempt={attempt}&after={after}") as answer:
                piece = answer.read()
                after = int(answer.headers["Penstock-Next"])
            text, more = text + piece, bool(piece)
        return text.decode()


COMMAND: Final = (sys.executable, "-m", "penstock.cli")
_NO_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _first_value(lines: IO[str]) -> str:
    """The first whole JSON value that is printed."""
    text = ""
    for line in lines:
        text += line
        with contextlib.suppress(ValueError):
            json.loads(text)
            return text
    raise BadInput("The control plane did not start; its log says why (penstock.log in the demo's home).")


# --- what is left ----------------------------------------------------------------------------------------------------


def end_all(sites: Path) -> None:
    """Stop attempts that still run, for example after ^C: tell their supervisors, and wait for them."""
    running = [folder for folder in sites.glob("*/attempts/*") if is_locked(f"{folder}/lock")]
    for folder in running:
        write(f"{folder}/stop.json", {"grace_ms": 0})
    until = time.monotonic() + LIMIT_S
    while any(is_locked(f"{folder}/lock") for folder in running) and time.monotonic() < until:
        time.sleep(0.05)


def still_running(sites: Path) -> Iterator[Path]:
    """Attempts that have a process."""
    return (folder for folder in sites.glob("*/attempts/*") if is_locked(f"{folder}/lock"))
