"""A small S3 server over a folder (versitygw), for tests and demos: checkpoints then travel between sites as they would
through a cloud's object store.

    penstock dev-cluster build --s3-only        # builds it once, with Go, in about two minutes

It is searched on the PATH and in the user's cache folder; without one, folders are copied instead (`FolderStore`).
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from penstock.core.errors import BadInput
from penstock.data.checkpoints import BucketStore

VERSION: Final = "1.8.0"
MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
READY_S: Final = 30
BUCKET: Final = "checkpoints"


def program_path() -> Path | None:
    for path in (cached(), shutil.which("versitygw")):
        if path and Path(path).exists():
            return Path(path)
    return None


def cached() -> Path:
    """Where `penstock dev-cluster build` puts it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock" / f"versitygw-{VERSION}"


class S3Server:
    """One that runs, with one bucket and keys of its own, on this machine only: at its loopback address, and at others
    that its containers see it by."""

    def __init__(self, program: Path, folder: Path, hosts: Sequence[str] = ()) -> None:
        self.program, self.folder, self.hosts = program, folder, ("127.0.0.1", *hosts)
        self.key, self.secret, self.port = "penstock", secrets.token_hex(16), _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        ports = [word for host in self.hosts for word in ("--port", f"{host}:{self.port}")]
        command = [str(self.program), *ports, "posix", str(self.folder)]
        # Keys in the environment: everybody can read a command line.
        env = {**os.environ, "ROOT_ACCESS_KEY": self.key, "ROOT_SECRET_KEY": self.secret}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
        self._wait()
        return self

    def _wait(self) -> None:
        assert self.process is not None
        until = time.monotonic() + READY_S
        while self.process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.__exit__()
        raise BadInput(f"{self.program} did not start; run it by hand to see why.")

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    @property
    def store(self) -> BucketStore:
        return BucketStore(f"s3://{BUCKET}", self.access("127.0.0.1"))

    def access(self, host: str) -> dict[str, str]:
        """As environment variables, for who sees it at this address."""
        return {
            "AWS_ENDPOINT_URL": f"http://{host}:{self.port}",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
