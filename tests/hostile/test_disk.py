"""A job fills the disk that has the journal: it can still be cancelled, and nothing is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.drivers.local.output import KEEP_FREE
from tests.conftest import Part
from tests.hostile.control_plane import ControlPlane, until

pytestmark = pytest.mark.slow
#: Writes until nothing more can be written, and stays.
FILLS = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(file, bytes(100_000))
except OSError:
    time.sleep(600)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip(Part.ROOT)
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m,mode=755", "penstock-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_what_fills_the_disk_can_still_be_cancelled(small_disk: Path) -> None:
    (small_disk / "free-for-all").mkdir(mode=0o777)
    (small_disk / "free-for-all").chmod(0o777)
    filler = small_disk / "free-for-all" / "filler"
    with ControlPlane(small_disk / "home") as plane:
        client = plane.client()
        job = plane.submit(sys.executable, "-c", FILLS, str(filler))

        def refused() -> bool:
            answer = client.post("/v1/jobs", json={"gpus": 1, "command": ["true"]})
            return answer.status_code == 503 and "The disk is nearly full" in answer.json()["detail"]

        until(refused)
        answer = until(lambda: client.post(f"/v1/jobs/{job}/cancel"), lambda answer: answer.status_code == 200)
        assert answer.json()["job"] == job
        assert plane.ended(job)["state"] == "cancelled"
        filler.unlink()
        until(lambda: client.post("/v1/jobs", json={"gpus": 1, "command": ["true"]}).status_code == 201)
        assert "Traceback" not in plane.words


def test_what_a_job_prints_leaves_the_journal_its_room(small_disk: Path) -> None:
    """Its log took the last byte of the disk, the reserve's included: to cancel it was answered 503 from then on."""
    endless = "import os; piece = b'x' * 99_999 + b'\\n'\nwhile True: os.write(1, piece)"
    with ControlPlane(small_disk / "home") as plane:
        client = plane.client()
        job = plane.submit(sys.executable, "-c", endless)
        log = small_disk / "home" / "sites" / "here" / "attempts" / f"{job}.1" / "log"
        until(lambda: log.exists() and b"the disk is nearly full" in _end(log))
        assert shutil.disk_usage(small_disk).free > KEEP_FREE - (8 << 20)
        assert (small_disk / "home" / "reserve").exists()
        other = plane.submit("true")  # new jobs start, and what is there can be cancelled
        assert plane.ended(other)["state"] == "succeeded"
        assert client.post(f"/v1/jobs/{job}/cancel").status_code == 200
        assert plane.ended(job)["state"] == "cancelled"


def _end(file: Path) -> bytes:
    with file.open("rb") as bytes_:
        bytes_.seek(-min(4_096, file.stat().st_size), os.SEEK_END)
        return bytes_.read()
