"""How many pods a home Job shows, by its execution Job and pods."""

from typing import Any

from penstock.core.model.types import PodCounts
from penstock.drivers.kubernetes.counts import counts_at_end, counts_now
from penstock.drivers.kubernetes.pods import End, end_of
from penstock.kube import annotations
from tests.drivers.kubernetes.test_pods import disrupted, ended, job, pod, terminating


def test_pods_that_we_stop_are_never_shown_as_failed_ones() -> None:
    """A gang that its user suspended showed two failures, if the cluster counted before the journal had the end."""
    pods = [terminating(ended(143)), terminating(ended(143))]
    suspended = job("Failed", "DeadlineExceeded", ending="stopped", parallelism=2, completions=2)
    suspended["status"] |= {"failed": 2}
    assert counts_now(suspended, pods).failed == 0
    assert counts_at_end(suspended, pods, "stopped") == PodCounts()
    assert counts_now(suspended, [ended(1), *pods]).failed == 1  # this one failed before


def test_pods_that_are_lost_count_as_failed_and_use_up_no_retry() -> None:
    pods = [disrupted("EvictionByEvictionAPI"), terminating(ended(143))]
    lost = job("Failed", "PodFailurePolicy", ending="lost", parallelism=2, completions=2)
    lost["status"] |= {"failed": 2}
    assert counts_now(lost, pods).failed == 2
    assert counts_at_end(lost, pods, "lost") == PodCounts(failed=2)


def rejected() -> dict[str, Any]:
    return pod("Failed", reason="UnexpectedAdmissionError", message="no GPU is free")


def test_only_pods_that_ran_are_shown_as_failed_ones() -> None:
    """Each start that was given up left a failed pod on its home Job: the cluster counts pods as failed that its
    deadline ended, also those that never found a node.
    """
    given_up = job("FailureTarget", "DeadlineExceeded", ending="refused")
    given_up["status"] |= {"failed": 1}
    assert counts_now(given_up, [terminating(pod("Pending", node=""))]).failed == 0
    assert counts_now(given_up, []).failed == 0
    not_taken = job()
    not_taken["status"] |= {"failed": 2}
    assert counts_now(not_taken, [rejected(), ended(1)]).failed == 1
    unpaid = job("Failed", "DeadlineExceeded")  # no more money was held for it, and nobody has noted an end
    unpaid["status"] |= {"failed": 1}
    assert counts_now(unpaid, [terminating(ended(143))]).failed == 0


def test_a_pod_that_its_users_own_deadline_ends_has_failed_as_in_plain_kubernetes() -> None:
    own = job("Failed", "DeadlineExceeded", activeDeadlineSeconds=60)
    own["metadata"]["annotations"][annotations.OWN_DEADLINE] = "60"
    own["status"] |= {"failed": 1}
    assert counts_now(own, [terminating(ended(143))]).failed == 1


def test_a_start_that_was_lost_with_its_node_before_it_ran_has_no_failed_pod() -> None:
    lost = job(ending="lost")
    assert counts_at_end(lost, [pod("Pending")], "lost") == PodCounts()


def test_a_job_that_succeeded_while_we_ended_it_has_succeeded_and_says_so_as_kubernetes_would() -> None:
    """Its home Job was complete with the reason DeadlineExceeded: our own end of an attempt whose start hung."""
    ending = job("Failed", "DeadlineExceeded", ending="refused")
    assert counts_at_end(ending, [{**ended(0), "index": "0"}], "done") == PodCounts(
        succeeded=1,
        completed_indexes="0",
        reason="CompletionsReached",
        message="Reached expected number of succeeded pods",
    )


def test_a_job_told_to_move_whose_pods_had_succeeded_says_so_as_kubernetes_would() -> None:
    """It ended before its cluster counted that, and its home Job said "Succeeded." in place of Kubernetes' words."""
    moving = job(ending="stopped")
    assert end_of(moving, [ended(0)], None) == End("done", "exit code 0")
    well = {**ended(0), "index": "0"}
    end = counts_at_end(moving, [well], "done")
    assert (end.reason, end.message) == ("CompletionsReached", "Reached expected number of succeeded pods")
    met = job("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 0", ending="stopped")
    assert counts_at_end(met, [well], "done").message == "Matched rules at index 0"
