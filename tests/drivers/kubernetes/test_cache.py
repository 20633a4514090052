"""What is remembered of an attempt's pods."""

from pathlib import Path
from typing import Any

from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.pod_logs import Kubelets, PodLog
from penstock.drivers.kubernetes.pods import End, end_of

JOB: dict[str, Any] = {"metadata": {"name": "x", "annotations": {}}, "spec": {"completions": 1}, "status": {}}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}


def pod(phase: str, *, terminating: bool = False) -> dict[str, Any]:
    more = {"deletionTimestamp": "2026-11-16T07:00:30Z"} if terminating else {}
    return {"metadata": {"name": "x-0", **more}, "spec": {"nodeName": "n"}, "status": {"phase": phase}}


def test_a_success_that_was_seen_counts_though_its_node_is_taken_afterwards(tmp_path: Path) -> None:
    """Its cluster deletes the pod with the node, and then sees that the Job's time is over."""
    execution = Execution(JOB, PodLog(tmp_path, 0, Kubelets(), lambda: None))
    execution.see(pod("Running"))
    execution.see(pod("Succeeded"))
    execution.see(pod("Succeeded", terminating=True))
    execution.miss(pod("Succeeded", terminating=True))
    assert end_of({**JOB, "status": FAILED}, list(execution.pods.values()), None) == End("done", "exit code 0")


def test_one_that_was_told_to_end_and_saved_its_work_is_not_done_when_it_is_gone(tmp_path: Path) -> None:
    execution = Execution(JOB, PodLog(tmp_path, 0, Kubelets(), lambda: None))
    execution.see(pod("Running", terminating=True))
    execution.see(pod("Succeeded", terminating=True))
    execution.miss(pod("Succeeded", terminating=True))
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    end = end_of({**JOB, "status": complete}, list(execution.pods.values()), None)
    assert end == End("lost", "it was told to end before it was done")


def test_a_pod_that_is_gone_before_it_ended_is_forgotten(tmp_path: Path) -> None:
    execution = Execution(JOB, PodLog(tmp_path, 0, Kubelets(), lambda: None))
    execution.see(pod("Running"))
    execution.miss(pod("Running"))
    assert execution.pods == {}
