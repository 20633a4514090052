"""A snapshot is `(job, attempts, reason)` of one row of the journal, whenever it is read. No cluster is needed."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from penstock.core.engine import Step
from penstock.core.ids import job_concerned
from penstock.core.model.types import Origin
from penstock.front import job_follower
from penstock.front.event_recorder import EventRecorder
from penstock.front.home_cluster import HomeCluster
from penstock.front.home_jobs import HomeJobs
from penstock.front.job_follower import JobFollower
from penstock.front.status import JobSnapshot
from penstock.journal.journal import Reader
from penstock.journal.open import open_journal, open_reader
from tests.contract.journals import LEASE, append
from tests.stories.kit import ended, given, lost, nothing, offer, policy, site, started, submitted

JOBS = ("a", "b", "c")


def home(name: str) -> Callable[..., Any]:
    return submitted(name, team="vision", home="lab", origin=Origin("lab", f"u-{name}"))


def story() -> list[Step]:
    """Two home Jobs, of which one bursts and is lost, one that waits, and a request to the API."""
    cloud = offer("cloud", sizes=(8,), sold_by="attempt", limit_gpus=64)
    penstock = given(site("lab", nodes=1), cloud, policy("10m"))
    penstock.hears(home("a"), at="09:00")
    penstock.hears(home("b"), submitted("other"), at="09:01")
    penstock.hears(started("a.1"), at="09:02")
    penstock.hears(nothing, at="09:11")
    penstock.hears(started("b.1"), home("c"), at="09:12")
    penstock.hears(lost("b.1", kept="15m"), at="09:40")
    penstock.hears(ended("a.1"), at="10:00")
    penstock.hears(nothing, at="10:30")
    return penstock.steps


STEPS = story()


class Following:
    """A follower of a real journal, taken through its steps one at a time."""

    def __init__(self, folder: Path) -> None:
        where = str(folder / "journal.db")
        self.journal = open_journal(where)
        self.epoch = self.journal.claim("here", 0, LEASE)
        self.reader: Reader = open_reader(where)
        plane: Any = SimpleNamespace(number=0, clock=SimpleNamespace(now=lambda: 0))
        self.homes = {"lab": HomeJobs(HomeCluster("lab", cast("Any", None)))}
        for name in JOBS:
            self.homes["lab"].remember({"metadata": {"namespace": "n", "name": name, "uid": f"u-{name}"}}, name)
        self.follower = JobFollower(self.homes, plane, self.reader)

    def append(self, steps: Sequence[Step]) -> None:
        append(self.journal, self.epoch, steps)

    def read_page(self) -> tuple[Any, Any]:
        return self.follower._page()

    def close(self) -> None:
        self.reader.close()
        self.journal.close()


@cache
def truth(number: int, name: str) -> JobSnapshot | None:
    """From a journal that ends there."""
    with TemporaryDirectory() as folder:
        made = Following(Path(folder))
        made.append(STEPS[:number])
        followed = made.follower._read(name)
        made.close()
    if followed is None:
        return None
    recorder = EventRecorder(name, "lab", f"u-{name}", "USD")
    for step in STEPS[:number]:
        for event in (*step.inputs, *step.outputs):
            if job_concerned(event) == name:
                recorder.hear(event)
    assert recorder.why == followed[1].why
    return followed[1]


@pytest.mark.parametrize("rows_at_once", [1, 2, 200])
@settings(max_examples=25, deadline=None)
@example(["append"] * 4 + ["page"] + ["append"] * 3 + ["ask a", "ask b", "take"])  # asked for after the page was read
@example(["append"] * 7 + ["ask a", "ask b", "page", "take"])  # asked for before any page was
@drawn(st.lists(st.sampled_from(("append", "page", "take", "ask a", "ask b", "ask c", "drop a")), max_size=40))
def test_every_snapshot_is_of_one_row_and_the_last_of_the_last(rows_at_once: int, doings: list[str]) -> None:
    """However appending, reading a page, taking it up, asking for a job and dropping an ended one come between."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(job_follower, "AT_ONCE", rows_at_once)
        made, page, written = Following(Path(folder)), None, 0
        follower = made.follower
        for doing in (*doings, *["append"] * len(STEPS), *["take", "page"] * (4 * len(STEPS)), "take"):
            match doing.split():
                case ["append"] if written < len(STEPS):
                    made.append(STEPS[written : written + 1])
                    written += 1
                case ["page"] if page is None:
                    page = made.read_page()
                case ["take"] if page is not None:
                    follower._take(*page)
                    page = None
                case ["ask", name]:
                    asyncio.run(follower.snapshot(name))
                case ["drop", name] if (latest := follower.snapshots.get(name)) and latest.job.phase == "done":
                    follower.drop(name)
            for name, snapshot in follower.snapshots.items():
                assert snapshot == truth(snapshot.number, name)
                texts = [line for _, _, line in follower.recorders[name].lines]
                assert len(texts) == len(set(texts)), "a row was heard twice"
        assert not follower.touched
        for name in JOBS:
            newest = asyncio.run(follower.snapshot(name))
            last = truth(len(STEPS), name)
            assert newest is not None
            assert last is not None
            assert (newest.job, newest.attempts, newest.why) == (last.job, last.attempts, last.why)
        made.close()


def test_a_job_with_news_is_named_in_its_doors_queue_and_one_of_the_api_is_nobodys(tmp_path: Path) -> None:
    made = Following(tmp_path)
    due = made.homes["lab"].due
    made.append(STEPS[:3])
    made.follower._take(*made.read_page())
    assert sorted(made.follower.snapshots) == ["a", "b"]
    assert due.named == {"n/a", "n/b"}
    made.close()
