"""The kit itself: a control plane under attack can be killed, started again, and asked who it is."""

import signal
import sys
from pathlib import Path

from tests.hostile.control_plane import ControlPlane


def test_it_lives_twice_and_keeps_its_jobs(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        member = plane.client(plane.token("member", "vision"))
        name = plane.submit(sys.executable, "-c", "print('hello')", client=member, team="vision")
        assert plane.ended(name)["state"] == "succeeded"
        assert plane.stop(signal.SIGKILL) == -signal.SIGKILL
        plane.start()
        assert plane.job(name)["state"] == "succeeded"
        assert "Traceback" not in plane.words
