"""A reserve of disk space: given up when the disk is full, made anew when there is room."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.live.space_reserve import SpaceReserve


class Disk:
    """A disk of this many bytes, of which others use some; the reserve counts by its real size."""

    def __init__(self, folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.size, self.used = folder, size, 0
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=self.free))

    @property
    def free(self) -> int:
        own = sum(file.stat().st_blocks * 512 for file in self.folder.iterdir())
        return max(0, self.size - self.used - own)


def test_it_takes_its_space_gives_it_up_at_the_end_and_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reserve = Disk(tmp_path, 10_000_000, monkeypatch), SpaceReserve(tmp_path, 1_000_000)
    reserve.look()
    assert (reserve.is_spent, disk.free < 9_100_000) == (False, True)
    assert reserve.path.stat().st_mode & 0o777 == 0o600
    disk.used = 8_900_000
    reserve.look()
    assert (reserve.is_spent, reserve.path.exists()) == (True, False)
    disk.used = 8_500_000  # a little more room is no reason to begin again
    reserve.look()
    assert reserve.is_spent
    disk.used = 5_000_000
    reserve.look()
    assert (reserve.is_spent, reserve.path.exists()) == (False, True)


def test_a_journal_that_cannot_be_written_frees_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, reserve = Disk(tmp_path, 10_000_000, monkeypatch), SpaceReserve(tmp_path, 1_000_000)
    reserve.look()
    disk.used = 9_000_000
    assert reserve.spend()
    assert reserve.is_spent
    assert disk.free >= 1_000_000
    assert not reserve.spend()


def test_a_disk_that_was_full_from_the_start_is_not_filled_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reserve = Disk(tmp_path, 1_500_000, monkeypatch), SpaceReserve(tmp_path, 1_000_000)
    reserve.look()
    assert (reserve.is_spent, disk.free) == (True, 1_500_000)
