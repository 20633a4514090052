"""Leaving, on real pods: every Job is given back as it is at that moment, and no cluster bears a mark of ours."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup
from penstock.devcluster.external import Refusal
from penstock.devcluster.images import BUSYBOX
from penstock.kube import annotations
from tests.front.kit import binding, home_job
from tests.front.setting import LIMIT_S, Setting

pytestmark = pytest.mark.slow
KINDS = "jobs,pods,configmaps,leases,secrets,services,serviceaccounts"
#: Until somebody opens the door.
WAITS = "until [ -e /tmp/open ]; do sleep 0.1; done; echo ended"
#: The first attempt trains for long, and has kept its work when it is told to stop; the next one is soon done.
TRAVELS = (
    "case $PENSTOCK_ATTEMPT in *.1) trap 'exit 0' TERM; echo penstock: checkpoint step 5; sleep 600 & wait;;"
    " *) echo came home;; esac"
)
#: What is on the machine never travels.
AT_HOME = {"volumes": [{"name": "scratch", "hostPath": {"path": "/tmp"}}]}
POLICY = """version: 1
cost_of_delay: 100000
rules:
  - {name: no-experiments, deny: job.class == "experiment", because: Experiments run on the old cluster}
"""
Json = dict[str, Any]


@pytest.fixture
def setting(real_bed: ClusterGroup, tmp_path: Path) -> Iterator[Setting]:
    made = Setting(real_bed, tmp_path, gpus=4, policy=POLICY)
    made.up()
    try:
        until_home_is_free(made)
        yield made
    finally:
        made.end()


def until_home_is_free(setting: Setting) -> None:
    """These clusters had other tests' pods a moment ago, and a kubelet that is new there shows no GPUs yet."""
    until = time.monotonic() + LIMIT_S
    while True:
        (lab,) = [site for site in json.loads(setting.says("sites", "--json"))["sites"] if site["id"] == "lab"]
        if lab["offers"][0]["idle"] == setting.gpus:
            return
        assert time.monotonic() < until, lab
        time.sleep(0.2)


def job(name: str, gpus: int, does: str, **more: Any) -> Json:
    wishes = {"run-time": "4h", "checkpoint-every": "1s", **more.pop("annotations", {})}
    made = home_job(name, gpus, annotations=wishes, **more)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container |= {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", does]}
    return made


def test_what_waits_really_runs_what_runs_is_shown_to_its_end_what_is_away_comes_home_and_no_mark_stays(
    setting: Setting,
) -> None:
    runs = "jsonpath={.status.ready}=1"
    applied(setting, job("at-home", 4, WAITS))
    setting.waits("at-home", runs)
    applied(setting, job("away", 2, TRAVELS))
    setting.waits("away", runs)
    assert binding(shown(setting, "away"))["site"] == "east"
    applied(setting, job("waiting", 1, "echo ran by itself", pod=AT_HOME))
    setting.waits("waiting", "jsonpath={.status.conditions[0].reason}=OnlyOwned")
    is_denied_by_a_rule(setting)

    with leaving(setting) as leave:
        waits_again(setting, "waiting", "jsonpath={.status.active}=1")  # its pod is made, and waits for room
        (pod,) = setting.lab.get("-n", setting.namespace, "pods", "-l", annotations.EXECUTION)["items"]
        setting.lab.kubectl("-n", setting.namespace, "exec", pod["metadata"]["name"], "--", "touch", "/tmp/open")
        for name in ("at-home", "away", "waiting"):
            setting.waits(name, "condition=Complete")
        stdout, trouble = leave.communicate(timeout=LIMIT_S)
    assert (leave.returncode, stdout.count("of Penstock is left there")) == (0, 2), stdout + trouble

    assert "ran by itself" in setting.lab.kubectl("-n", setting.namespace, "logs", "job/waiting")
    assert [marks_in(cluster, setting.namespace) for cluster in (setting.lab, setting.east)] == [[], []]
    story = setting.says("why", "j1")
    assert "Running on lab/a100" in story.partition("Running on east/a100")[2], story


def is_denied_by_a_rule(setting: Setting) -> None:
    """Its Event names the rule, its reason, its file and its line; no pod is made for it."""
    applied(setting, job("denied", 1, "echo never", annotations={"class": "experiment"}))
    setting.described("denied", "no-experiments")
    description = setting.lab.kubectl("-n", setting.namespace, "describe", "job", "denied")
    (event,) = [line for line in description.splitlines() if "NothingAllowed" in line and "no-experiments" in line]
    assert event.endswith("rule no-experiments: Experiments run on the old cluster (policy.yaml:4).")
    pods = setting.lab.get("-n", setting.namespace, "pods")["items"]
    assert [pod["metadata"]["name"] for pod in pods if "denied" in pod["metadata"]["name"]] == []
    setting.lab.kubectl("-n", setting.namespace, "delete", "job", "denied")


def waits_again(setting: Setting, name: str, what: str) -> None:
    """Of a Job that is given back: it is deleted and created anew, so for a moment there is none to wait for."""
    by = time.monotonic() + LIMIT_S
    while True:
        try:
            setting.waits(name, what)
            return
        except Refusal as error:
            if "NotFound" not in str(error) or time.monotonic() > by:
                raise
            time.sleep(0.1)


def applied(setting: Setting, made: Json) -> None:
    made["metadata"]["namespace"] = setting.namespace
    setting.lab.apply(made)


def shown(setting: Setting, name: str) -> Json:
    return setting.lab.get("-n", setting.namespace, "job", name)


@contextmanager
def leaving(setting: Setting) -> Iterator["subprocess.Popen[str]"]:
    """It goes on until nothing of ours is left."""
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "leave", "--bring-home"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=setting.env,
    ) as going:  # fmt: skip
        try:
            yield going
        finally:
            going.kill()


def marks_in(cluster: Any, namespace: str) -> list[str]:
    """Labels, annotations and finalizers of ours, on whatever is there."""
    marked = [item["metadata"] for item in cluster.get("-n", namespace, KINDS)["items"]]
    words = [
        word
        for metadata in marked
        for part in ("labels", "annotations", "finalizers")
        for word in metadata.get(part) or ()
    ]
    return [word for word in words if annotations.DOMAIN in word]
