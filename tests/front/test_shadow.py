"""Shadow mode looks and writes nothing; what it says comes from the same engine."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.core.units import HOUR
from penstock.devcluster.external import ExternalCluster
from penstock.sim.analysis.shadow import Followed, lives
from tests.front.kit import home_job

Json = dict[str, Any]
DELAY = "pod-complete.stage.kwok.x-k8s.io/delay"
OWNED = {"name": "a100", "term": "owned", "gpu": "A100", "gpus_per_node": 8, "nodes": 1}
RENTED = {
    "name": "a100", "term": "on_demand", "gpu": "A100", "gpus_per_node": 8, "sold_by": "attempt",
    "billing_step": "1s", "kill": "10s", "price": {"per": "gpu_hour", "list": 2},
}  # fmt: skip


def ordinary(name: str, gpus: int = 1) -> Json:
    """Nothing of Penstock on it."""
    job = home_job(name, gpus)
    for key in ("suspend", "managedBy"):
        del job["spec"][key]
    job["metadata"] = {"name": name}
    job["spec"]["template"]["metadata"] = {"annotations": {DELAY: "1500ms"}}
    return job


@pytest.mark.slow
def test_it_reports_what_ran_with_rights_to_look_only(lab: ExternalCluster, namespace: str, tmp_path: Path) -> None:
    """The account may get, list and watch: a single write would be refused, and the command would end with it."""
    looks = [{"apiGroups": ["", "batch"], "resources": ["jobs", "pods", "nodes"], "verbs": ["get", "list", "watch"]}]
    kubeconfig = lab.token_for(f"looker-{namespace}", looks)
    for name in ("a", "b"):
        job = ordinary(name)
        job["metadata"]["namespace"] = namespace
        lab.apply(job)
    lab.kubectl("-n", namespace, "wait", "job/a", "job/b", "--for=condition=Complete", "--timeout=55s")
    before = {kube_job["metadata"]["name"]: kube_job for kube_job in lab.get("-n", namespace, "jobs")["items"]}
    sites = {"currency": "EUR", "sites": [{"name": "lab", "front_door": True, "offers": [OWNED]}]}
    (tmp_path / "sites.yaml").write_text(yaml.safe_dump(sites))
    words = ["--once", "--json", "--sites", "sites.yaml", "--kubeconfig", str(kubeconfig), "-n", namespace]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "shadow", "--keep", "seen.json", *words],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["jobs_seen"] == 2
    (day,) = output["days"]
    assert (day["jobs"], day["would_burst"], day["would_cost"]) == (2, 0, 0)
    assert {kube_job["metadata"]["name"]: kube_job for kube_job in lab.get("-n", namespace, "jobs")["items"]} == before
    assert len(json.loads((tmp_path / "seen.json").read_text())["items"]) == 2


@pytest.mark.slow
def test_a_login_that_may_not_look_is_told_so_at_once(lab: ExternalCluster, namespace: str, tmp_path: Path) -> None:
    """With the kubeconfig of a home account it said so after half a minute: its watch was tried again meanwhile."""
    kubeconfig = lab.token_for(f"blind-{namespace}", [])
    sites = {"currency": "EUR", "sites": [{"name": "lab", "front_door": True, "offers": [OWNED]}]}
    (tmp_path / "sites.yaml").write_text(yaml.safe_dump(sites))
    words = ["shadow", "--once", "--sites", "sites.yaml", "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words],
        capture_output=True, text=True, cwd=tmp_path, timeout=25, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "This login may not list jobs in all namespaces; use the kubeconfig" in done.stderr


def followed(*jobs: Json) -> Followed:
    record = Followed()
    for job in jobs:
        record.see_job(None, job)
    return record


def seen(name: str, gpus: int, created: str, began: str, ended: str, uid: str = "", **pod: Any) -> Json:
    job = ordinary(name, gpus)
    job["metadata"] |= {"namespace": "vision", "uid": uid or name, "creationTimestamp": f"2026-11-16T{created}Z"}
    job["spec"]["template"]["spec"] |= pod
    job["status"] = {"startTime": f"2026-11-16T{created}Z", "completionTime": f"2026-11-16T{ended}Z"}
    job["began"] = began
    return job


def began(uid: str, at: str) -> Json:
    labels = {"batch.kubernetes.io/controller-uid": uid}
    states = [{"state": {"terminated": {"startedAt": f"2026-11-16T{at}Z"}}}]
    return {"metadata": {"labels": labels}, "status": {"containerStatuses": states}}


def report(record: Followed, tmp_path: Path, *others: Json, now: int = 0) -> Any:
    from penstock.cli.shadow import _scenario
    from penstock.config import read_sites
    from penstock.live.config_facts import policy_of
    from penstock.sim.analysis.shadow import compare, lives

    lab = {"name": "lab", "front_door": True, "driver": "kubernetes", "offers": [OWNED]}
    path = tmp_path / "sites.yaml"
    text = {"currency": "EUR", "sites": [lab, *others], "policy": {"cost_of_delay": 100000}}
    path.write_text(yaml.safe_dump(text))
    jobs = lives(record, now)
    file = read_sites(str(path))
    return compare(record, jobs, _scenario(jobs, file), policy_of(file), "lab")


def test_two_jobs_that_queued_for_hours_would_have_run_at_once_for_a_price(tmp_path: Path) -> None:
    record = followed(
        seen("a", 8, "08:00:00", "", "12:00:00"),
        seen("b", 8, "08:30:00", "", "14:00:00"),
    )
    record.see_pod(None, began("a", "08:00:00"))
    record.see_pod(None, began("b", "12:00:00"))
    east = {"name": "east", "driver": "kubernetes", "offers": [RENTED], "maps": {"namespaces": {"vision": "vision"}}}
    (day,) = report(record, tmp_path, east)
    assert (day.day, day.jobs, day.would_burst) == ("2026-11-16", 2, 1)
    assert day.waited_hours == 3.5
    assert day.saved_hours > 3
    assert 30_000_000 < day.would_cost < 35_000_000  # two hours of eight GPUs at 2 an hour each


def test_one_that_may_not_leave_would_have_waited(tmp_path: Path) -> None:
    volume = {"name": "s", "persistentVolumeClaim": {"claimName": "scratch"}}
    record = followed(
        seen("a", 8, "08:00:00", "", "12:00:00"),
        seen("b", 8, "08:30:00", "", "14:00:00", volumes=[volume]),
    )
    record.see_pod(None, began("b", "12:00:00"))
    east = {"name": "east", "driver": "kubernetes", "offers": [RENTED], "maps": {"namespaces": {"vision": "vision"}}}
    (day,) = report(record, tmp_path, east)
    assert (day.would_burst, day.stays_home, day.would_cost) == (0, 1, 0)


def test_what_runs_and_waits_is_judged_by_what_it_is_expected_to_take(tmp_path: Path) -> None:
    """Three of a kind took four hours; at noon the fourth has run for one, and the fifth has waited for two."""
    past = [seen(f"train-{k}", 8, f"0{k}:00:00", "", f"0{k + 4}:00:00", uid=f"u-{k}") for k in range(3)]
    runs, waits = seen("train-8", 8, "10:00:00", "", ""), seen("train-9", 8, "10:00:00", "", "")
    for job in (runs, waits):
        job["status"] = {}
    record = followed(*past, runs, waits)
    for k in range(3):
        record.see_pod(None, began(f"u-{k}", f"0{k}:00:00"))
    record.see_pod(None, began("train-8", "11:00:00"))
    noon = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)
    jobs = lives(record, noon)
    assert {name: (life.phase, life.waited_ms // HOUR) for name, life in jobs.items() if life.phase != "ended"} == {
        "vision/train-8": ("running", 1),
        "vision/train-9": ("waiting", 2),
    }
    ends = {name: life.job["status"]["completionTime"] for name, life in jobs.items()}
    assert "2026-11-16T14" < ends["vision/train-8"] < "2026-11-16T17"
    assert "2026-11-16T14" < ends["vision/train-9"] < "2026-11-16T18"  # three are few, and it is careful
    east = {"name": "east", "driver": "kubernetes", "offers": [RENTED], "maps": {"namespaces": {"vision": "vision"}}}
    (day,) = report(record, tmp_path, east, now=noon)
    assert (day.jobs, day.running, day.waiting) == (5, 1, 1)
    assert day.would_burst >= 1
    assert day.waited_hours == 3
    assert 2 < day.saved_hours <= 3  # not more than was waited: of what waits still, only up to now


def test_two_jobs_of_one_name_one_after_the_other_are_two(tmp_path: Path) -> None:
    record = followed(
        seen("a", 8, "08:00:00", "", "09:00:00", uid="u-1"),
        seen("a", 8, "10:00:00", "", "11:00:00", uid="u-2"),
    )
    (day,) = report(record, tmp_path)
    assert day.jobs == 2


def test_what_was_seen_is_kept_over_a_restart(tmp_path: Path) -> None:
    first = Followed(tmp_path / "seen.json")
    first.see_job(None, seen("a", 8, "08:00:00", "", "09:00:00"))
    first.see_pod(None, began("a", "08:15:00"))
    first.save()
    again = Followed(tmp_path / "seen.json")
    assert again.by_name() == first.by_name()
    again.see_job(None, None)
    assert again.by_name() == first.by_name()
