"""The files that a control plane is given and reads again: one that becomes a pipe, a device or two gigabytes, or whose
file system goes away, is an alarm, and SIGTERM still ends the control plane.
"""

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Part
from tests.hostile.control_plane import ControlPlane, until
from tests.hostile.test_taken_port import penstock

POLICY = "version: 1\n"
SITES = """currency: USD
sites:
  - name: here
    driver: local
    offers: [{name: gpu, term: owned, gpu: A100, gpus_per_node: 4, nodes: 1}]
"""
DETACH, FORCE = 2, 1  # umount2's MNT_DETACH, MNT_FORCE


def alarms(plane: ControlPlane, words: str) -> list[str]:
    """Those with these words, once there is one."""

    def look() -> list[str]:
        return [a["text"] for a in plane.client().get("/v1/status").json()["alarms"] if words in a["text"]]

    found: list[str] = until(look)
    return found


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


@pytest.mark.parametrize("make", [os.mkfifo, endless, large], ids=["pipe", "device", "2 GB"])
def test_a_policy_file_that_is_no_file_any_more_is_an_alarm(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe held the control plane's end up for ever, and what has no end was read into memory every other second."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with ControlPlane(tmp_path / "home", "--policy", str(policy)) as plane:
        policy.rename(tmp_path / "aside")
        make(policy)
        (words,) = alarms(plane, str(policy))
        assert "What it said before stays in force, and a restart needs the file." in words
        assert plane.ended(plane.submit("true"))["state"] == "succeeded"
        assert _memory(plane) < 500 << 20
        began = time.monotonic()
        assert plane.stop() == 0
        assert time.monotonic() - began < 20
        again = penstock(plane.home, "up", "--port", "0", "--policy", str(policy))
        assert (again.returncode, again.stdout) == (2, "")
        assert str(policy) in again.stderr
        assert "Traceback" not in plane.words + again.stderr


def _memory(plane: ControlPlane) -> int:
    assert plane.process is not None
    return int(Path(f"/proc/{plane.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def dead_mount(folder: Path) -> Iterator[None]:
    """A file system over this folder whose server never answers, as that of a machine which is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    try:
        if libc.mount(b"penstock-test", os.fsencode(folder), b"fuse", 0, options):
            pytest.skip(Part.ROOT)
        try:
            yield
        finally:
            libc.umount2(os.fsencode(folder), DETACH | FORCE)
    finally:
        os.close(device)  # whoever still waits gets an error now


@pytest.mark.slow
def test_files_on_a_mount_that_hangs_are_alarms_and_hold_up_no_end(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip(Part.ROOT)
    away = tmp_path / "away"
    away.mkdir()
    files: dict[str, Any] = {"policy": away / "policy.yaml", "sites": away / "sites.yaml", "anchor": away / "anchors"}
    files["policy"].write_text(POLICY)
    files["sites"].write_text(SITES)
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    with ControlPlane(tmp_path / "home", *options) as plane:
        with dead_mount(away):
            assert alarms(plane, f"{files['policy']} could not be read within")
            assert alarms(plane, f"{files['sites']} could not be read within")
            assert plane.ended(plane.submit("true"))["state"] == "succeeded"
            began = time.monotonic()
            assert plane.stop() == 0
            assert time.monotonic() - began < 30
        assert "Traceback" not in plane.words
        plane.start()
        assert plane.ended(plane.submit("true"))["state"] == "succeeded"
