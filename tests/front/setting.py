"""A Penstock that was started as people start it, on two clusters, and what people type at it. `test_commands` here and
`tests/e2e/test_leaving.py` use it, on kwok's pods and on real ones.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from penstock.devcluster import ClusterGroup
from penstock.devcluster.cluster import DevCluster
from tests.front.kit import home_job

LIMIT_S = 60


class Setting:
    """One namespace in two clusters, a sites file, and the Penstock that reads it."""

    def __init__(self, bed: ClusterGroup, folder: Path, gpus: int = 8, policy: str = "") -> None:
        """`gpus`: of each node. `policy`: a policy file's text."""
        self.lab, self.east, self.folder, self.gpus = bed.cluster("lab"), bed.cluster("east"), folder, gpus
        self.namespace = self.lab.new_namespace()
        self.east.new_namespace(self.namespace)
        self.sites = folder / "sites.yaml"
        self.policy = folder / "policy.yaml" if policy else None
        self.sites.write_text(yaml.safe_dump(self._sites()))
        if self.policy:
            self.policy.write_text(policy)
        self.env = os.environ | {"PENSTOCK_HOME": str(folder / "home"), "KUBECONFIG": str(self.lab.kubeconfig)}

    def _sites(self) -> dict[str, Any]:
        def cluster(dev_cluster: DevCluster) -> dict[str, Any]:
            return {"kubeconfig": str(dev_cluster.kubeconfig), "namespace": self.namespace, "shared": True}

        offer = {"name": "a100", "gpu": "A100", "gpus_per_node": self.gpus}
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
            **({} if self.policy else {"policy": {"cost_of_delay": 100000}}),
        }  # fmt: skip

    def up(self) -> None:
        command = [sys.executable, "-m", "penstock.cli", "up", "--sites", str(self.sites), "--port", "0", "--json"]
        command += ["--policy", str(self.policy)] if self.policy else []
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

    def end(self) -> None:
        """It may be down already; what was made in the clusters is gone, and their GPUs free."""
        if self.server.poll() is None:
            self.down()
        for cluster in (self.lab, self.east):
            cluster.empty_namespace(self.namespace)
            cluster.drop_namespace(self.namespace)

    def types(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`penstock ...`, or `kubectl penstock ...`."""
        command = [sys.executable, "-m", "penstock.cli", *words]
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
        while word not in (description := self.lab.kubectl("-n", self.namespace, "describe", "job", name)):
            assert time.monotonic() < until, description
            time.sleep(0.1)

    def waits(self, name: str, what: str) -> None:
        self.lab.kubectl("-n", self.namespace, "wait", f"job/{name}", f"--for={what}", "--timeout=55s")
