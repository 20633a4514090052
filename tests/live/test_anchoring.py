"""The journal's head goes elsewhere on a schedule, and a file that cannot be written is an alarm and no end."""

import asyncio
import json
from pathlib import Path

from penstock.core.units import MINUTE
from penstock.live.anchoring import EVERY_STEPS, Anchoring
from tests.live.memory import MemoryJournal


class Told:
    def __init__(self, file: Path) -> None:
        self.at, self.head, self.alarms, self.file = 0, "", dict[str, str](), file
        self.journal = MemoryJournal()
        self.anchoring = Anchoring([str(file)], self.journal, lambda: self.head, lambda: self.at, self.alarm)

    def alarm(self, kind: str, about: str, text: str) -> None:  # noqa: ARG002 - as alarms are told
        self.alarms[about] = text

    def after(self, minutes: int, head: str) -> list[str]:
        """The heads that are anchored when so much time has passed and this is the head."""
        self.at, self.head = self.at + minutes * MINUTE, head
        if self.anchoring._is_due():
            asyncio.run(self.anchoring.write())
        return [json.loads(line)["head"] for line in self.file.read_text().splitlines()] if self.file.exists() else []


def test_after_ten_minutes_or_many_steps_and_only_if_there_is_something_new(tmp_path: Path) -> None:
    anchors = Told(tmp_path / "anchors")
    assert anchors.after(60, "") == []
    assert anchors.after(0, "1:aa") == ["1:aa"]
    assert anchors.after(9, "2:bb") == ["1:aa"]
    assert anchors.after(1, "3:cc") == ["1:aa", "3:cc"]
    assert anchors.after(60, "3:cc") == ["1:aa", "3:cc"]
    assert anchors.after(10, "4:dd")[2:] == ["4:dd"]
    assert anchors.after(1, f"{3 + EVERY_STEPS}:ee")[3:] == []
    assert anchors.after(1, f"{4 + EVERY_STEPS}:ff")[3:] == [f"{4 + EVERY_STEPS}:ff"]


def test_a_file_that_cannot_be_written_is_an_alarm_until_it_can(tmp_path: Path) -> None:
    anchors = Told(tmp_path / "folder" / "anchors")
    anchors.after(10, "1:aa")
    assert "could not be anchored" in anchors.alarms[f"anchor {anchors.file}"]
    anchors.file.parent.mkdir()
    assert anchors.after(10, "2:bb") == ["2:bb"]
    assert anchors.alarms[f"anchor {anchors.file}"] == ""


def test_a_file_that_somebody_has_emptied_is_an_alarm_and_a_start_says_that_it_begins(tmp_path: Path) -> None:
    """It was begun anew in silence: whoever rewrote the journal had only to empty the file as well."""
    anchors = Told(tmp_path / "anchors")
    assert anchors.anchoring.check() == []  # nothing was ever written
    anchors.after(10, "1:aa")
    anchors.after(10, "2:bb")
    assert f"anchor {anchors.file} shrank" not in anchors.alarms
    anchors.file.write_text("")
    anchors.after(10, "3:cc")
    assert "somebody has emptied, cut or replaced it" in anchors.alarms[f"anchor {anchors.file} shrank"]
    for gone in (lambda: anchors.file.write_text(""), anchors.file.unlink):
        gone()
        again = Told(anchors.file)
        again.journal.rows = [(number, 0, b"", b"", 0) for number in (1, 2, 3)]
        (words,) = again.anchoring.check()
        assert f"{anchors.file} has no anchors, and the journal has 3 steps" in words
