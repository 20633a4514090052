"""What people type, against a Penstock that was started as people start it, on two clusters."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.devcluster import Bed
from penstock.devcluster.cluster import Cluster
from penstock.kube import names
from tests.front.kit import home_job

pytestmark = pytest.mark.slow
LIMIT_S = 60
Types = Callable[..., subprocess.CompletedProcess[str]]


class Setting:
    """One namespace in two clusters, a sites file, and the Penstock that reads it."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.lab, self.east, self.folder = bed.cluster("lab"), bed.cluster("east"), folder
        self.namespace = self.lab.new_namespace()
        self.east.new_namespace(self.namespace)
        self.sites = folder / "sites.yaml"
        self.sites.write_text(yaml.safe_dump(self._sites()))
        self.env = os.environ | {"PENSTOCK_HOME": str(folder / "home"), "KUBECONFIG": str(self.lab.kubeconfig)}

    def _sites(self) -> dict[str, Any]:
        def cluster(one: Cluster) -> dict[str, Any]:
            return {"kubeconfig": str(one.kubeconfig), "namespace": self.namespace, "shared": True}

        offer = {"name": "a100", "gpu": "A100", "gpus_per_node": 8}
        rented = {"term": "on_demand", "sold_by": "attempt", "billing_step": "1s", "kill": "10s", "start": "1s"}
        price = {"per": "gpu_hour", "list": 2}
        return {
            "currency": "EUR",
            "sites": [
                {
                    "name": "lab", "driver": "kubernetes", "front_door": True, "kubernetes": cluster(self.lab),
                    "offers": [{**offer, "term": "owned"}],
                },
                {
                    "name": "east", "driver": "kubernetes", "kubernetes": cluster(self.east),
                    "maps": {"namespaces": {self.namespace: self.namespace}},
                    "offers": [{**offer, **rented, "price": price}],
                },
            ],
            "policy": {"value_of_waiting": 100000},
        }  # fmt: skip

    def up(self) -> None:
        command = [sys.executable, "-m", "penstock.cli", "up", "--sites", str(self.sites), "--port", "0", "--json"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.env)
        assert self.server.stdout is not None
        line = ""
        while line.rstrip() != "}":
            line = self.server.stdout.readline()
            assert line, f"penstock up ended with {self.server.wait()}"

    def down(self) -> None:
        self.server.send_signal(signal.SIGTERM)
        assert self.server.wait(timeout=LIMIT_S) == 0
        assert self.server.stdout is not None
        self.server.stdout.close()

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`penstock ...`, or `kubectl penstock ...`."""
        module = "penstock.cli"
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.env, timeout=LIMIT_S, cwd=self.folder, check=False
        )

    def says(self, *words: str) -> str:
        done = self.types(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def writes(self, name: str, **more: Any) -> str:
        """A Job as people write one, in a file: nothing of ours on it."""
        job = home_job(name, **more)
        for key in ("suspend", "managedBy"):
            del job["spec"][key]
        del job["metadata"]["labels"]
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(job))
        return f"{name}.yaml"

    def described(self, name: str, word: str) -> None:
        """`kubectl describe` says so, once the Event is there: it comes after the status."""
        until = time.monotonic() + LIMIT_S
        while word not in (told := self.lab.kubectl("-n", self.namespace, "describe", "job", name)):
            assert time.monotonic() < until, told
            time.sleep(0.1)

    def waits(self, name: str, what: str) -> None:
        self.lab.kubectl("-n", self.namespace, "wait", f"job/{name}", f"--for={what}", "--timeout=55s")


@pytest.fixture
def setting(own_bed: Bed, tmp_path: Path) -> Iterator[Setting]:
    made = Setting(own_bed, tmp_path)
    made.up()
    yield made
    if made.server.poll() is None:
        made.down()
    for cluster in (made.lab, made.east):
        for job in cluster.get("-n", made.namespace, "jobs")["items"]:
            cluster.kubectl(
                *("-n", made.namespace, "patch", "job", job["metadata"]["name"], "--type=merge"),
                *("-p", '{"metadata":{"finalizers":null}}'),
            )
        cluster.kubectl("delete", "namespace", made.namespace, "--timeout=55s")


def test_apply_plan_why_and_leave_as_people_type_them(setting: Setting) -> None:
    """One story, because starting a Penstock on two clusters takes a while."""
    n = ("-n", setting.namespace)
    file = setting.writes("a")
    assert "start now on lab/a100" in setting.says("kubectl", "plan", "-f", file, "--team", "vision", *n)
    assert setting.types("kubectl", "apply", "-f", file, *n).stderr.startswith("Error: Whose job is it?")
    assert setting.says("kubectl", "apply", "-f", file, "--team", "vision", *n) == "job.batch/a\n"
    setting.waits("a", "jsonpath={.status.ready}=1")
    assert "Starts on lab/a100" in setting.says("kubectl", "why", "a", *n)
    assert setting.types("kubectl", "why", "b", *n).stderr == (
        f"Error: There is no Job 'b' in namespace {setting.namespace}.\n"
    )

    assert setting.says("submit", "-f", setting.writes("b"), "--team", "vision", *n) == "b\n"
    setting.waits("b", "jsonpath={.status.ready}=1")
    told = setting.says("kubectl", "why", "b", *n)
    assert "Bursts to east/a100" in told
    setting.described("b", "NotWorthWaiting")

    volume = {"name": "s", "persistentVolumeClaim": {"claimName": "scratch"}}
    bound = setting.writes("c", pod={"volumes": [volume]})
    planned = setting.says("kubectl", "plan", "-f", bound, "--team", "vision", *n)
    assert "wait for owned GPUs" in planned
    assert "it needs volume scratch, and east has no map for it" in planned
    setting.says("submit", bound, "--team", "vision", *n)
    setting.waits("c", "jsonpath={.status.conditions[0].reason}=OnlyOwned")
    judged = json.loads(setting.says("portability", "--sites", "sites.yaml", "--json", *n))
    verdicts = {one["job"].partition("/")[2]: one["verdict"] for one in judged}
    assert verdicts == {"a": "could burst to east", "b": "could burst to east", "c": "needs a map"}

    setting.lab.kubectl(*n, "delete", "job", "a", "b", "c", "--timeout=55s")
    assert "nothing of Penstock is left there" in setting.says("leave")
    there = setting.lab.get(*n, "jobs,configmaps,leases")["items"]
    assert names.DOMAIN not in json.dumps(there)
