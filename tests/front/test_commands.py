"""What people type, against a Penstock that was started as people start it, on two clusters."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.devcluster import ClusterGroup
from penstock.kube import annotations
from tests.front.setting import Setting

pytestmark = pytest.mark.slow


@pytest.fixture
def setting(own_bed: ClusterGroup, tmp_path: Path) -> Iterator[Setting]:
    made = Setting(own_bed, tmp_path)
    made.up()
    yield made
    made.end()


def test_apply_plan_why_and_leave_as_people_type_them(setting: Setting) -> None:
    """One story, because starting a Penstock on two clusters takes a while."""
    n = ("-n", setting.namespace)
    file = setting.writes("a")
    assert "If submitted now: Starts on lab/a100" in setting.says("kubectl", "plan", "-f", file, "--team", "vision", *n)
    stderr = setting.types("kubectl", "apply", "-f", file, *n).stderr
    assert stderr.startswith("Error: a.yaml, document 1: Whose job is it?")
    assert setting.says("kubectl", "apply", "-f", file, "--team", "vision", *n) == "job.batch/a created\n"
    setting.waits("a", "jsonpath={.status.ready}=1")
    assert "Starts on lab/a100" in setting.says("kubectl", "why", "a", *n)
    assert setting.says("kubectl", "apply", "-f", file, *n) == "job.batch/a unchanged\n"  # and it still runs
    assert setting.lab.get(*n, "job", "a")["status"]["ready"] == 1
    assert setting.types("kubectl", "why", "b", *n).stderr == (
        f"Error: There is no Job 'b' in namespace {setting.namespace}.\n"
    )

    assert setting.says("submit", "-f", setting.writes("b"), "--team", "vision", *n) == "b\n"
    setting.waits("b", "jsonpath={.status.ready}=1")
    output = setting.says("kubectl", "why", "b", *n)
    assert "Bursts to east/a100" in output
    setting.described("b", "NotWorthWaiting")

    volume = {"name": "s", "persistentVolumeClaim": {"claimName": "scratch"}}
    bound = setting.writes("c", pod={"volumes": [volume]})
    planned = setting.says("kubectl", "plan", "-f", bound, "--team", "vision", *n)
    assert planned.splitlines()[0] == (
        "If submitted now: Queued for owned GPUs: 0 GPUs free. "
        "It cannot burst: it needs volume scratch, and east has no map for it."
    )
    setting.says("submit", bound, "--team", "vision", *n)
    setting.waits("c", "jsonpath={.status.conditions[0].reason}=OnlyOwned")
    judged = json.loads(setting.says("portability", "--sites", "sites.yaml", "--json", *n))
    verdicts = {row["job"].partition("/")[2]: row["verdict"] for row in judged}
    assert verdicts == {"a": "could burst to east", "b": "could burst to east", "c": "needs a map"}

    setting.lab.kubectl(*n, "delete", "job", "a", "b", "c", "--timeout=55s")
    assert "of Penstock is left there" in setting.says("leave")
    there = setting.lab.get(*n, "jobs,configmaps,leases")["items"]
    assert annotations.DOMAIN not in json.dumps(there)
