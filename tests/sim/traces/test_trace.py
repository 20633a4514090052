"""Reading traces: four formats in, jobs out; and what is wrong with a file is said in one sentence."""

import gzip
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import BadFile, BadInput
from penstock.core.model.types import JOB_CLASSES, GpuChoice, JobSpec
from penstock.core.units import DAY, HOUR, MINUTE, SECOND
from penstock.sim.traces.trace import FORMATS, Trace, TraceJob, read, read_jobs, write_csv
from tests.conftest import shared_data

Write = Callable[[str, str | bytes], str]

HEADER = "job_id,submit_s,duration_s,gpus,gpu_fraction,gpu_model,user_or_group,status,job_class,cpus,memory_gib,queue_s"
SMALL = f"""{HEADER}
b,90000.5,60,2,1,V100,vision,Pass,critical,8,64,5
a,3600,1.2345,1,,,,,,,,
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the current folder, so that messages name it without a path."""
    monkeypatch.chdir(tmp_path)

    def to(name: str, content: str | bytes) -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return to


# Penstock's own schema


def test_jobs_come_by_submission_and_keep_the_zero_of_the_file(write: Write) -> None:
    assert read(write("jobs.csv", SMALL)) == Trace(
        jobs=(
            TraceJob("a", HOUR, 1_234, JobSpec(1)),
            TraceJob("b", DAY + HOUR + 500, MINUTE, JobSpec(2, "vision", job_class="critical")),
        ),
        left_out={},
    )


def test_jobs_submitted_together_stay_in_the_order_of_the_file(write: Write) -> None:
    rows = "".join(f"{name},{at},1,1\n" for name, at in (("z", 5), ("b", 7), ("y", 5), ("a", 5)))
    trace = read(write("jobs.csv", "job_id,submit_s,duration_s,gpus\n" + rows))
    assert [job.id for job in trace.jobs] == ["z", "y", "a", "b"]


def test_only_submission_duration_and_gpus_are_needed_and_rows_then_name_the_jobs(write: Write) -> None:
    assert read(write("jobs.csv", "gpus,duration_s,submit_s\n2.5,10,0\n\n2.0,10,0\n")).jobs == (
        TraceJob("row-2", 0, 10 * SECOND, JobSpec(2)),
        TraceJob("row-4", 0, 10 * SECOND, JobSpec(2)),
    )


def test_rows_without_run_time_or_a_whole_gpu_are_left_out_and_counted(write: Write) -> None:
    rows = "1,,1\n1,0,1\n1,0.0,1\n1,5,0.5\n1,5,\n1,5,0\n1,5,-1\nnonsense,,1\n1,5,1\n"
    trace = read(write("jobs.csv", "submit_s,duration_s,gpus\n" + rows))
    assert trace == Trace((TraceJob("row-10", 1_000, 5_000, JobSpec(1)),), {"no run time": 4, "fewer than 1 GPU": 4})


def test_a_class_is_any_name_and_what_is_none_is_training(write: Write) -> None:
    rows = "0,1,1,nightly\n0,1,1,\n0,1,1,of two words\n" + f"0,1,1,{'x' * 64}\n0,1,1,interactive\n"
    trace = read(write("jobs.csv", "submit_s,duration_s,gpus,job_class\n" + rows))
    classes = [job.spec.job_class for job in trace.jobs]
    assert classes == ["nightly", "training", "training", "training", "interactive"]


def test_what_penstock_adds_to_the_schema_is_read_too(write: Write) -> None:
    header = "submit_s,duration_s,gpus,user,name,project,priority,checkpoint_s,deadline_s,mig_profile\n"
    [job] = read(write("jobs.csv", header + "0,1,1,ada,bert,x,-3,900,7200,1g.10gb\n")).jobs
    assert job.spec == JobSpec(
        1,
        user="ada",
        name="bert",
        project="x",
        priority=-3,
        checkpoint_every_ms=15 * MINUTE,
        deadline_at=2 * HOUR,
        mig_profile="1g.10gb",
    )


def test_a_byte_order_mark_and_line_ends_of_windows_do_not_matter(write: Write) -> None:
    assert read(write("a.csv", b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())) == read(write("b.csv", SMALL))


def test_gzip_is_known_by_its_content(write: Write) -> None:
    assert read(write("jobs.csv", gzip.compress(SMALL.encode()))) == read(
        write("jobs.csv.gz", gzip.compress(SMALL.encode()))
    )


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(SMALL.encode())))
    assert read("-") == read(write("jobs.csv", SMALL))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(BadInput, match=r"^standard input: the file is empty\.$"):
        read("-")


@pytest.mark.parametrize("name", ["philly", "helios_venus", "pai"])
def test_recorded_traces_are_read_as_the_reference_reads_them(name: str) -> None:
    shared = shared_data()
    path = str(shared / "data" / "traces" / f"{name}.csv.gz")
    submits, runs, gpus = _reference(shared).load(path)
    trace = read(path)
    first_at = trace.jobs[0].submit_at
    assert [job.submit_at - first_at for job in trace.jobs] == submits
    assert [job.run_ms for job in trace.jobs] == runs
    assert [job.spec.gpus for job in trace.jobs] == gpus
    assert trace.left_out == {}


def _reference(shared: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", shared / "bench" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Writing

# Without the carriage return: Python's csv writes it bare before 3.13, and no name has one.
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=12)
milliseconds = st.integers(1, 100 * 365 * DAY)
specs = st.builds(
    JobSpec,
    gpus=st.integers(1, 1_000_000),
    team=names.filter(bool),
    user=names,
    name=names,
    project=names,
    job_class=st.sampled_from(JOB_CLASSES),
    priority=st.integers(-1_000_000_000, 1_000_000_000),
    checkpoint_every_ms=st.none() | milliseconds,
    deadline_at=st.none() | milliseconds,
    mig_profile=names,
)
traces = (
    st.lists(
        st.builds(TraceJob, id=names.filter(bool), submit_at=milliseconds, run_ms=milliseconds, spec=specs),
        min_size=1,
        max_size=5,
        unique_by=lambda job: job.id,
    )
    .map(lambda jobs: sorted(jobs, key=lambda job: job.submit_at))
    .map(lambda jobs: Trace(tuple(jobs), {}))
)


@given(traces, st.sampled_from(["trace.csv", "trace.csv.gz"]))
def test_what_is_written_reads_back_the_same(tmp_path_factory: pytest.TempPathFactory, trace: Trace, name: str) -> None:
    path = str(tmp_path_factory.mktemp("written") / name)
    write_csv(trace, path)
    assert read(path, format="penstock") == trace


def test_a_written_trace_shows_what_an_input_looks_like(write: Write, capfdbinary: Any) -> None:
    write_csv(read(write("jobs.csv", SMALL)), "-")
    assert capfdbinary.readouterr().out.decode() == (
        f"{HEADER},user,name,project,priority,checkpoint_s,deadline_s,mig_profile\n"
        "a,3600,1.234,1,,,default,,training,,,,,,,0,,,\n"
        "b,90000.500,60,2,,,vision,,critical,,,,,,,0,,,\n"
    )


def test_the_same_trace_is_written_as_the_same_bytes(write: Write) -> None:
    """Gzip would otherwise write the time of day into its header, in bytes 4 to 7."""
    write_csv(read(write("jobs.csv", SMALL)), "a.csv.gz")
    assert Path("a.csv.gz").read_bytes()[4:8] == bytes(4)


def test_a_folder_that_is_not_there_cannot_be_written_to(write: Write) -> None:
    trace = read(write("jobs.csv", SMALL))
    with pytest.raises(BadInput, match=r"^no/x\.csv: cannot be written \(No such file or directory\)\.$"):
        write_csv(trace, "no/x.csv")


# Other tables, by a column mapping

MAPPED = {"id": "Job", "submit": "SubmitTime", "duration": "RunSeconds", "gpus": "NGPU", "team": "Group"}


def test_a_mapping_names_the_columns_of_any_table(write: Write) -> None:
    table = "Job, SubmitTime, RunSeconds, NGPU, Group, Model\n7,3600,10,4,nlp,A100\n8,10,5,1,,\n"
    assert read(write("x.csv", table), columns={**MAPPED, "gpu_model": "Model"}).jobs == (
        TraceJob("8", 10 * SECOND, 5 * SECOND, JobSpec(1)),
        TraceJob("7", HOUR, 10 * SECOND, JobSpec(4, "nlp", gpu_models=(GpuChoice("A100"),))),
    )


def test_timestamps_count_from_the_midnight_before_the_first(write: Write) -> None:
    table = "at,s,n,due\n2026-03-02T01:00:00,5,1,\n2026-03-01 23:00,5,1,2026-03-02T12:00:00\n"
    trace = read(write("x.csv", table), columns={"submit": "at", "duration": "s", "gpus": "n", "deadline": "due"})
    assert [(job.submit_at, job.spec.deadline_at) for job in trace.jobs] == [(23 * HOUR, 36 * HOUR), (25 * HOUR, None)]


def test_midnight_is_where_the_first_job_was_submitted(write: Write) -> None:
    table = "at,s,n\n2026-03-01T23:00:00-05:00,5,1\n2026-03-02T05:00:00Z,5,1\n"
    trace = read(write("x.csv", table), columns={"submit": "at", "duration": "s", "gpus": "n"})
    assert [job.submit_at for job in trace.jobs] == [23 * HOUR, 24 * HOUR]


def test_seconds_since_1970_count_from_the_first_midnight(write: Write) -> None:
    at_s = 20_000 * 86_400 + 60
    trace = read(write("x.csv", f"at,s,n\n{at_s},5,1\n"), columns={"submit": "at", "duration": "s", "gpus": "n"})
    assert trace.jobs[0].submit_at == MINUTE


def test_start_and_end_stand_in_for_a_duration(write: Write) -> None:
    table = "at,from,to,n\n2026-03-01,2026-03-01T01:00:00,2026-03-01T02:30:00,1\n2026-03-01,2026-03-01,,1\n"
    trace = read(write("x.csv", table), columns={"submit": "at", "start": "from", "end": "to", "gpus": "n"})
    assert trace == Trace((TraceJob("row-2", 0, 90 * MINUTE, JobSpec(1)),), {"not ended yet": 1})


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({**MAPPED, "gpus": "GPUS"}, "x.csv, line 1: there is no column GPUS for gpus, only Job, SubmitTime, N."),
        (
            {"submit": "SubmitTime", "gpus": "N"},
            "x.csv: the column mapping has no column for duration, nor for both start and end.",
        ),
        (
            {"submit": "SubmitTime", "gpus": "N", "end": "N"},
            "x.csv: the column mapping has no column for duration, nor for both start and end.",
        ),
        ({"gpus": "N", "duration": "N"}, "x.csv: the column mapping has no column for submit."),
        (
            {},
            (
                "x.csv: 3 errors.\n"
                "x.csv: the column mapping has no column for submit.\n"
                "x.csv: the column mapping has no column for gpus.\n"
                "x.csv: the column mapping has no column for duration, nor for both start and end."
            ),
        ),
        (
            {**MAPPED, "sumbit": "SubmitTime", "duration": "SubmitTime", "gpus": "N"},
            (
                "x.csv: the column mapping has an unknown field 'sumbit'; fields are id, submit, duration, start, end, "
                "gpus, team, user, name, project, job_class, priority, checkpoint, deadline, mig_profile, gpu_model."
            ),
        ),
    ],
)
def test_a_mapping_that_does_not_fit_is_told(write: Write, columns: dict[str, str], sentence: str) -> None:
    columns = {
        field: "SubmitTime" if column in ("RunSeconds", "Group") else column for field, column in columns.items()
    }
    _refused(sentence, write("x.csv", "Job,SubmitTime,N\n1,2,3\n"), columns=columns)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            "1,2,1\n2026-03-01,2,1",
            "x.csv, line 3: at '2026-03-01' is in local time, and times before it are in seconds.",
        ),
        (
            "2026-03-01T00:00:00,2,1\n2026-03-01T00:00:00Z,2,1",
            "x.csv, line 3: at '2026-03-01T00:00:00Z' is in time with a zone, and times before it are in local time.",
        ),
        ("3/1/2026 9:00,2,1", "x.csv, line 2: at '3/1/2026 9:00' is not a time like 2026-03-01T09:00:00."),
        ("0001-01-01,2,1", "x.csv, line 2: at '0001-01-01' is not between 1971 and 2199."),
    ],
)
def test_times_of_two_kinds_or_none_are_told(write: Write, rows: str, sentence: str) -> None:
    columns = {"submit": "at", "duration": "s", "gpus": "n"}
    _refused(sentence, write("x.csv", f"at,s,n\n{rows}\n"), columns=columns)


def test_an_end_before_the_start_is_told(write: Write) -> None:
    columns = {"submit": "at", "start": "at", "end": "to", "gpus": "n"}
    _refused("x.csv, line 2: to '4' is before at '5'.", write("x.csv", "at,to,n\n5,4,1\n"), columns=columns)


# Slurm

SACCT = """\
JobID|JobName|User|Account|Partition|Submit|Start|End|Elapsed|State|AllocTRES|ReqTRES|NNodes
100|bert|ada|nlp|gpu|2026-03-01T08:00:00|2026-03-01T08:05:00|2026-03-02T09:05:01|1-01:00:01|COMPLETED|billing=32,cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1|cpu=32,gres/gpu=4|1
100.batch|batch||nlp||2026-03-01T08:05:00|2026-03-01T08:05:00|2026-03-02T09:05:01|1-01:00:01|COMPLETED|cpu=32,gres/gpu:a100=4,gres/gpu=4||1
101_3|sweep|ben||gpu|2026-03-01T07:00:00|2026-03-01T07:00:00|2026-03-01T07:02:03|02:03|FAILED|cpu=1,gres/gpu:a100=1,gres/gpu:v100=2||1
102|cpu|ben|nlp|cpu|2026-03-01T07:00:00|2026-03-01T07:00:00|2026-03-01T08:00:00|01:00:00|COMPLETED|cpu=8,mem=4G|cpu=8|1
103|gone|ben|nlp|gpu|2026-03-01T07:00:00|None|2026-03-01T08:00:00|00:00:00|CANCELLED by 1001||cpu=8,gres/gpu=8|1
104|now|ben|nlp|gpu|2026-03-01T07:00:00|2026-03-01T07:00:00|Unknown|01:00:00|RUNNING|gres/gpu=8||1
105_[1-9]|later|ben|nlp|gpu|2026-03-01T07:00:00|Unknown|Unknown|00:00:00|PENDING||gres/gpu=8|1
106|stopped|ben|nlp|gpu|2026-03-01T07:00:00|2026-03-01T07:00:00|2026-03-01T08:00:00|01:00:00|CANCELLED by 1001|gres/gpu:a100_3g.20gb=2,gres/gpu=2||1
107|crash|ben|nlp|gpu|2026-03-01T07:00:00|2026-03-01T07:00:00|2026-03-01T07:00:00|00:00:00|FAILED|gres/gpu=1||1
108|both|ben|nlp|gpu|2026-03-01T07:00:00|2026-03-01T07:00:00|2026-03-01T08:00:00|01:00:00|COMPLETED|gres/gpu:1g.5gb=1,gres/gpu:a100=1,gres/gpu=2||1
"""  # noqa: E501 - as sacct prints it


def test_slurm_jobs_and_array_tasks_that_ended_are_read(write: Write) -> None:
    assert read(write("month.txt", SACCT)) == Trace(
        jobs=(
            TraceJob("101_3", 7 * HOUR, 123 * SECOND, JobSpec(3, user="ben", name="sweep")),
            TraceJob("106", 7 * HOUR, HOUR, JobSpec(2, "nlp", user="ben", name="stopped", mig_profile="3g.20gb")),
            TraceJob("100", 8 * HOUR, 25 * HOUR + SECOND, JobSpec(4, "nlp", user="ada", name="bert")),
        ),
        left_out={
            "fewer than 1 GPU": 1,
            "ended before it started": 1,
            "not ended yet": 2,
            "no run time": 1,
            "different kinds of GPU slices in one job": 1,
        },
    )


def test_slurm_seconds_are_preferred_to_its_written_times(write: Write) -> None:
    table = "JobID|Submit|Elapsed|ElapsedRaw|State|ReqTRES|\n1|2026-03-01T00:00:01|nonsense|90|TIMEOUT|gres/gpu=1|\n"
    assert read(write("month.txt", table)).jobs == (TraceJob("1", SECOND, 90 * SECOND, JobSpec(1)),)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ("|Submit|", "|Sent|"),
            "m.txt, line 1: there is no column Submit, only JobID, Sent, Elapsed, State, AllocTRES.",
        ),
        (
            ("Elapsed", "Took"),
            "m.txt, line 1: there is no column ElapsedRaw or Elapsed, only JobID, Submit, Took, State, AllocTRES.",
        ),
        (("|", "  "), "m.txt, line 1: there are no pipes between the fields; print them with sacct --parsable2."),
        (("01:00:00", "an hour"), "m.txt, line 2: Elapsed 'an hour' is not a time like 1-02:03:04."),
        (
            ("01:00:00", "999999-01:00:00"),
            "m.txt, line 2: Elapsed '999999-01:00:00', in seconds '86399917200' is more than 100 years.",
        ),
        (("01:00:00", ""), "m.txt, line 2: Elapsed is empty."),
        (("2026-03-01T07:00:00", "Unknown"), "m.txt, line 2: Submit 'Unknown' is not a time like 2026-03-01T09:00:00."),
        (("gpu=2", "gpu=two"), "m.txt, line 2: AllocTRES gres/gpu 'two' is not a number."),
        (("1|2026", "1|x|2026"), "m.txt, line 2: there are 6 fields under a header of 5."),
        (
            ("COMPLETED|gres/gpu=2", "COMPLETED|gres/gpu=2\n\n" + "1|2026-03-01|01:00|FAILED|gres/gpu=1"),
            "m.txt, line 4: id '1' was already used in line 2.",
        ),
    ],
)
def test_what_is_wrong_with_slurm_output_is_told(write: Write, change: tuple[str, str], sentence: str) -> None:
    table = "JobID|Submit|Elapsed|State|AllocTRES\n1|2026-03-01T07:00:00|01:00:00|COMPLETED|gres/gpu=2\n"
    _refused(sentence, write("m.txt", table.replace(*change)))


# Kubernetes

KUBE_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "bert-x7k2p",
        "generateName": "bert-",
        "namespace": "nlp",
        "creationTimestamp": "2026-03-01T08:00:00Z",
        "labels": {"kueue.x-k8s.io/queue-name": "shared"},
    },
    "spec": {
        "parallelism": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "resources": {
                            "limits": {"nvidia.com/gpu": "4", "cpu": "8"},
                            "requests": {"nvidia.com/gpu": "4"},
                        },
                    },
                    {"name": "log"},
                ]
            }
        },
    },
    "status": {"startTime": "2026-03-01T08:10:00Z", "completionTime": "2026-03-01T09:10:00Z", "succeeded": 2},
}


def kube(**changes: object) -> dict[str, Any]:
    """The job above with other values at paths like `spec__parallelism`; None takes one away."""
    job = deepcopy(KUBE_JOB)
    for path, new in changes.items():
        *parents, last = path.split("__")
        place = job
        for parent in parents:
            place = place[parent]
        place[last] = new
    return job


def limits(**gpus: object) -> list[dict[str, Any]]:
    return [{"resources": {"limits": {name.replace("_", "/", 1): count for name, count in gpus.items()}}}]


def kubectl(*jobs: object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs})


def test_kubernetes_jobs_that_ended_are_read(write: Write) -> None:
    failed = [
        {"type": "FailureTarget", "status": "True"},
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-03-01T08:11:00Z"},
    ]
    jobs = (
        KUBE_JOB,
        kube(metadata__name="b", metadata__generateName=None, status__completionTime=None, status__conditions=failed),
        kube(metadata__name="c", metadata__labels={"penstock.dev/team": "vision"}, spec__completions=1),
        kube(
            metadata__name="d",
            metadata__namespace="ops",
            spec__parallelism=None,
            metadata__creationTimestamp="2026-03-01T07:00:00Z",
        ),
    )
    assert read(write("jobs.json", kubectl(*jobs))) == Trace(
        jobs=(
            TraceJob("ops/d", 7 * HOUR, HOUR, JobSpec(4, "ops", name="bert")),
            TraceJob("nlp/bert-x7k2p", 8 * HOUR, HOUR, JobSpec(8, "nlp", name="bert")),
            TraceJob("nlp/b", 8 * HOUR, MINUTE, JobSpec(8, "nlp", name="b")),
            TraceJob("nlp/c", 8 * HOUR, HOUR, JobSpec(4, "vision", name="bert")),
        ),
        left_out={},
    )


def test_slices_and_other_makes_of_gpus_count(write: Write) -> None:
    slices = {"nvidia.com/mig-1g.10gb": 3}
    jobs = (
        kube(metadata__name="a", spec__template={"spec": {"containers": [{"resources": {"requests": slices}}]}}),
        kube(metadata__name="b", spec__template={"spec": {"containers": limits(**{"amd.com_gpu": 1}) * 2}}),
    )
    trace = read(write("jobs.json", kubectl(*jobs)))
    assert [(job.spec.gpus, job.spec.mig_profile) for job in trace.jobs] == [(6, "1g.10gb"), (4, "")]


def test_kubernetes_jobs_that_cannot_be_used_are_counted(write: Write) -> None:
    both = limits(**{"nvidia.com_gpu": 1, "nvidia.com_mig-1g.10gb": 1})
    jobs = (
        KUBE_JOB,
        kube(status__completionTime=None),
        kube(status={}),
        kube(spec__parallelism=0),
        kube(spec__template={"spec": {"containers": limits(cpu=1)}}),
        kube(spec__template={"spec": {"containers": both}}),
        kube(status__completionTime="2026-03-01T08:10:00Z"),
        kube(status__startTime=None),
        {"kind": "Pod"},
        None,
    )
    assert read(write("jobs.json", kubectl(*jobs))).left_out == {
        "not ended yet": 2,
        "fewer than 1 GPU": 2,
        "different kinds of GPU slices in one job": 1,
        "no run time": 1,
        "ended before it started": 1,
        "not a batch/v1 Job": 2,
    }


def test_one_job_alone_is_read_too(write: Write) -> None:
    assert read(write("a.json", json.dumps(KUBE_JOB))) == read(write("b.json", kubectl(KUBE_JOB)))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "j.json, line 1: this is not JSON (Expecting property name enclosed in double quotes, column 2)."),
        ("[1]", "j.json: this JSON is not a list of Jobs; print one with kubectl get jobs -A -o json."),
        ("[" * 100_000, "j.json: this JSON is nothing kubectl would print."),
        ('{"items": [' + "1" * 5_000 + "]}", "j.json: this JSON is nothing kubectl would print."),
        (kubectl(), "j.json: no job in it can be used (there are no rows)."),
        (kubectl({}), "j.json: no job in it can be used (1 × not a batch/v1 Job)."),
        (kubectl({"kind": "Job"}), "j.json, item 1: metadata.name is missing."),
        (kubectl(kube(metadata__name=7)), "j.json, item 1: metadata.name '7' is not a text."),
        (kubectl(KUBE_JOB, KUBE_JOB), "j.json, item 2: id 'nlp/bert-x7k2p' was already used in item 1."),
        (
            kubectl(KUBE_JOB, kube(metadata__creationTimestamp="yesterday")),
            (
                "j.json, item 2: nlp/bert-x7k2p: metadata.creationTimestamp 'yesterday' "
                "is not a time like 2026-03-01T09:00:00."
            ),
        ),
        (
            kubectl(kube(metadata__creationTimestamp=None)),
            "j.json, item 1: nlp/bert-x7k2p: metadata.creationTimestamp is empty.",
        ),
        (
            kubectl(kube(status__completionTime="2026-03-01T08:00:00Z")),
            (
                "j.json, item 1: nlp/bert-x7k2p: status.completionTime '2026-03-01T08:00:00Z' is before "
                "status.startTime '2026-03-01T08:10:00Z'."
            ),
        ),
        (
            kubectl(kube(spec__parallelism=-1)),
            "j.json, item 1: nlp/bert-x7k2p: spec.parallelism '-1' is not a whole number.",
        ),
        (
            kubectl(kube(spec__parallelism=999_999_999)),
            "j.json, item 1: nlp/bert-x7k2p: 3999999996 GPUs are more than 1,000,000.",
        ),
        (
            kubectl(kube(spec__template={"spec": {"containers": limits(**{"nvidia.com_gpu": "many"})}})),
            "j.json, item 1: nlp/bert-x7k2p: nvidia.com/gpu 'many' is not a whole number.",
        ),
    ],
)
def test_what_is_wrong_with_kubernetes_output_is_told(write: Write, content: str, sentence: str) -> None:
    _refused(sentence, write("j.json", content))


# Bad input of any kind


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("a,soon,1,1", "x.csv, line 3: submit_s 'soon' is not a number."),
        ("a,,1,1", "x.csv, line 3: submit_s is empty."),
        ("a,-1,1,1", "x.csv, line 3: submit_s '-1' is negative."),
        ("a,2026-03-01,1,1", "x.csv, line 3: submit_s '2026-03-01' is not a number."),
        ("a,0,-5,1", "x.csv, line 3: duration_s '-5' is negative."),
        ("a,0,nan,1", "x.csv, line 3: duration_s 'nan' is not a finite number."),
        ("a,0,-inf,1", "x.csv, line 3: duration_s '-inf' is not a finite number."),
        ("a,0,1e300,1", "x.csv, line 3: duration_s '1e300' is more than 100 years."),
        ("a,0,1,four", "x.csv, line 3: gpus 'four' is not a number."),
        ("a,0,1,nan", "x.csv, line 3: gpus 'nan' is not a finite number."),
        ("a,0,1,-inf", "x.csv, line 3: gpus '-inf' is not a finite number."),
        ("a,0,1,1e7", "x.csv, line 3: gpus '1e7' is more than 1,000,000."),
        ("a,0,1", "x.csv, line 3: there are 3 fields under a header of 4."),
        ("first,0,1,1", "x.csv, line 3: id 'first' was already used in line 2."),
        (f"a,0,{'9x' * 50},1", f"x.csv, line 3: duration_s '{'9x' * 19}9…' is not a number."),
        (f"a,0,{'9' * 200_000},1", "x.csv, line 3: this is not CSV (field larger than field limit (131072))."),
    ],
)
def test_what_is_wrong_with_a_row_is_told(write: Write, row: str, sentence: str) -> None:
    _refused(sentence, write("x.csv", f"job_id,submit_s,duration_s,gpus\nfirst,0,1,1\n{row}\n"))


def test_every_error_of_a_table_is_told_at_once(write: Write) -> None:
    rows = ["a,soon,-1,four", "b,0,1", "c,0,1,1", "c,0,1,1", "d,0,1,1", "e,0,x,0"]
    with pytest.raises(BadFile) as bad:
        read(write("x.csv", "\n".join(["job_id,submit_s,duration_s,gpus", *rows])))
    assert [str(error) for error in bad.value.errors] == [
        "x.csv, line 2: duration_s '-1' is negative.",
        "x.csv, line 2: gpus 'four' is not a number.",
        "x.csv, line 2: submit_s 'soon' is not a number.",
        "x.csv, line 3: there are 3 fields under a header of 4.",
        "x.csv, line 5: id 'c' was already used in line 4.",
        "x.csv, line 7: duration_s 'x' is not a number.",
    ]


def test_every_error_of_slurms_output_is_told_at_once(write: Write) -> None:
    rows = [
        "1|yesterday|an hour|COMPLETED|gres/gpu=two",
        "2|2026-03-01T07:00:00|01:00:00|COMPLETED",
        "3|yesterday||RUNNING|gres/gpu=two",
    ]
    with pytest.raises(BadFile) as bad:
        read(write("m.txt", "\n".join(["JobID|Submit|Elapsed|State|AllocTRES", *rows])))
    assert [str(error) for error in bad.value.errors] == [
        "m.txt, line 2: AllocTRES gres/gpu 'two' is not a number.",
        "m.txt, line 2: Elapsed 'an hour' is not a time like 1-02:03:04.",
        "m.txt, line 2: Submit 'yesterday' is not a time like 2026-03-01T09:00:00.",
        "m.txt, line 3: there are 4 fields under a header of 5.",
        "m.txt, line 4: AllocTRES gres/gpu 'two' is not a number.",
    ]


def test_every_error_of_kubernetes_output_is_told_at_once(write: Write) -> None:
    wrong = kube(spec__parallelism=-1, status__startTime="noon", metadata__creationTimestamp="yesterday")
    with pytest.raises(BadFile) as bad:
        read(write("j.json", kubectl(wrong, {"kind": "Job"})))
    time = "is not a time like 2026-03-01T09:00:00."
    assert [str(error) for error in bad.value.errors] == [
        "j.json, item 1: nlp/bert-x7k2p: spec.parallelism '-1' is not a whole number.",
        f"j.json, item 1: nlp/bert-x7k2p: status.startTime 'noon' {time}",
        f"j.json, item 1: nlp/bert-x7k2p: metadata.creationTimestamp 'yesterday' {time}",
        "j.json, item 2: metadata.name is missing.",
    ]


def test_of_very_many_errors_a_thousand_are_kept_and_the_others_counted(write: Write) -> None:
    with pytest.raises(BadFile) as bad:
        read(write("x.csv", "job_id,submit_s,duration_s,gpus\n" + "a,0,1,x\n" * 1_234))
    assert (len(bad.value.errors), bad.value.more) == (1_000, 234)
    assert str(bad.value).splitlines()[0] == "x.csv: 1,234 errors."
    assert str(bad.value).splitlines()[-1] == "And 1,214 more."


def test_jobs_at_hand_are_read_without_a_file() -> None:
    assert read_jobs([KUBE_JOB], "seen").jobs[0].id == "nlp/bert-x7k2p"
    with pytest.raises(BadFile, match=r"^seen, item 1: metadata.name is missing\.$"):
        read_jobs([{"kind": "Job"}], "seen")


def test_a_line_is_counted_as_an_editor_counts_it(write: Write) -> None:
    table = 'job_id,submit_s,duration_s,gpus\n"two\nlines",0,1,1\n\nx,0,1,?\n'
    _refused("x.csv, line 5: gpus '?' is not a number.", write("x.csv", table))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "x.csv: the file is empty."),
        (b" \n\n", "x.csv: the file is empty."),
        (gzip.compress(b"", mtime=0), "x.csv: the file is empty."),
        (
            b"hello\nworld\n",
            (
                "x.csv: 3 errors.\n"
                "x.csv, line 1: there is no column submit_s, only hello; other names need a column mapping.\n"
                "x.csv, line 1: there is no column duration_s, only hello; other names need a column mapping.\n"
                "x.csv, line 1: there is no column gpus, only hello; other names need a column mapping."
            ),
        ),
        (
            b"submit_s,gpus,t\n1,1,1\n",
            "x.csv, line 1: there is no column duration_s, only submit_s, gpus, t; other names need a column mapping.",
        ),
        (b"submit_s,duration_s,gpus,gpus\n", "x.csv, line 1: the column gpus is there twice."),
        (b"submit_s,duration_s,gpus\n", "x.csv: no job in it can be used (there are no rows)."),
        (
            b"submit_s,duration_s,gpus\n1,1,0\n1,,1\n",
            "x.csv: no job in it can be used (1 × fewer than 1 GPU, 1 × no run time).",
        ),
        (b"submit_s,duration_s,gpus\n1,\xff,0\n", "x.csv, line 2: this is not UTF-8 text."),
        (gzip.compress(SMALL.encode(), mtime=0)[:-9], "x.csv: the gzip file is cut short or damaged."),
        (b"\x1f\x8bnonsense", "x.csv: the gzip file is cut short or damaged."),
    ],
)
def test_what_is_wrong_with_a_file_is_told(write: Write, content: bytes, sentence: str) -> None:
    _refused(sentence, write("x.csv", content))


def test_a_file_that_is_not_there_or_not_what_it_says_is_told(write: Write) -> None:
    _refused("none.csv: cannot be read (No such file or directory).", "none.csv")
    _refused(".: cannot be read (Is a directory).", ".")
    _refused("a\0b: this is not a file name.", "a\0b")
    _refused("x.csv.gz: the name ends in .gz and the content is not gzip.", write("x.csv.gz", SMALL))


def test_an_unknown_format_or_a_mapping_for_a_known_one_is_told(write: Write) -> None:
    path = write("x.csv", SMALL)
    _refused("x.csv: the format 'xml' is unknown; formats are penstock, csv, sacct, kubernetes.", path, format="xml")
    _refused("x.csv: a column mapping is for the format csv, not sacct.", path, format="sacct", columns={})


@given(
    content=st.binary(max_size=200)
    | st.text(st.sampled_from('job_id,submt_s,drain_s,gpu"|\n0.5-e{}[]:TZ'), max_size=200).map(str.encode)
    | st.lists(st.text(st.sampled_from('0123456789.-e,"\r\nnaif_'), max_size=20)).map(
        lambda rows: "\n".join(["job_id,submit_s,duration_s,gpus", *rows]).encode()
    ),
    chosen=st.sampled_from([None, *FORMATS]),
)
def test_no_content_ends_in_anything_but_jobs_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, chosen: str | None
) -> None:
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(content)
    columns = {"submit": "submit_s", "duration": "duration_s", "gpus": "gpus"} if chosen == "csv" else None
    try:
        message = f"{path} has {len(read(str(path), format=chosen, columns=columns).jobs)} jobs."
    except BadInput as bad:
        message = str(bad)
    for line in message.split("\n"):
        assert line.startswith((str(path), "And "))
        assert line.endswith(".")


def _refused(sentence: str, path: str, **how: Any) -> None:
    with pytest.raises(BadInput) as bad:
        read(path, **how)
    assert str(bad.value) == sentence


def test_a_gzip_bomb_is_one_sentence(write: Write) -> None:
    bomb = gzip.compress(bytes(200 << 20), compresslevel=9)
    assert wrong(write("bomb.csv.gz", bomb)) == ["the gzip file holds more than 64 MiB; no trace is packed so tightly."]


@pytest.mark.parametrize("control", ["\x1b[2J", "\x00", "\x07", "\x7f", "\x0c"])
def test_no_escape_of_a_file_reaches_a_terminal(write: Write, control: str) -> None:
    """Not of its header, nor of its rows."""
    message = f"there is a control character ({control[0]!r}); a trace is plain text."
    assert wrong(write("head.csv", f"submit_s,{control}\n1,2\n".encode())) == [message]
    assert wrong(write("row.csv", SMALL.encode() + f"{control}\n".encode())) == [message]


@pytest.mark.parametrize("spelled", ["\\u001b[2J", "\\ud800", "\\u009b"])
def test_nor_of_what_json_can_spell(write: Write, spelled: str) -> None:
    job = {
        "kind": "Job",
        "metadata": {"namespace": "a", "name": "NAME", "creationTimestamp": "2026-03-01T00:00:00Z"},
        "spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}},
        "status": {
            "startTime": "2026-03-01T00:00:00Z",
            "completionTime": "2026-03-01T01:00:00Z",
            "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-03-01T01:00:00Z"}],
        },
    }
    (message,) = wrong(write("jobs.json", json.dumps({"items": [job]}).replace("NAME", spelled).encode()))
    assert message.endswith("has characters that cannot be printed.")
    assert message.isprintable()


def wrong(path: str) -> list[str]:
    with pytest.raises(BadFile) as bad:
        read(path)
    return [error.message for error in bad.value.errors]
