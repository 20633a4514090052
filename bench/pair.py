"""Two control planes on one PostgreSQL journal in front of two clusters. `bench.kill_kube` and tests kill and stop the

`lab` is owned, small and where Jobs are at home; `east` is rented by the attempt. Both planes are `penstock up
--stand-by` with a home folder each, through `bench.kube_mistakes`: leases are short, and they can be cut at a point.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from penstock.cli import main as cli
from penstock.core.engine import Engine, replay
from penstock.core.errors import BadInput
from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan
from penstock.journal import open as journals
from penstock.journal.writer import steps_of
from penstock.kube import annotations

LIMIT_S: Final = 120  #: whatever takes longer has failed
LABEL: Final = "bench"  #: on a home Job and on its pods wherever they run: the home Job's name
ENDS: Final = "pod-complete.stage.kwok.x-k8s.io/delay"
STOPS: Final = "pod-terminate.stage.kwok.x-k8s.io/delay"  #: how long it takes to stop when told to
LAB_GPUS: Final = 2
SCALE: Final = "20s"
PLANS: Final = (
    ClusterPlan("lab", (NodePlan(1, gpus=LAB_GPUS, model="A100"),)),
    ClusterPlan("east", (NodePlan(2, gpus=4, model="A100"),)),
)
SITES: Final = """
currency: USD
policy: {{value_of_waiting: 1000000, stay: 1s, least_left: 1s, least_lease: 6s}}
caps:
  - {{scope: org, per_month: 100000}}
  - {{scope: "team:poor", per_month: 12}}
teams:
  - {{name: rich, namespaces: [{people}]}}
  - {{name: poor, namespaces: [{people}]}}
sites:
  - name: lab
    driver: kubernetes
    front_door: true
    kubernetes: {{kubeconfig: {lab}, namespace: {ours}, namespaces: [{people}], shared: {shared}, room: 20s}}
    offers: [{{name: owned, term: owned, gpu: A100, gpus_per_node: 2}}]
  - name: east
    driver: kubernetes
    kubernetes: {{kubeconfig: {east}, namespace: {ours}, shared: {shared}, scale: {scale}, grace: 1s}}
    maps: {{namespaces: {{{people}: {ours}}}, images: {{busybox: busybox}}}}
    offers:
      - {{name: rented, term: on_demand, gpu: A100, gpus_per_node: 4, nodes: 2, sold_by: attempt, start: 1s,
         price: {{per: gpu_hour, list: 360}}, billing_step: 1s, kill: 4s, guarantee: timer}}
"""
Json = dict[str, Any]


class Brain:
    """One `penstock up --stand-by`, in as many lives as one likes."""

    def __init__(self, home: Path, where: str, sites: Path, module: str = "bench.kube_mistakes") -> None:
        self.home, self.where, self.sites, self.module = home, where, sites, module
        self.process: subprocess.Popen[bytes] | None = None
        self.said = home.with_suffix(".stderr")

    def start(self, **settings: object) -> None:
        """`points`, `at`, `signal`, `world`, `mistake`: as its module, `bench.kube_mistakes`, takes them."""
        more = {f"PENSTOCK_BENCH_{key.upper()}": str(text) for key, text in settings.items()}
        command = [sys.executable, "-m", self.module, "up", "--stand-by", "--home", str(self.home)]
        with open(self.said, "ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--journal", self.where, "--sites", str(self.sites)],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "PENSTOCK_HOME": str(self.home), **more},
            )

    @property
    def code(self) -> int | None:
        """How it ended; None: it lives, or is stopped."""
        assert self.process is not None
        return self.process.poll()

    @property
    def stands_still(self) -> bool:
        """By SIGSTOP."""
        assert self.process is not None
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text("ascii", "replace")
        except FileNotFoundError:
            return False
        return text.rpartition(")")[2].split()[0] == "T"

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.code is None:
            self.process.send_signal(number)

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(LIMIT_S)

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process is not None and self.code is None:
            self.process.kill()
            self.process.wait(LIMIT_S)

    def asked(self, *command: str) -> str:
        """What a command of ours says of it, whether all is well or not. In this process: starting one each time that
        somebody asks whether it is so by now would keep the processor from what is waited for."""
        output = StringIO()
        settings = {"PENSTOCK_HOME": str(self.home), "COLUMNS": "400"}
        with patch.dict(os.environ, settings), redirect_stdout(output), redirect_stderr(output):
            cli.main(command)
        return output.getvalue()

    @property
    def words(self) -> str:
        """What it said last."""
        lines = self.said.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


class Ground:
    """Both clusters, made ready for one installation; `tag` keeps it apart from others in the same clusters."""

    def __init__(self, bed: ClusterGroup, folder: Path, tag: str = "") -> None:
        self.lab, self.east = bed.cluster("lab"), bed.cluster("east")
        self.people = f"research{tag}"  #: the namespace at home where Jobs are applied
        self.ours = f"penstock{tag}"  #: our own in both, and abroad the one where they run
        for cluster in (self.lab, self.east):
            cluster.new_namespace(self.ours)
        self.lab.new_namespace(self.people)
        self.sites = folder / "sites.yaml"
        self.write_sites(self.lab.kubeconfig, self.east.kubeconfig)

    def write_sites(self, lab: Path, east: Path, scale: str = SCALE) -> None:
        """`scale`: how long `east` may take to begin before a start is given up."""
        shared = "true" if self.people != "research" else "false"
        text = SITES.format(lab=lab, east=east, people=self.people, ours=self.ours, shared=shared, scale=scale)
        self.sites.write_text(text)

    def apply(self, *jobs: Json) -> None:
        self.lab.apply(*({**job, "metadata": {**job["metadata"], "namespace": self.people}} for job in jobs))

    def home(self, name: str) -> Json:
        return self.lab.get("job", name, "-n", self.people)

    def executions(self) -> list[Json]:
        return self._both("jobs")

    def pods(self) -> list[Json]:
        return self._both("pods")

    def _both(self, kind: str) -> list[Json]:
        here = ((self.lab, self.people), (self.lab, self.ours), (self.east, self.ours))
        return [
            item
            for cluster, where in here
            for item in cluster.get(kind, "-n", where, "-l", annotations.EXECUTION)["items"]
        ]


def home_job(name: str, gpus: int = 1, runs: str = "1s", team: str = "rich", lease: str = "") -> Json:
    """`runs`: how long its pod runs before it ends by itself; `lease`: how far ahead money is held for it."""
    container = {"name": "train", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    about = {"penstock.dev/run-time": "1m", "penstock.dev/checkpoint-every": "1s"}
    template = {
        "metadata": {"labels": {LABEL: name}, "annotations": {ENDS: runs, STOPS: "2s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {LABEL: name, annotations.QUEUE: team},
            "annotations": {**about, **({"penstock.dev/lease-max": lease} if lease else {})},
        },
        "spec": {"backoffLimit": 0, "suspend": True, "managedBy": annotations.MANAGER, "template": template},
    }


def folded(where: str) -> Engine:
    """The state that the journal says."""
    return replay((row.at, row.inputs, row.outputs) for row in rows(where))


def rows(where: str) -> Sequence[Any]:
    with closing(journals.database(where, readonly=True)) as db:
        return list(steps_of(db, 0))


def leader(where: str, brains: Sequence[Brain]) -> Brain | None:
    """Who holds the journal's lease; it may be dead by now. None: nobody ever did."""
    with suppress(BadInput), closing(journals.database(where, readonly=True)) as db:
        holder = str(db.all("select holder from lease")[0][0])
        return next((brain for brain in brains if holder.endswith(f":{brain.home.absolute()}")), None)
    return None


def until(true: Callable[[], Any], what: str) -> Any:
    """Other processes have no event that we could await; this ends as soon as it is so."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        if result := true():
            return result
        time.sleep(0.1)
    raise AssertionError(f"not within {LIMIT_S} s: {what}")
