"""The kill bench on clusters in small, and what its witness finds.

`python -m bench.kill_kube --kills 100` and `--mutate` are the whole of it.
"""

from typing import Any

import pytest

from bench import kill_kube, kube_mistakes
from bench.kube_witness import Witness
from bench.pair import LABEL
from penstock.devcluster import programs
from penstock.front.status import binding
from penstock.kube import annotations
from penstock.kube.client import JOBS, NODES, PODS
from tests import postgres
from tests.conftest import Part


class Seen(Witness):
    """A witness who is told what happened, change by change."""

    revision = 0

    def sees(self, what: dict[str, Any], gone: bool = False) -> None:
        self.revision += 1
        what["metadata"]["resourceVersion"] = str(self.revision)
        self.hear(PODS if "containers" in what["spec"] else JOBS, "DELETED" if gone else "MODIFIED", what)

    def pod(self, attempt: str, phase: str, name: str = "", *, terminating: bool = False) -> None:
        name = name or f"pod-{attempt}"
        state = {"startedAt": "2026-11-16T10:00:00Z"} if phase != "Pending" else {}
        ending = {"deletionTimestamp": "2026-11-16T10:00:05Z"} if terminating else {}
        self.sees(
            {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "labels": {LABEL: "train", annotations.EXECUTION: "e"},
                    **ending,
                },
                "spec": {
                    "nodeName": "east-gpu-0",
                    "containers": [{"env": [{"name": "PENSTOCK_ATTEMPT", "value": attempt}]}],
                },
                "status": {"phase": phase, "containerStatuses": [{"state": {"running": state} if state else {}}]},
            }
        )

    def loses(self, node: str) -> None:
        self.revision += 1
        self.hear(NODES, "DELETED", {"metadata": {"name": node, "resourceVersion": str(self.revision)}})

    def execution(self, attempt: str) -> None:
        labels = {LABEL: "train", annotations.EXECUTION: "e"}
        self.sees(
            {
                "metadata": {
                    "name": attempt,
                    "uid": attempt,
                    "labels": labels,
                    "annotations": {annotations.ATTEMPT: attempt},
                },
                "spec": {},
            }
        )

    def bound(self, attempt: str) -> None:
        marks = {annotations.BINDING: binding(attempt, "east/rented")}
        self.sees(
            {"metadata": {"name": "train", "uid": "u", "labels": {LABEL: "train"}, "annotations": marks}, "spec": {}}
        )


@pytest.fixture
def witness() -> Seen:
    return Seen()


def test_one_attempt_after_the_other_is_as_it_should_be(witness: Seen) -> None:
    for attempt, end in (("j0.1", "Failed"), ("j0.2", "Succeeded")):
        witness.bound(attempt)
        witness.execution(attempt)
        for phase in ("Pending", "Running", end):
            witness.pod(attempt, phase)
    assert list(witness.doubled()) == []
    assert witness.succeeded("train") == 1


def test_two_pods_of_one_home_job_at_once_are_found(witness: Seen) -> None:
    witness.pod("j0.1", "Running")
    witness.pod("j0.2", "Running")
    witness.pod("j0.1", "Failed")
    assert list(witness.doubled()) == ["j0.1 and j0.2 of train ran at once"]


def test_what_runs_again_though_it_succeeded_or_twice_in_one_attempt_is_found(witness: Seen) -> None:
    for name, end in (("a", "Failed"), ("b", "Succeeded"), ("c", "Failed")):
        witness.pod("j0.1", "Running", name)
        witness.pod("j0.1", end, name)
    assert list(witness.doubled()) == [
        "j0.1 of train ran twice",
        "j0.1 of train ran twice",
        "j0.1 and j0.1 of train: it ran again though it had succeeded",
    ]


def test_what_ends_well_only_after_it_was_told_to_end_is_not_done(witness: Seen) -> None:
    """It has kept its work, as our own jobs do on SIGTERM. Told when it had ended well already, it is."""
    for attempt in ("j0.1", "j0.2"):
        witness.bound(attempt)
        witness.execution(attempt)
    witness.pod("j0.1", "Running")
    witness.pod("j0.1", "Running", terminating=True)
    witness.pod("j0.1", "Succeeded", terminating=True)
    witness.pod("j0.2", "Running")
    witness.pod("j0.2", "Succeeded")
    witness.pod("j0.2", "Succeeded", terminating=True)
    assert witness.succeeded("train") == 1
    assert list(witness.doubled()) == []
    witness.pod("j0.3", "Running")
    assert list(witness.doubled()) == ["j0.2 and j0.3 of train: it ran again though it had succeeded"]


def test_a_pod_is_over_with_its_node_and_what_is_said_of_it_later_is_a_ghosts_word(witness: Seen) -> None:
    for attempt in ("j0.1", "j0.2"):
        witness.bound(attempt)
        witness.execution(attempt)
    witness.pod("j0.1", "Running")
    witness.loses("another")
    witness.pod("j0.2", "Pending")
    witness.pod("j0.2", "Running")
    assert list(witness.doubled()) == ["j0.1 and j0.2 of train ran at once"]
    witness.pods.clear()
    witness.pod("j0.1", "Running")
    witness.loses("east-gpu-0")
    witness.pod("j0.1", "Succeeded")
    assert (witness.succeeded("train"), witness.succeeded("train", ghosts=True)) == (0, 1)
    witness.gone.clear()  # another node, for whatever comes next
    witness.pod("j0.2", "Running")
    assert list(witness.doubled()) == []


def test_a_job_made_before_its_home_job_was_bound_and_a_binding_that_goes_back_are_found(witness: Seen) -> None:
    witness.execution("j0.1")
    for attempt in ("j0.1", "j0.2", "j0.1"):
        witness.bound(attempt)
    assert list(witness.doubled()) == [
        "the Job of j0.1 was made before train was bound to it",
        "train was bound to j0.1, then to j0.2, then to j0.1",
    ]


@pytest.fixture(scope="module")
def _bench_programs() -> None:
    """The kill bench starts clusters and a PostgreSQL of its own."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    postgres.found_or_skip()


@pytest.mark.slow
@pytest.mark.usefixtures("_bench_programs")
def test_rows_2_3_6_and_26_two_control_planes_killed_and_stopped_run_every_job_once() -> None:
    run = kill_kube.run(kills=4, seed=2)
    assert [*run.words, *run.stories] == []
    assert run.kills + run.stops >= 4
    assert run.load.sent


@pytest.mark.slow
@pytest.mark.usefixtures("_bench_programs")
def test_a_seeded_mistake_of_the_protocol_is_found() -> None:
    """One that is found soon; `--mutate` has them all."""
    assert kill_kube.run(kills=12, seed=1, mistake="bind_after_create").words


def test_every_mistake_of_the_protocol_says_what_it_is() -> None:
    assert len(kube_mistakes.MISTAKES) >= 8
    assert all(mistake.__doc__ for mistake in kube_mistakes.MISTAKES.values())
