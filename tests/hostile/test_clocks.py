"""Wall clocks that are wrong for seconds, at a start, or in another zone, against a real control plane."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from penstock.core.model.events import PeriodOpened
from penstock.journal.open import read
from tests.hostile.control_plane import ControlPlane, until

DAY_S: Final = 86_400
#: Every Python process that finds this on its path has a wall clock that a file sets.
WRONG_CLOCK: Final = """
import time
from pathlib import Path
true, file = time.time, Path({file!r})
time.time = lambda: true() + float(file.read_text() or 0)
"""


class Wrong(ControlPlane):
    """A control plane whose wall clock `ahead` sets, in days. Its machine's boot clock is right."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.file = folder / "ahead"
        self.ahead(0)
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK.format(file=str(self.file)))
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        super().__init__(folder / "home", env={"PYTHONPATH": path}, **more)

    def ahead(self, days: float) -> None:
        new = self.file.with_name("ahead.new")
        new.write_text(str(days * DAY_S))
        new.replace(self.file)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.client().get("/v1/status").json()
        return status

    def alarms(self) -> list[str]:
        """Of a clock that is wrong now; the journal's alarms tell of jumps that are over."""
        texts = [alarm["text"] for alarm in self.status()["alarms"] if alarm["kind"] == "clock"]
        return [text for text in texts if "set it" in text]

    def periods(self) -> list[PeriodOpened]:
        rows = read(str(self.home / "journal.db"))
        return [fact for row in rows for fact in row.inputs if isinstance(fact, PeriodOpened)]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Wrong]:
    with Wrong(tmp_path) as control_plane:
        yield control_plane


def this_month() -> set[str]:
    """Also the one before: a test may run while a month ends."""
    now = datetime.now(UTC)
    return {f"{day:%Y-%m}" for day in (now, now - timedelta(minutes=10))}


def is_now(at_ms: int) -> bool:
    return abs(at_ms / 1000 - datetime.now(UTC).timestamp()) < DAY_S


def test_a_wall_clock_forty_days_ahead_for_seconds_leaves_the_books_in_their_month(plane: Wrong) -> None:
    """The plane followed at once: for forty days all that ran was booked to another month, with its own budget."""
    opened = plane.periods()
    plane.ahead(40)
    name = plane.submit("true")  # what is asked meanwhile is done
    (text,) = until(plane.alarms)
    assert "jumped 960 h ahead and this machine did not sleep" in text
    assert plane.status()["period"] in this_month()
    plane.ahead(0)
    until(plane.alarms, lambda texts: texts == [])
    assert plane.ended(name)["state"] == "succeeded"
    plane.stop()
    plane.start()
    assert plane.status()["period"] in this_month()
    assert is_now(plane.status()["at"])
    assert plane.periods() == opened


@pytest.mark.slow
def test_a_start_with_a_wrong_clock_goes_by_the_boot_clock(plane: Wrong) -> None:
    for days in (40, 3, -40):
        plane.stop()
        plane.ahead(days)
        plane.start()
        assert len(plane.alarms()) == 1
        plane.submit("true")
        assert is_now(plane.status()["at"])
        assert plane.status()["period"] in this_month()
        plane.ahead(0)
        until(plane.alarms, lambda texts: texts == [])
    plane.stop()
    plane.start()
    plane.submit("true")
    assert (is_now(plane.status()["at"]), plane.alarms()) == (True, [])


def test_a_clock_far_ahead_of_the_journal_on_another_boot_needs_a_persons_word(plane: Wrong) -> None:
    plane.stop()
    (plane.home / "clock.json").unlink()
    plane.ahead(40)
    with pytest.raises(AssertionError, match=r"ended with 2: [^!]*40 days ahead of the journal's last row"):
        plane.start()
    plane.stop()
    plane.start("--accept-clock")
    plane.submit("true")
    until(lambda: not is_now(plane.status()["at"]))  # the status follows the journal, a moment later
    assert plane.alarms() == []
    plane.ahead(0)  # and back: time never falls
    before = plane.status()["at"]
    plane.submit("true")
    until(lambda: plane.status()["at"] > before)
    assert "Traceback" not in plane.words


@pytest.mark.slow
def test_a_changed_time_zone_never_overlaps_months(tmp_path: Path) -> None:
    def sites(zone: str) -> dict[str, Any]:
        offer = {"name": "own", "gpu": "any", "term": "owned", "gpus_per_node": 1, "nodes": 1}
        return {"sites": [{"name": "here", "driver": "local", "offers": [offer]}], "time_zone": zone}

    with Wrong(tmp_path, sites=sites("UTC")) as plane:
        for days, zone in ((40, "Pacific/Kiritimati"), (80, "Pacific/Pago_Pago"), (120, "Europe/Berlin")):
            plane.stop()
            plane.ahead(days)
            plane.home.with_name("home-sites.yaml").write_text(yaml.safe_dump(sites(zone)))
            plane.start("--accept-clock")
            plane.submit("true")
        periods = plane.periods()
        assert len(periods) >= 5
        assert all(earlier.ends_at == other.starts_at for earlier, other in pairwise(periods))
        assert len({period.period for period in periods}) == len(periods)


@pytest.mark.slow
def test_the_note_of_the_time_is_private_and_damage_to_it_is_survived(plane: Wrong) -> None:
    note = plane.home / "clock.json"
    assert (note.stat().st_mode & 0o077, sorted(json.loads(note.read_text()))) == (0, ["at", "boot", "boot_s"])
    for damage in ("", "{}", "x" * 100_000, json.dumps({"boot": "other", "boot_s": -1e300, "at": 10**400})):
        plane.stop()
        note.write_text(damage)
        plane.start()
        plane.submit("true")
        assert is_now(plane.status()["at"])
    done = subprocess.run([sys.executable, "-m", "penstock.cli", "up", "--help"], capture_output=True, check=True)
    assert b"--accept-clock" in done.stdout
