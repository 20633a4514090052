"""docs/operations.md lists all that a control plane keeps in its home folder: what is there and in no list, nobody
copies to a standby, and nobody asks what becomes of it when another one takes over."""

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.hostile.control_plane import ControlPlane

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def listed(heading: str) -> set[str]:
    """The names in the first column of the table below this line."""
    table = PAGE.partition(heading)[2].partition("\n\n")[2].partition("\n\n")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    return {name for cell in first for name in re.findall(r"`([\w.]+)`", cell)}


def test_a_home_folder_has_nothing_that_is_not_listed(tmp_path: Path) -> None:
    """That a cluster was being left was kept there, in a file that no page named: its standby did not know."""
    names = listed("In the home folder of `penstock up`:")
    with ControlPlane(tmp_path / "home") as plane:
        plane.ended(plane.submit("true"))
        assert plane.stop() == 0
        there = {
            path.name.removesuffix("-lock").removesuffix("-wal").removesuffix("-shm") for path in plane.home.iterdir()
        }
    assert there - names == set()
    assert {"journal.db", "head.json", "token", "sites"} <= there


def test_each_of_them_says_what_a_standby_does_without_it() -> None:
    older = {"tokens.json", "audit.log", "leaving"}
    assert listed("In the home folder of `penstock up`:") - older - {"journal.db"} <= listed("**Two control planes.**")
