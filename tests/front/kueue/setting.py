"""A Penstock that was started as people start it, behind a real Kueue: `lab` is the manager, `east` and `west` are the
workers of its MultiKueue. Its pods are kwok's, and a toy operator plays the training kinds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.core.units import SECOND
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, kueue
from penstock.devcluster.cluster import DevCluster
from penstock.journal.open import open_reader
from penstock.journal.rows import AttemptRow, Filter, JobRow
from penstock.kube import manifests
from tests.clusters import A100
from tests.front.kueue.objects import runtime

Json = dict[str, Any]
LIMIT_S: Final = 90
WORKERS: Final = ("east", "west")
PLANS: Final = tuple(
    ClusterPlan(name, (NodePlan(1, gpus=8, model=A100),), kueue=True, multikueue=True) for name in ("lab", *WORKERS)
)
RUNS_S: Final = (3, 3600)  #: for how long the nodes of a TrainJob's runtimes run
HOME, AWAY = "home", "away"  #: LocalQueues: with our check alone, and with MultiKueue's, too


class KueueSetting:
    """One namespace in three clusters, a sites file, a policy file, and the Penstock that reads them."""

    def __init__(self, bed: ClusterGroup, folder: Path) -> None:
        self.lab, self.workers, self.folder = bed.cluster("lab"), {name: bed.cluster(name) for name in WORKERS}, folder
        self.server: subprocess.Popen[str] | None = None
        self.namespace = self.lab.new_namespace()
        self.lab.apply(manifests.admission_check("penstock"), *map(runtime, RUNS_S))
        self.lab.apply(
            *kueue.workers("multikueue", {name: cluster.kubeconfig for name, cluster in self.workers.items()})
        )
        self.lab.apply(*kueue.queue(HOME, self.namespace, 8, ["penstock"], local=HOME))
        self.lab.apply(*kueue.queue(AWAY, self.namespace, 64, ["penstock", "multikueue"], local=AWAY))
        for worker in self.workers.values():
            worker.new_namespace(self.namespace)
            worker.apply(*kueue.queue(AWAY, self.namespace, 8, local=AWAY), *map(runtime, RUNS_S))
        self.account = self._account()
        self.sites, self.policy = folder / "sites.yaml", folder / "policy.yaml"
        self.sites.write_text(yaml.safe_dump(self._sites()))
        policy = {"version": 1, "organisation": {"per_month": 1000}, "least_lease": "1s"}
        self.policy.write_text(yaml.safe_dump(policy))
        self.env = os.environ | {"PENSTOCK_HOME": str(folder / "home")}

    def _account(self) -> Path:
        """With the rights that `penstock manifests rbac --role look --kueue` prints, and no others."""
        granted = [rbac for rbac in manifests.rbac("look", "penstock", "default", kueue=True) if "rules" in rbac]
        return self.lab.token_for("penstock", granted[0]["rules"])

    def _sites(self) -> Json:
        def site(name: str, price: float, **queue: str) -> Json:
            offer = {"name": "a100", "gpu": "A100", "gpus_per_node": 8, "term": "on_demand", "kill": "1m"}
            offer |= {"billing_step": "1s", "price": {"per": "gpu_hour", "list": price}}
            return {"name": name, "driver": "kueue", "kueue": {"manager": "lab", **queue}, "offers": [offer]}

        manager = {"name": "lab", "kubeconfig": str(self.account), "namespaces": [self.namespace]}
        sites = [site("here", 1), site("far-east", 2, cluster="east"), site("far-west", 3, cluster="west")]
        return {"currency": "EUR", "kueue": [manager], "sites": sites}

    # --- Penstock -----------------------------------------------------------------------------------------------------

    def up(self) -> None:
        command = [sys.executable, "-m", "penstock.cli", "up", "--sites", str(self.sites), "--port", "0", "--json"]
        self.server = subprocess.Popen(
            [*command, "--policy", str(self.policy)], stdout=subprocess.PIPE, text=True, env=self.env
        )
        assert self.server.stdout is not None
        line = ""
        while line.rstrip() != "}":
            line = self.server.stdout.readline()
            assert line, f"penstock up ended with {self.server.wait()}"

    def kill(self) -> None:
        """As a power cut does."""
        self._end(signal.SIGKILL)

    def down(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.server is not None:
            self.server.send_signal(number)
            self.server.wait(LIMIT_S)
            assert self.server.stdout is not None
            self.server.stdout.close()
            self.server = None

    def says(self, *words: str) -> str:
        command = [sys.executable, "-m", "penstock.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job(self, name: str) -> tuple[JobRow, list[AttemptRow]] | None:
        """As the journal has it."""
        reader = open_reader(str(self.folder / "home" / "journal.db"))
        try:
            for row in reader.jobs(Filter(), None, 50):
                if row.name == f"{self.namespace}/{name}":
                    return row, reader.attempts(row.id)
        finally:
            reader.close()
        return None

    def attempts(self, name: str) -> list[AttemptRow]:
        known = self.job(name)
        return known[1] if known is not None else []

    def ends(self, name: str, phase: str) -> tuple[JobRow, list[AttemptRow]]:
        """Waits until the journal says so."""
        ended: tuple[JobRow, list[AttemptRow]] = self.until(
            lambda: (known := self.job(name)) and known[0].phase == phase and known, f"{name} is {phase}"
        )
        return ended

    # --- what people apply and see ------------------------------------------------------------------------------------

    def apply(self, obj: Json) -> None:
        self.lab.apply({**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}})

    def workload(self, name: str, cluster: DevCluster | None = None) -> Json:
        """The Workload of the object of this name; empty if there is none."""
        rows = (cluster or self.lab).get("workloads.kueue.x-k8s.io", "-n", self.namespace)["items"]
        owned = (
            [row for row in rows if row["metadata"]["ownerReferences"][0]["name"] == name] if cluster is None else rows
        )
        mine = [row for row in owned if f"-{name}-" in row["metadata"]["name"]]
        return mine[0] if mine else {}

    def owner(self, kind: str, name: str) -> Json:
        return self.lab.get(f"{kind}s/{name}", "-n", self.namespace)

    def bound_ms(self, name: str) -> int:
        """For how long Kueue lets it run."""
        return int(self.workload(name)["spec"]["maximumExecutionTimeSeconds"]) * SECOND

    def check(self, name: str) -> Json:
        rows = (self.workload(name).get("status") or {}).get("admissionChecks") or []
        return next((row for row in rows if row["name"] == "penstock"), {})

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        limit = time.monotonic() + LIMIT_S
        while not (value := holds()):
            assert time.monotonic() < limit, f"{what}\n{self.state()}"
            time.sleep(0.2)
        return value

    def until_each(self, names: Iterable[str], holds: Callable[[str], Any], what: str) -> None:
        for name in names:
            self.until(partial(holds, name), f"{name}: {what}")

    def state(self) -> str:
        """For whoever reads a failure."""
        rows = self.lab.get("workloads.kueue.x-k8s.io", "-n", self.namespace)["items"]
        for row in rows:
            row["spec"].pop("podSets")
            row["metadata"].pop("managedFields", None)
        return json.dumps(rows, indent=1)

    def end(self) -> None:
        self.down()
        for cluster in (self.lab, *self.workers.values()):
            cluster.drop_namespace(self.namespace)
