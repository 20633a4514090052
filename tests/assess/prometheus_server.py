"""A real Prometheus server on loopback with samples of our own: Debian's, or any on the PATH. Under
PENSTOCK_REQUIRE_ALL=1 it is unpacked where it is missing; otherwise its tests are skipped.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests import debian
from tests.awaiting import LIMIT_S
from tests.conftest import REQUIRE_ALL, Part

CONFIG = "global: {scrape_interval: 1h}\n"
TRIES = 3  #: somebody else may take the port between our look and the server's start


def programs_or_skip(folder: Path) -> Path:
    """The folder of `prometheus` and `promtool`."""
    if on_path := shutil.which("promtool"):
        return Path(on_path).parent
    if REQUIRE_ALL and debian.unpack("prometheus", folder):
        return folder / "usr/bin"
    pytest.skip(Part.PROMETHEUS)


@contextmanager
def prometheus(programs: Path, folder: Path, metrics: str) -> Iterator[str]:
    """Yields the server's address. `metrics`: OpenMetrics with timestamps."""
    (folder / "metrics.txt").write_text(metrics)
    (folder / "prometheus.yml").write_text(CONFIG)
    blocks = [str(programs / "promtool"), "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=744h"]
    subprocess.run([*blocks, "metrics.txt", "data"], cwd=folder, check=True, capture_output=True, timeout=120)
    for _ in range(TRIES):
        process, url = _start(programs, folder)
        try:
            if _is_ready(process, url):
                yield url
                return
        finally:
            process.terminate()
            process.wait(timeout=60)
    raise RuntimeError((folder / "log.txt").read_text()[-1000:])


def _start(programs: Path, folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with (folder / "log.txt").open("wb") as log:
        started = subprocess.Popen(
            [
                programs / "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={address}",
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    return started, f"http://{address}"


def _is_ready(process: "subprocess.Popen[bytes]", url: str) -> bool:
    """Until it serves, or has ended because its port was taken."""
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        try:
            if httpx2.get(f"{url}/-/ready").status_code == 200:
                return True
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    return False
