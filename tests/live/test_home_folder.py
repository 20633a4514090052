"""The home folder is its owner's alone, whoever made it, and nobody's locks are lost on the way."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.errors import BadInput
from penstock.live.home_folder import close_file, make_home

LOCKED = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [0o777, 0o755, 0o750, 0o701, 0o700])
def test_a_home_that_others_may_enter_is_closed_with_its_files(tmp_path: Path, before: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("journal.db", "tokens.json"):
        (home / name).touch()
        (home / name).chmod(0o666)
    home.chmod(before)
    make_home(home)
    assert [mode(path) for path in (home, *home.iterdir())] == [0o700, 0o600, 0o600]


def test_a_new_home_is_closed_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_home(tmp_path / "above" / "home")
    finally:
        os.umask(before)
    assert mode(tmp_path / "above" / "home") == 0o700


@pytest.mark.parametrize("name", ["thesis.txt", ".profile"])
def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    tmp_path.chmod(0o755)
    with pytest.raises(BadInput, match="chmod 700"):
        make_home(tmp_path)
    assert mode(tmp_path) == 0o755
    tmp_path.chmod(0o700)
    make_home(tmp_path)


def test_a_folder_of_another_user_is_refused() -> None:
    with pytest.raises(BadInput, match="--home"):
        make_home(Path("/tmp") if os.geteuid() == 0 else Path("/"))


def test_a_link_in_the_home_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o644)
    home = tmp_path / "home"
    make_home(home)
    (home / "token").symlink_to(tmp_path / "open")
    os.mkfifo(home / "address")
    make_home(home)
    assert mode(tmp_path / "open") == 0o644


def test_closing_a_file_to_others_keeps_our_locks_on_it(tmp_path: Path) -> None:
    """It was opened and closed for that, so SQLite's locks were gone, and the next reader ended the control plane."""
    path = tmp_path / "journal.db"
    path.touch()
    path.chmod(0o644)
    with path.open("r+") as ours:
        fcntl.lockf(ours, fcntl.LOCK_EX)
        close_file(path)
        done = subprocess.run([sys.executable, "-c", LOCKED, str(path)], capture_output=True, check=False)
        assert b"BlockingIOError" in done.stderr
    assert mode(path) == 0o600
