"""A file system that does not answer holds nobody; a file that is none is refused before anybody waits for it."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.errors import BadInput
from penstock.live.mount_calls import FollowedFile, MountCalls
from tests.awaiting import story


@story
async def test_a_call_that_hangs_is_given_up_and_the_next_one_waits_for_it() -> None:
    """Each look at the file would have left a thread behind, every other second."""
    calls, answers, done = MountCalls(0.05), threading.Event(), list[int]()
    with pytest.raises(TimeoutError):
        await calls.call(answers.wait)
    threads = threading.active_count()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await calls.call(lambda: done.append(1))
    assert threading.active_count() == threads
    assert done == []
    answers.set()
    calls.patience_seconds = 10
    assert await calls.call(lambda: "there again") == "there again"


@story
async def test_what_a_call_raises_is_raised_where_it_was_called() -> None:
    with pytest.raises(FileNotFoundError):
        await MountCalls().call(lambda: os.stat("/nowhere"))


def test_a_call_that_hangs_does_not_keep_the_process() -> None:
    """The loop's own threads are waited for at the end of a process: SIGTERM did not end the control plane."""
    program = """
import asyncio, threading
from penstock.live.mount_calls import MountCalls
async def main():
    try:
        await MountCalls(0.05).call(threading.Event().wait)
    except TimeoutError:
        print("given up")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "given up\n"


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)  # without a block of its own


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "is no plain file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no plain file"),
        (lambda path: path.mkdir(), "cannot be read"),
        (lambda path: path.symlink_to("/proc/self/mem"), "cannot be read"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (large, "has more than 1,000 bytes"),
    ],
)
@story
async def test_what_is_no_file_of_a_few_bytes_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    """A FIFO was waited for for ever, and 2 GB were read every other second."""
    make(tmp_path / "policy.yaml")
    file = FollowedFile(str(tmp_path / "policy.yaml"), 1_000)
    with pytest.raises(BadInput, match=why):
        await file.read()
    assert (await file.look(), file.trouble) == (None, "")  # an editor may be replacing it
    assert await file.look() is None
    assert why in file.trouble
    (tmp_path / "policy.yaml").rename(tmp_path / "other")
    (tmp_path / "policy.yaml").write_text("version: 1")
    assert (await file.look(), file.trouble) == (b"version: 1", "")
