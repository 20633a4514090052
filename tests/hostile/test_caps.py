"""A cap only a person raises: crashes and starts, with a sites file that says more, against a real control plane."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.hostile.control_plane import ControlPlane, until

UNIT: Final = 1_000_000


def sites(*caps: dict[str, Any]) -> dict[str, Any]:
    offer = {"name": "rent", "gpu": "H100", "gpus_per_node": 1, "price": {"list": 1}, "billing_step": "1s"}
    return {"sites": [{"name": "here", "driver": "local", "offers": [offer]}], "caps": list(caps)}


def rewrite(plane: ControlPlane, *caps: dict[str, Any]) -> None:
    plane.home.with_name("home-sites.yaml").write_text(yaml.safe_dump(sites(*caps)))


def cap_of(plane: ControlPlane, scope: str = "org", key: str = "cap") -> int | None:
    rows = plane.client().get("/v1/budget").json()["scopes"]
    cap: int | None = next((row[key] for row in rows if row["scope"] == scope), None)
    return cap


def alarms(plane: ControlPlane) -> list[str]:
    return [alarm["text"] for alarm in plane.client().get("/v1/status").json()["alarms"] if alarm["kind"] == "cap"]


def penstock(plane: ControlPlane, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *command],
        env={**plane.env, "PENSTOCK_HOME": str(plane.home), "PYTHONPATH": ":".join(sys.path), "PATH": ""},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    return ControlPlane(tmp_path / "home", sites=sites({"scope": "org", "per_month": 5_000}))


def test_a_cap_that_a_person_set_to_zero_survives_a_crash_and_a_start(plane: ControlPlane) -> None:
    """The file's $5,000 were back after the start, and a job was placed."""
    with plane:
        assert cap_of(plane) == 5_000 * UNIT
        result = penstock(plane, "budget", "--set", "org=0")
        assert result.returncode == 0, result.stderr
        for by in (signal.SIGKILL, signal.SIGTERM):
            plane.stop(by)
            plane.start()
            assert cap_of(plane) == 0
            assert alarms(plane) == []  # the file says what it said
        name = plane.submit("true")
        waits = until(lambda: plane.job(name), lambda job: bool(job["because"]))
        assert (waits["state"], waits["because"]["kind"]) == ("queued", "CapBinds")


def test_a_file_that_raises_a_cap_is_named_and_needs_a_flag(plane: ControlPlane) -> None:
    with plane:
        plane.client().put("/v1/budget", json={"scope": "org", "per_month": 10 * UNIT}).raise_for_status()
        plane.stop(signal.SIGKILL)
        rewrite(plane, {"scope": "org", "per_month": 6_000})
        plane.start()
        assert cap_of(plane) == 10 * UNIT
        (text,) = alarms(plane)
        assert "$6,000.00 a month for org. $10.00 a month stays in force until a person approves it" in text
        assert text in plane.words
        result = penstock(plane, "doctor")
        assert (result.returncode, "--accept-raised-caps" in result.stdout) == (1, True)
        plane.stop()
        plane.start("--accept-raised-caps")
        assert (cap_of(plane), alarms(plane)) == (6_000 * UNIT, [])
        plane.stop()
        plane.start()
        assert (cap_of(plane), alarms(plane)) == (6_000 * UNIT, [])


def test_a_cap_that_leaves_the_file_stays_in_force_until_a_person_accepts_it(plane: ControlPlane) -> None:
    with plane:
        plane.stop()
        rewrite(plane)
        plane.start()
        assert cap_of(plane) == 5_000 * UNIT
        assert "says no cap for org" in alarms(plane)[0]
        plane.stop()
        plane.start("--accept-raised-caps")
        assert (cap_of(plane), alarms(plane)) == (None, [])


def test_a_file_that_lowers_a_cap_is_followed_at_once_also_if_it_raises_the_other(plane: ControlPlane) -> None:
    with plane:
        plane.client().put("/v1/budget", json={"scope": "org", "per_month": 5_000 * UNIT, "per_hour": 3 * UNIT})
        plane.stop()
        rewrite(plane, {"scope": "org", "per_month": 100, "per_hour": 7})
        plane.start()
        assert (cap_of(plane), cap_of(plane, key="cap_per_hour")) == (100 * UNIT, 3 * UNIT)
        assert len(alarms(plane)) == 1
        plane.client().put("/v1/budget", json={"scope": "org", "per_month": 100 * UNIT, "per_hour": 7 * UNIT})
        until(lambda: alarms(plane), lambda texts: texts == [])  # a person has raised it


def test_soft_caps_and_caps_that_bind_nobody_are_said_at_start_and_by_the_doctor(tmp_path: Path) -> None:
    file = sites({"scope": "org", "per_month": 5}, {"scope": "team:vision lab", "per_month": 5})
    with ControlPlane(tmp_path / "home", sites=file) as plane:
        assert "here/rent has no guarantee: a cap holds there only while Penstock runs." in plane.words
        assert "The cap of 'team:vision lab' binds nobody" in plane.words
        stdout = penstock(plane, "doctor").stdout
        assert "soft at here/rent: nothing there ends without Penstock" in stdout
        assert "BAD  cap        team:vision lab binds nobody: no team can have this name" in stdout
