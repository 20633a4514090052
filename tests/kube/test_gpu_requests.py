"""GPUs that pods and Jobs ask for, counted as Kubernetes' scheduler counts them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kube import gpu_requests
from penstock.kube.gpu_requests import NotWhole

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


def asks(gpus: object, resource: str = GPU, **more: Any) -> Json:
    return {"resources": {"limits": {resource: gpus}}, **more}


def test_containers_count_together_and_an_init_container_only_if_it_asks_for_more() -> None:
    assert gpu_requests.of_pod({"containers": [asks(2), asks("3")]}) == {GPU: 5}
    assert gpu_requests.of_pod({"initContainers": [asks(4)], "containers": [asks(5)]}) == {GPU: 5}
    assert gpu_requests.of_pod({"initContainers": [asks(8)], "containers": [asks(5)]}) == {GPU: 8}


def test_a_sidecar_runs_beside_the_containers_and_the_init_containers_after_it() -> None:
    sidecar = asks(1, restartPolicy="Always")
    assert gpu_requests.of_pod({"initContainers": [sidecar], "containers": [asks(2)]}) == {GPU: 3}
    assert gpu_requests.of_pod({"initContainers": [sidecar, asks(4)], "containers": [asks(2)]}) == {GPU: 5}
    assert gpu_requests.of_pod({"initContainers": [asks(4), sidecar], "containers": [asks(2)]}) == {GPU: 4}


def test_a_job_has_the_gpus_of_all_pods_that_run_at_once_by_profile() -> None:
    pod = {"containers": [asks(2), asks(1, "nvidia.com/mig-1g.10gb"), asks(7, "example.com/fpga")]}
    spec = {"parallelism": 8, "completions": 3, "template": {"spec": pod}}
    assert gpu_requests.of_job(spec) == {"": 6, "1g.10gb": 3}
    assert gpu_requests.of_job({"template": {"spec": pod}}) == {"": 2, "1g.10gb": 1}


@pytest.mark.parametrize("count", ["1.5", "-1", "", "1k", True, None, [], "9" * 10])
def test_a_count_that_is_no_whole_number_is_named(count: object) -> None:
    with pytest.raises(NotWhole, match=r"nvidia.com/gpu is .* and not a whole number"):
        gpu_requests.of_pod({"containers": [asks(count)]})


@given(st.lists(st.tuples(st.sampled_from(("main", "init", "sidecar")), st.integers(0, 16)), max_size=8))
def test_a_pod_holds_no_less_than_runs_at_any_instant(made: list[tuple[str, int]]) -> None:
    init = [
        asks(gpus, **({"restartPolicy": "Always"} if kind == "sidecar" else {}))
        for kind, gpus in made
        if kind != "main"
    ]
    mains = [gpus for kind, gpus in made if kind == "main"]
    sidecars = [gpus for kind, gpus in made if kind == "sidecar"]
    held = gpu_requests.of_pod({"initContainers": init, "containers": [asks(gpus) for gpus in mains]})[GPU]
    at_work, running, peak = sum(mains) + sum(sidecars), 0, 0
    for kind, gpus in made:
        if kind == "init":
            peak = max(peak, running + gpus)
        elif kind == "sidecar":
            running += gpus
    assert held == max(at_work, peak)
