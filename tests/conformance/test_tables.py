"""The suite's tables are whole, and its comparison sees what it should; all without a cluster."""

from penstock.kube.gpu_requests import of_job
from tests.conformance import cases, comparing
from tests.conformance.comparing import ABSENT, Allowed, Difference, differences, rotten, unexplained
from tests.conformance.document import document
from tests.conformance.observing import Names, event_fields, job_fields
from tests.conformance.playing import as_home_job, indexes, wanted_pods
from tests.conftest import ROOT

JOB: cases.Json = {
    "metadata": {"name": "train", "namespace": "ns-1", "uid": "u", "labels": {"app": "x"}, "resourceVersion": "7"},
    "spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "main", "image": "a"}]}}},
    "status": {
        "startTime": "2026-01-01T00:00:00Z",
        "active": 2,
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "reason": "PodFailurePolicy",
                "message": "pod ns-1/train-0-x7k2p failed",
            }
        ],
    },
}


def test_every_manifest_is_a_case_and_at_least_forty_are_there() -> None:
    named = [case.name for case in cases.read()]
    files = sorted(path.stem for path in cases.MANIFESTS.iterdir())
    assert sorted(named) == files
    assert len(named) == len(set(named)) >= 40


def test_every_manifest_has_one_job_that_asks_for_gpus_unless_that_is_its_point() -> None:
    for case in cases.read():
        specs = [spec for document in case.documents() if (spec := _job_spec(document))]
        assert len(specs) == 1, case.name
        assert bool(of_job({"parallelism": 1, **specs[0]})) != (case.name == "cpu-only"), case.name


def _job_spec(document: cases.Json) -> cases.Json:
    if document["kind"] == "CronJob":
        return dict(document["spec"]["jobTemplate"]["spec"])
    return dict(document["spec"]) if document["kind"] == "Job" else {}


def test_the_page_lists_the_manifests_and_the_allowed_differences() -> None:
    assert (ROOT / "docs" / "conformance.md").read_text("utf-8") == document(), "run `make docs`"


def test_every_allowed_difference_has_a_reason() -> None:
    assert all(entry.reason.endswith(".") for entry in comparing.read())


def test_what_differs_from_run_to_run_is_a_word() -> None:
    fields = job_fields(JOB, Names("train", "ns-1"))
    assert fields == {
        "metadata.labels.app": "x",
        "spec.parallelism": 2,
        "spec.template.spec.containers.main.image": "a",
        "status.active": 2,
        "status.startTime": "set",
        "status.conditions.Failed.status": "True",
        "status.conditions.Failed.reason": "PodFailurePolicy",
        "status.conditions.Failed.message": "pod NAMESPACE/POD failed",
    }
    assert event_fields([{"reason": "Completed", "type": "Normal"}] * 2) == {"events.Completed": "Normal"}


def test_each_field_that_differs_is_found_and_a_missing_one_is_absent() -> None:
    differing = differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4}, "m", "home", "running")
    assert differing == [
        Difference("m", "home", "running", "b", 2, 5),
        Difference("m", "home", "running", "c", 3, ABSENT),
        Difference("m", "home", "running", "d", ABSENT, 4),
    ]


def test_an_entry_allows_what_it_names_and_nothing_else_and_rots_if_nothing_needs_it() -> None:
    seen = Difference("m", "burst", "created", "pod.env.PENSTOCK_JOB.value", ABSENT, "j1")
    entry = Allowed("pod.env.PENSTOCK_*", "", plain="absent", modes=("burst", "moved"))
    assert unexplained([seen], [entry]) == []
    for other in (
        Allowed("pod.env.MASTER_*", ""),
        Allowed("pod.*", "", plain="j1"),
        Allowed("pod.*", "", modes=("home",)),
        Allowed("pod.*", "", manifests=("n",)),
        Allowed("pod.*", "", instants=("running",)),
        Allowed("pod.*", "", ours="j2"),
    ):
        assert unexplained([seen], [other]) == [seen]
        assert rotten([seen], [entry, other]) == [other]


def test_a_home_job_is_the_same_with_three_lines_more() -> None:
    home = as_home_job(JOB)
    assert home["metadata"]["labels"] == {"app": "x", "penstock.dev/queue": "vision"}
    assert home["spec"] == {**JOB["spec"], "suspend": True, "managedBy": "penstock.dev/dispatcher"}
    assert JOB["metadata"]["labels"] == {"app": "x"}


def test_how_many_pods_a_controller_wants() -> None:
    assert wanted_pods({"suspend": True, "parallelism": 2, "completions": 2}, {}, 2) == 0
    assert wanted_pods({"parallelism": 3}, {}, 1) == 3
    assert wanted_pods({"parallelism": 3}, {"succeeded": 1}, 2) == 2
    assert wanted_pods({"parallelism": 3, "completions": 5}, {"succeeded": 2, "failedIndexes": "0,3"}, 0) == 1
    assert indexes("0,2-4") == [0, 2, 3, 4]
