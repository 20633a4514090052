"""Two control planes on one journal, cut at the worst points of the protocol, in front of real API servers."""

import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.pair import Brain, Ground, folded, home_job, leader, rows, until
from penstock.core.model import events as e
from penstock.devcluster import ClusterGroup
from penstock.journal.redecide import redecide
from penstock.kube import annotations
from tests.front.kit import complete
from tests.postgres import Server

pytestmark = pytest.mark.slow
BIG = 4  #: GPUs that only the rented cluster has


class Two:
    def __init__(self, bed: ClusterGroup, where: str, folder: Path) -> None:
        self.ground = Ground(bed, folder, f"-{secrets.token_hex(3)}")
        self.where = where
        self.first, self.second = (Brain(folder / name, where, self.ground.sites) for name in ("a", "b"))

    def completes(self, name: str) -> dict[str, Any]:
        def done() -> dict[str, Any] | None:
            job = self.ground.home(name)
            return job if complete(job) else None

        completed: dict[str, Any] = until(done, f"{name} is complete")
        return completed

    def leads(self, brain: Brain) -> bool:
        return leader(self.where, [self.first, self.second]) is brain

    def ran_once(self, attempt: str) -> None:
        """In the clusters, in the journal, and in the books."""
        (execution,) = self.ground.executions()
        assert execution["metadata"]["annotations"][annotations.ATTEMPT] == attempt
        (pod,) = self.ground.pods()
        assert pod["status"]["phase"] == "Succeeded"
        self.adds_up([attempt])

    def adds_up(self, attempts: list[str]) -> None:
        events = [event for row in rows(self.where) for event in (*row.inputs, *row.outputs)]
        assert [event.attempt for event in events if isinstance(event, e.StartPromised)] == attempts
        until(lambda: not folded(self.where).state.ledger.leases, "nothing is held any more")
        assert redecide(rows(self.where), 1).different == 0


@pytest.fixture
def two(two_clusters: ClusterGroup, database: Server, tmp_path: Path) -> Iterator[Two]:
    made = Two(two_clusters, database.new_database(), tmp_path)
    yield made
    made.first.end()
    made.second.end()


def test_row_2_killed_between_hold_and_create_its_standby_starts_it_once(two: Two) -> None:
    two.first.start(points=1, at="before create jobs")
    two.ground.apply(home_job("train", BIG))
    assert two.first.ended() == -signal.SIGKILL
    assert len(folded(two.where).state.ledger.leases) == 1
    assert two.ground.executions() == []
    two.second.start()
    two.completes("train")
    two.ran_once("j0.1")


def test_row_3_killed_between_create_and_recording_its_standby_adopts_what_is_there(two: Two) -> None:
    two.first.start(points=1, at="after create jobs")
    two.ground.apply(home_job("train", BIG, runs="3s"))
    assert two.first.ended() == -signal.SIGKILL
    (before,) = two.ground.executions()
    two.second.start()
    two.completes("train")
    two.ran_once("j0.1")
    (after,) = two.ground.executions()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_row_6_a_leader_that_sleeps_through_its_lease_wakes_up_to_change_nothing(two: Two) -> None:
    """It is stopped between bind and create; its standby makes the Job; then it wakes up and makes it again."""
    two.first.start(points=1, at="before create jobs", signal="STOP")
    two.ground.apply(home_job("train", BIG, runs="4s"))
    until(lambda: two.first.stands_still, "the leader is stopped")
    two.second.start()
    (made,) = until(two.ground.executions, "its standby makes the Job")
    assert two.leads(two.second)
    two.first.signal(signal.SIGCONT)
    assert two.first.ended() == 2
    assert "this writer must stop" in two.first.words
    two.completes("train")
    two.ran_once("j0.1")
    (execution,) = two.ground.executions()
    assert execution["metadata"]["uid"] == made["metadata"]["uid"]


def test_row_26_what_was_cancelled_while_the_leader_slept_is_not_started_when_it_wakes_up(two: Two) -> None:
    two.first.start(points=1, at="before create jobs", signal="STOP")
    two.ground.apply(home_job("train", BIG, runs="1m"))
    until(lambda: two.first.stands_still, "the leader is stopped")
    two.ground.lab.kubectl("delete", "job", "train", "-n", two.ground.people, "--wait=false")
    two.second.start()
    until(lambda: "j0" not in folded(two.where).state.jobs, "the job is cancelled")
    two.first.signal(signal.SIGCONT)
    assert two.first.ended() == 2
    (stone,) = two.ground.executions()
    assert stone["spec"]["parallelism"] == 0
    assert two.ground.pods() == []
    two.adds_up(["j0.1"])


def test_row_6_a_leader_stopped_in_the_middle_of_a_row_does_not_end_its_standby(two: Two) -> None:
    """Once it did: it held the database's lock, and of what is sent together the server has no timeout. Nobody could
    write for as long as it was stopped, and the standby gave up."""
    two.first.start(points=5, at="before writing", signal="STOP")
    until(lambda: two.leads(two.first), "the first leads")
    two.second.start()
    until((two.second.home / "token").exists, "the second stands by")
    for number in range(3):  # a row each at least: submitted, started, ended
        two.ground.apply(home_job(f"train-{number}", BIG))
    until(lambda: two.first.stands_still, "the leader is stopped")
    until(lambda: two.leads(two.second), "its standby leads")
    two.first.signal(signal.SIGCONT)
    assert two.first.ended() == 2
    for number in range(3):
        two.completes(f"train-{number}")
    assert [pod["status"]["phase"] for pod in two.ground.pods()] == ["Succeeded"] * 3
    two.adds_up(["j0.1", "j1.1", "j2.1"])
