"""The log of a job: bounded by its own limit, and by what the disk must keep for the journal."""

import os
from pathlib import Path

from penstock.drivers.local.output import KEEP_FREE, JobLog
from penstock.live.space_reserve import SIZE

EVERYTHING = 1 << 62  #: more than any disk has free


def prints(log: JobLog, text: bytes) -> None:
    os.write(log.target, text)
    log.take()


def test_a_log_stops_at_a_disk_that_is_nearly_full_and_says_so_and_what_was_lost(tmp_path: Path) -> None:
    """A log of 256 MB filled the journal's disk up to the last byte, the reserve's included: cancel, pause and revoke
    were then answered 503.
    """
    log = JobLog(str(tmp_path / "log"), 1_000)
    log.keep_free = 0
    prints(log, b"before\n")
    log.keep_free = EVERYTHING
    for _ in range(3):
        prints(log, b"dropped\n")
    log.keep_free = 0
    prints(log, b"after\n")
    assert (tmp_path / "log").read_text().splitlines() == [
        "before",
        "",
        "penstock: the disk is nearly full; what is printed from here on is dropped until there is room",
        "",
        "penstock: 24 bytes could not be written here",
        "after",
    ]


def test_what_a_log_leaves_free_is_enough_for_a_reserve_of_the_journal() -> None:
    assert KEEP_FREE >= SIZE


def test_our_own_words_come_through_where_a_jobs_do_not(tmp_path: Path) -> None:
    log = JobLog(str(tmp_path / "log"), 1_000, keep_free=EVERYTHING)
    log.say("could not start the command")
    assert (tmp_path / "log").read_text() == "penstock: could not start the command\n"


def test_a_log_that_has_reached_its_own_limit_says_so_once(tmp_path: Path) -> None:
    log = JobLog(str(tmp_path / "log"), 10, keep_free=0)
    for _ in range(3):
        prints(log, b"123456")
    assert (tmp_path / "log").read_text() == (
        "1234561234\npenstock: this log has reached its limit of 10 bytes; the rest is dropped\n"
    )
