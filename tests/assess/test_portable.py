"""What of the jobs seen could run elsewhere, and that jobs which could not stay at home in the ways."""

from dataclasses import replace
from typing import Any

from penstock.assess.assessment import DecisionOptions, assess
from penstock.assess.portable import portability_of
from penstock.assess.ways import BURST
from tests.assess.test_decision import COST, figures, job, month


def manifest(**pod: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "docker.io/pytorch/pytorch:2.9.0",
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "a"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}},
    }


def claim(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def test_each_template_is_judged_and_the_line_that_frees_it_named() -> None:
    jobs = [
        job(k, submit=1 + k, start=1 + k, run=2, key=key)
        for k, key in enumerate(["a/free", "a/tied", "a/tied", "a/host"])
    ]
    seen = replace(
        month(jobs),
        manifests=(
            ("a/free", manifest()),
            ("a/tied", manifest(**claim("scratch"))),
            ("a/host", manifest(volumes=[{"name": "disk", "hostPath": {"path": "/data"}}])),
        ),
    )
    portability = portability_of(seen)
    assert portability is not None
    assert {row.key: (row.verdict, row.runs, row.gpu_hours) for row in portability.rows} == {
        "a/free": ("goes", 1, 16),
        "a/tied": ("needs a map", 2, 32),
        "a/host": ("never", 1, 16),
    }
    assert (portability.goes, portability.maps, portability.never, portability.unread_runs) == (1, 1, 1, 0)
    assert (portability.gpu_hours_that_go, portability.gpu_hours_read) == (16, 64)
    assert [line for line, _ in portability.lines] == ["maps: {volumes: {scratch: CLAIM-THERE or emptyDir}}"]
    assert portability.tied == {"a/tied", "a/host"}


def test_without_manifests_nobody_can_say() -> None:
    assert portability_of(month([job(1, submit=1, start=1, run=2)])) is None


def test_a_job_that_cannot_leave_does_not_burst_in_the_ways() -> None:
    jobs = [job(k, submit=1, start=1 + 10 * k, run=10) for k in range(2)]
    options = DecisionOptions(own_cost=COST, cost_of_delay="200", cap="10000000")
    free = assess(replace(month(jobs, days=1), manifests=(("a/train", manifest()),)), options)
    tied = assess(replace(month(jobs, days=1), manifests=(("a/train", manifest(**claim("scratch"))),)), options)
    assert figures(free, BURST).rent > 0
    assert figures(tied, BURST).rent == 0
