"""A job file becomes a job, and whatever is wrong with it is one sentence that names file, line and key."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.convert import keys_of
from penstock.config.jobs import (
    GpuSection,
    JobFile,
    JobSection,
    WidthSection,
    job_body,
    json_schema,
    parse_job,
    parse_json_job,
)
from penstock.core.errors import BadInput
from penstock.core.model.types import GpuChoice, JobSpec
from penstock.core.units import HOUR, MINUTE, money
from tests.config.tables import stated
from tests.conftest import ROOT

EXAMPLE = ROOT / "examples" / "job.yaml"


def parsed(text: str) -> JobFile:
    return parse_job(text.encode(), "job.yaml")


def test_the_smallest_job() -> None:
    assert parsed("command: python train.py\ngpus: 1") == JobFile(JobSpec(1), ("sh", "-c", "python train.py"))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("gpus: 100001", "gpus: '100001' is not a whole number from 1 to 100,000."),
        (
            "gpus: 101\ncount: 1000",
            "gpus: 101,000 GPUs for 1,000 jobs are too many for one submission; at most 100,000.",
        ),
        (
            "gpus: 1\noutput: 1001PB",
            "output: '1001PB' is not a size above zero like 500MB, 200GB or 1.5TB, at most 1,000PB.",
        ),
    ],
)
def test_what_is_beyond_a_bound_is_refused_with_the_bound(keys: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=r"job.yaml, line \d") as refused:
        parsed(f"command: x\n{keys}")
    assert str(refused.value).endswith(sentence)


def test_the_example_is_a_job() -> None:
    job = parse_job(EXAMPLE.read_bytes(), str(EXAMPLE))
    assert job.command == ("python", "train.py", "--epochs", "3")
    assert job.env == (("LR", "0.0003"),)
    assert job.spec.cap == money("40")


def test_every_key_reaches_the_job() -> None:
    job = parsed("""
command: [./go, "*"]
gpus: 2
name: <b>x</b>; rm -rf /
team: vision
project: p
class: critical
priority: -3
gpu: [A100, {model: H100, speed: 1.8}]
gpu_order: true
mig: 1g.10gb
scaling: [{gpus: 4, speed: 1.7}]
run_time: 90m
checkpoint_every: 5m
interruptible: false
grace: 1m
restart: 30s
deadline: 1d
penalty_per_hour: 1.50
lease_max: 2h
cap: 12.34
data: [images]
data_class: personal
output: 5GB
count: 3
env: {A: "=1", B: "x\\ny"}
folder: /somewhere
""")
    assert job == JobFile(
        spec=JobSpec(
            gpus=2, expected_run_ms=90 * MINUTE, checkpoint_every_ms=5 * MINUTE, name="<b>x</b>; rm -rf /",
            project="p", job_class="critical", priority=-3, gpu_models=(GpuChoice("A100"), GpuChoice("H100", 1800)),
            models_ordered=True, mig_profile="1g.10gb", scaling=((4, 1700),), interruptible=False,
            penalty_per_hour=money("1.50"), data=("images",), data_class="personal", output_bytes=5_000_000_000,
            cap=money("12.34"), grace_ms=MINUTE, restart_ms=30_000, lease_max_ms=2 * HOUR, count=3,
        ),
        command=("./go", "*"),
        env=(("A", "=1"), ("B", "x\ny")),
        folder="/somewhere",
        deadline_ms=24 * HOUR,
        team="vision",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "job.yaml: the file is empty; it needs at least 'command' and 'gpus' (docs/jobs.md shows how)."),
        ("- a", "job.yaml: this must be a group of keys; it is a list."),
        ("gpus: 1", "job.yaml: the key 'command' is missing."),
        ("gpus: two\ncommand: x", "job.yaml, line 1, gpus: 'two' is not a whole number from 1 to 100,000."),
        ("gpus: 1\ncomand: x\ncommand: y", "job.yaml, line 2: unknown key 'comand'; did you mean 'command'?"),
        ("gpus: 1\ncommand: []", "job.yaml, line 2, command: it is empty; write what to run, like [python, train.py]."),
        (
            "gpus: 1\ncommand: x\nclass: two words",
            (
                "job.yaml, line 3, class: 'two words' is not a name: up to 63 letters, digits, '-', '_' and '.', "
                "without spaces or slashes."
            ),
        ),
        (
            "gpus: 1\ncommand: x\nenv: {1A: b}",
            "job.yaml, line 3, env: '1A' is not a name of a variable: letters, digits and '_', no digit first.",
        ),
        (
            "gpus: 1\ncommand: x\nenv:\n  PENSTOCK_RESUME: b",
            "job.yaml, line 4, env.PENSTOCK_RESUME: variables that begin with PENSTOCK_ are set by Penstock;",
        ),
        (
            "gpus: 1\ncommand: x\nfolder: here",
            "job.yaml, line 3, folder: 'here' must begin with /; the site does not know where you are.",
        ),
        (
            "gpus: 2\ncommand: x\nscaling:\n- {gpus: 4, speed: 1.5}\n- {gpus: 3, speed: 2}",
            "job.yaml, line 5, scaling[1]: widths rise from 'gpus' on, and so do their speeds, from 1 on.",
        ),
        (
            "gpus: 1\ncommand: x\ngpu_order: true",
            "job.yaml, line 3, gpu_order: an order of preference needs several models under 'gpu'.",
        ),
        (
            'gpus: 1\ncommand: x\nname: "a\\nb"',
            "job.yaml, line 3, name: 'a\\nb' is not a text: one line of up to 200 characters.",
        ),
        ("gpus: 1\ncommand: x\ncount: 1001", "job.yaml, line 3, count: '1001' is not a whole number from 1 to 1,000."),
        (
            "gpus: 1\ncommand: x\ncommand: y",
            "job.yaml, line 2, command: this key is here twice; the second is in line 3.",
        ),
        (
            "gpus: 1\ncommand: x\ngpu: [{model: A, speed: 0}]",
            "job.yaml, line 3, gpu[0].speed: a speed is against the model the run time is for: 1 as fast, 0.5 half.",
        ),
        ("gpus: !x 1\ncommand: x", "job.yaml, line 1, gpus: the YAML tag '!x' means nothing here; leave it out."),
    ],
)
def test_what_is_wrong_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(BadInput) as error:
        parsed(text)
    assert str(error.value).startswith(says)


def test_json_is_the_same_job() -> None:
    text = EXAMPLE.read_text("utf-8")
    assert parse_json_job(json.dumps(yaml.safe_load(text)).encode(), "job.yaml") == parsed(text)
    numbers = b'{"gpus": 2, "command": ["x"], "interruptible": false, "cap": 1.10, "env": {"A": 1}}'
    job = parse_json_job(numbers, "body")
    assert (job.spec.gpus, job.spec.interruptible, job.spec.cap, job.env) == (2, False, money("1.10"), (("A", "1"),))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "body: not JSON (Expecting property name enclosed in double quotes, line 1, column 2)."),
        (b"\xff", "body: not UTF-8 text; send it as UTF-8."),
        (b'{"gpus": 1, "gpus": 2, "command": "x"}', "body: the key 'gpus' is there twice."),
        (b'{"gpus": 1, "command": "\\ud800"}', "body, command[2]: "),
        (b"[" * 100_000, "body: nested too deeply for a job file."),
        (b"null", "body: this must be a group of keys; it is empty."),
    ],
)
def test_wrong_json_is_one_sentence(raw: bytes, says: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_json_job(raw, "body")
    assert str(error.value).startswith(says)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["gpus", "command", "gpu", "env", "scaling", "x"]), x),
    )
)
def test_whatever_comes_is_a_job_or_bad_input(content: Any) -> None:
    for parse, text in ((parse_json_job, json.dumps(content)), (parse_job, yaml.safe_dump(content))):
        with contextlib.suppress(BadInput):
            assert parse(text.encode(), "body").spec.gpus >= 1


def test_the_documentation_has_each_key_once_and_no_other() -> None:
    for place, row in {"": JobSection, "gpu": GpuSection, "scaling": WidthSection}.items():
        assert list(stated("jobs.md", place or "The job")) == list(keys_of(row))


def test_the_schema_for_the_api_has_each_key() -> None:
    schema = json_schema()
    assert list(schema["properties"]) == list(keys_of(JobSection))
    assert schema["required"] == ["command", "gpus"]
    assert "$ref" not in json.dumps(schema)


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        job_body(str(tmp_path / "none.yaml"))


def test_a_folder_in_a_file_is_from_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: x\ngpus: 1\nfolder: code\n")
    assert job_body(str(tmp_path / "job.yaml"))["folder"] == str(tmp_path / "code")
