"""One mistake anywhere in a file is a sentence that names it, and never a traceback: sites, policies, jobs, cases, and
traces.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from penstock.assess.sources.sacct import read_sacct
from penstock.assess.sources.tables import read_table
from penstock.config import parse_sites, read_sites
from penstock.config.jobs import parse_job, parse_json_job
from penstock.core.errors import BadFile, BadInput
from penstock.live.config_facts import configured
from penstock.policy.cases import read_cases
from penstock.policy.file import governed, parse_policy
from penstock.policy.rules import compile_all
from penstock.sim.traces import trace
from tests.config.typos import FEW, MANY, mistakes, tree_of, written
from tests.conftest import ROOT

EXAMPLES: Final = ROOT / "examples"
SITES: Final = sorted(path.name for path in EXAMPLES.glob("*.yaml") if "\nsites:" in path.read_text())
LONGEST: Final = 700  #: letters of one message
Read = Callable[[bytes], object]


def sentences(read: Read, files: Iterator[tuple[str, bytes]]) -> int:
    """How many of them are refused, each by a sentence. What is no `BadInput` ends the test, and says of which file."""
    refused = 0
    for what, raw in files:
        try:
            read(raw)
        except BadInput as error:
            refused += 1
            said = str(error).rstrip()
            longest = max(len(str(one)) for one in (error.errors if isinstance(error, BadFile) else [error]))
            if longest > LONGEST:
                raise AssertionError(f"{what}: a message of {longest} letters") from None
            if not said.endswith((".", "?")):
                raise AssertionError(f"{what}: {said}") from None
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
    return refused


def files(text: str, values: tuple[Any, ...]) -> Iterator[tuple[str, bytes]]:
    return ((what, written(tree)) for what, tree in mistakes(tree_of(text), values))


def sites(raw: bytes) -> object:
    return configured(parse_sites(raw, "sites.yaml"))


def policy(raw: bytes) -> object:
    around = read_sites(str(EXAMPLES / "sites.yaml"))
    file = parse_policy(raw, "policy.yaml", around)
    compile_all(file.governance)
    return configured(governed(around, file))


def json_job(raw: bytes) -> object:
    return parse_json_job(json.dumps(tree_of(raw.decode())).encode(), "job.json")


@pytest.mark.parametrize("name", ["transient.yaml", "gitops.yaml"])
def test_one_mistake_in_a_sites_file_is_a_sentence(name: str) -> None:
    """A version of three letters, or a site's bad name beside `cluster`, ended in a traceback about 'Unread'."""
    assert sentences(sites, files((EXAMPLES / name).read_text(), FEW)) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", SITES)
def test_any_mistake_in_any_example_is_a_sentence(name: str) -> None:
    values = MANY if name in ("sites.yaml", "gitops.yaml", "transient.yaml", "cluster.yaml") else FEW
    assert sentences(sites, files((EXAMPLES / name).read_text(), values)) > 100


#: Every key of a job file.
JOB = """
command: [python, train.py]
gpus: 8
name: train
team: vision
project: p
class: training
priority: 5
gpu: [{model: A100, speed: 1.5}, {model: H100}]
gpu_order: true
scaling: [{gpus: 4, speedup: 1.8}]
run_time: 4h
checkpoint_every: 10m
interruptible: true
grace: 30s
restart: 1m
deadline: 3d
penalty_per_hour: 10
lease_max: 1d
cap: 100
data: [images]
data_class: internal
output: 1 GB
count: 2
env: {A: b}
folder: /tmp
image: python:3.12
"""


@pytest.mark.parametrize("read", [lambda raw: parse_job(raw, "job.yaml"), json_job], ids=["yaml", "json"])
def test_any_mistake_in_a_job_is_a_sentence(read: Read) -> None:
    assert sentences(read, files(JOB, FEW)) > 100


@pytest.mark.slow
def test_any_mistake_in_a_policy_file_is_a_sentence() -> None:
    assert sentences(policy, files((EXAMPLES / "policy.yaml").read_text(), MANY)) > 100


@pytest.mark.slow
def test_any_mistake_in_cases_of_a_policy_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "policy_test.yaml"

    def read(raw: bytes) -> object:
        path.write_bytes(raw)
        return read_cases(str(path), str(EXAMPLES / "sites.yaml"))

    assert sentences(read, files((EXAMPLES / "policy_test.yaml").read_text(), FEW)) > 50


# --- traces -----------------------------------------------------------------------------------------------------------

CELLS: Final = (
    "x", "", "-1", "NaN", "inf", "1e999", "9" * 400, "2026-13-45", "a|b", "ü" * 3_000, "c|" * 900, '"', "1e17", "0x10",
)  # fmt: skip
TRACE = """job_id,submit_s,duration_s,gpus,user_or_group,name,project,job_class,priority,checkpoint_s,deadline_s,start_s
a,0,60,1,vision,n,p,training,5,10,1000,5
b,10,60,8,vision,n,p,training,5,10,1000,20
"""
SACCT = """JobID|JobName|User|Account|Submit|Start|End|State|AllocTRES|ReqTRES|Elapsed|Priority|QOS|Partition
1|a|u|acc|2026-11-01T09:00:00|2026-11-01T09:05:00|2026-11-01T10:00:00|COMPLETED|gres/gpu=8|gres/gpu=8|00:55:00|1|q|p
2|b|u|acc|2026-11-01T09:00:00|Unknown|Unknown|PENDING||gres/gpu=8|00:00:00|1|q|p
"""


def tables(text: str, delimiter: str) -> Iterator[tuple[str, bytes]]:
    """Each cell, headers included, as something else; then each left out."""
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    for y, row in enumerate(rows):
        for x in range(len(row)):
            for cell in (*CELLS, None):
                changed = [list(other) for other in rows]
                changed[y][x : x + 1] = [] if cell is None else [cell]
                out = "\n".join(delimiter.join(other) for other in changed)
                yield f"row {y}, column {x}: {cell!r:.40}", out.encode()


@pytest.mark.parametrize("reader", ["simulate", "assess"])
@pytest.mark.parametrize("kind", ["csv", "sacct"])
def test_any_mistake_in_a_trace_is_a_sentence(tmp_path: Path, reader: str, kind: str) -> None:
    path, zone = tmp_path / "trace", ZoneInfo("UTC")
    text, delimiter = (TRACE, ",") if kind == "csv" else (SACCT, "|")

    def read(raw: bytes) -> object:
        path.write_bytes(raw)
        if reader == "simulate":
            return trace.read(str(path), format={"csv": "penstock", "sacct": "sacct"}[kind])
        return read_table(str(path), zone) if kind == "csv" else read_sacct(str(path), zone)

    assert sentences(read, tables(text, delimiter)) > 20


def test_any_mistake_in_kubernetes_jobs_is_a_sentence(tmp_path: Path) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": "vision", "uid": "u", "creationTimestamp": "2026-11-01T09:00:00Z"},
        "spec": {"parallelism": "2", "completions": "2", "template": {"spec": {"containers": [limits]}}},
        "status": {"startTime": "2026-11-01T09:00:00Z", "completionTime": "2026-11-01T10:00:00Z", "succeeded": "2"},
    }
    listed = {"apiVersion": "v1", "kind": "List", "items": [job]}
    path = tmp_path / "jobs.json"

    def read(raw: bytes) -> object:
        path.write_bytes(raw)
        return trace.read(str(path), format="kubernetes")

    sentences(read, ((what, json.dumps(tree).encode()) for what, tree in mistakes(listed, (*MANY, 5, -1, 1e300, True))))
