"""The demo on real clusters: Jobs applied with kubectl, in pods that really run. `penstock demo --kube` and `make
e2e-kube` run it.

Three clusters on this machine: `lab` is owned, and people apply Jobs there; `east` has one spot node; `west` is on
demand. They share no file system, so checkpoints go through an S3 server. The spot node is reclaimed as a cloud does
it: its machine disappears, then its Node. All claims at the end are counted from the journal, the pods' own logs and
kubectl's output.
"""

import base64
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.demo.console import CURRENCY, Console
from penstock.demo.interrupts import again_if_lost
from penstock.demo.machine import COMMAND, Machine
from penstock.demo.observer import LIMIT_S, LOOK_S, Observer, Printed, doubled, missing, printed
from penstock.demo.script import Figures
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, NodePlan, s3_server
from penstock.devcluster.images import PYTHON
from penstock.devcluster.s3_server import S3Server
from penstock.extras import install
from penstock.formatting import money

BEGINS: Final = "Starting three clusters with real nodes: about half a minute."
MODEL: Final = "A100"
PLANS: Final = (
    ClusterPlan("lab", (NodePlan(gpus=2, model=MODEL),), real=True),
    ClusterPlan("east", (NodePlan(gpus=1, model=MODEL, labels={"pool": "spot"}),), real=True),
    ClusterPlan("west", (NodePlan(gpus=1, model=MODEL),), real=True),
)
SPOT_NODE: Final = "east-gpu-0"
PEOPLE: Final = "research"  #: the namespace at home where Jobs are applied
OURS: Final = "penstock"  #: the namespace abroad where they run
SECRET: Final = "checkpoints"  #: how a pod of that cluster reaches the S3 server
POD: Final = Path(__file__).with_name("pod.py")
SITES: Final = Path(__file__).with_name("clusters.yaml")
POLICY: Final = Path(__file__).with_name("clusters_policy.yaml")

#: Steps of 50 ms. The first two fill the lab; the third is the longest, so it is still away when there is room again.
JOBS: Final = {"resnet": 800, "phonemes": 900, "segments": 1500}
TRAVELLER: Final = "segments"
#: What must be true at the end.
CLAIMS: Final[Figures] = {
    "bursts": 1, "spot_losses": 1, "came_home": 1, "doubled": 0, "lost": 0, "output": "equal", "home_jobs": "Complete",
    "redecide": "equal",
}  # fmt: skip


def play(machine: Machine, group: ClusterGroup, voice: Console) -> tuple[Figures, Observer]:
    """From empty clusters to the figures; the control plane still runs."""
    lab = group.cluster("lab")
    furnish(group, machine.bucket)
    machine.start()
    voice.say(f"Penstock is up at {machine.address}/ with three Kubernetes clusters on this machine, and real pods.\n")
    seen = Observer(machine.journal, voice.tell)
    with voice.watching():
        apply(machine, lab)
        seen.until(lambda: any(burst.started_at for burst in seen.bursts()), "a burst to the spot node")
        seen.until(lambda: bool(seen.bursts()[0].checkpoints), "its first checkpoint")
        voice.now("The cloud takes its spot node back: the machine is gone, and so is its Node.")
        group.cluster("east").delete_node(SPOT_NODE)
        seen.until(lambda: bool(seen.resumed()), "the lost job to go on elsewhere")
        seen.until(lambda: bool(seen.came_home()), "it to come home")
        seen.until(seen.over, "all Jobs done and paid for")
        until_complete(lab, JOBS)
    voice.live = None
    logs = {attempt.id: machine.log(attempt.promise.job, attempt.id) for attempt in seen.tries.values()}
    figures = count(machine, lab, seen, logs)
    tell(voice, machine, lab, seen)
    return figures, seen


def untrue(figures: Figures) -> list[str]:
    wrong = [name for name, wanted in CLAIMS.items() if figures[name] != wanted]
    return wrong + ([] if figures["resumed_from_step"] > 0 else ["resumed_from_step"])


def ask_for_programs() -> None:
    """Before anything starts: the clusters share no file system, so checkpoints pass through an S3 server."""
    if s3_server.program_path() is None:
        raise BadInput(
            "There is no S3 server for checkpoints: `make kube`, or `penstock dev-cluster build`, builds one."
        )
    if importlib.util.find_spec("obstore") is None:
        raise BadInput(f"Checkpoints in an S3 server need a package: {install('s3')}")


def sites_file(group: ClusterGroup, home: Path) -> Path:
    path = home / "sites.yaml"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(Template(SITES.read_text("utf-8")).substitute(kubeconfig=group.kubeconfig), "utf-8")
    return path


# --- the course ------------------------------------------------------------------------------------------------------


def furnish(group: ClusterGroup, bucket: S3Server | None) -> None:
    """The platform engineer's part, done once: a namespace, and a Secret with the address of the checkpoints."""
    assert bucket is not None, "`ask_for_programs` comes first"
    for cluster in group.clusters():
        here = [OURS, PEOPLE] if cluster.name == "lab" else [OURS]
        create(cluster, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in here])
        access = bucket.access(cluster.network.host)
        data = {key: base64.b64encode(text.encode()).decode() for key, text in access.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "data": data}
        create(cluster, [{**secret, "metadata": {"name": SECRET, "namespace": name}} for name in here])


def apply(machine: Machine, lab: DevCluster) -> None:
    """The data scientist's part: a script in a ConfigMap, and Jobs with one more label than usual."""
    script = {"metadata": {"name": "train", "namespace": PEOPLE}, "data": {"pod.py": POD.read_text("utf-8")}}
    create(lab, [{"apiVersion": "v1", "kind": "ConfigMap", **script}])
    for number, (name, steps) in enumerate(JOBS.items(), 1):
        text = json.dumps(job(name, steps, number))
        run_program([*COMMAND, "kubectl", "apply", "-f", "-"], text, {**machine.env, "KUBECONFIG": str(lab.kubeconfig)})


def job(name: str, steps: int, seed: int) -> dict[str, Any]:
    container = {
        "name": "train",
        "image": PYTHON,
        "imagePullPolicy": "Never",
        "command": ["python3", "/app/pod.py", "--steps", str(steps), "--seed", str(seed)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "script", "mountPath": "/app"}],
    }
    volumes = [{"name": "script", "configMap": {"name": "train"}}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    about = {"penstock.dev/run-time": f"{steps // 20 + 2}s", "penstock.dev/checkpoint-every": "2s"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": PEOPLE,
            "labels": {"penstock.dev/queue": "vision"},
            "annotations": about,
        },
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def create(cluster: DevCluster, objects: Iterable[dict[str, Any]]) -> None:
    for manifest in objects:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def until_complete(lab: DevCluster, names: Iterable[str]) -> None:
    """Waits until these home Jobs are complete: they follow the journal a moment later."""
    end = time.monotonic() + LIMIT_S
    while conditions(lab) != dict.fromkeys(names, "Complete"):
        if time.monotonic() > end:
            raise BadInput(f"The demo waited {LIMIT_S} s in vain: Jobs that say how they ended. {conditions(lab)}")
        time.sleep(LOOK_S)
        again_if_lost()


def conditions(lab: DevCluster) -> dict[str, str]:
    """How each home Job ended, from its conditions."""
    jobs = json.loads(lab.kubectl("get", "jobs", "-n", PEOPLE, "-o", "json"))["items"]
    return {
        item["metadata"]["name"]: _ended(item)
        for item in jobs
        if "penstock.dev/queue" in item["metadata"].get("labels", {})
    }


def _ended(job: dict[str, Any]) -> str:
    conditions = job.get("status", {}).get("conditions", [])
    return next((str(condition["type"]) for condition in conditions if condition["type"] in ("Complete", "Failed")), "")


# --- the figures -----------------------------------------------------------------------------------------------------


def count(machine: Machine, lab: DevCluster, seen: Observer, logs: dict[str, str]) -> Figures:
    verdict = json.loads(machine.ask("redecide", str(machine.journal), "--json", codes=(0, 1)))
    accounts = {trail.id: [printed(logs[attempt.id]) for attempt in trail.tries] for trail in seen.jobs.values()}
    ended = conditions(lab)
    return {
        "bursts": len(seen.bursts()),
        "spot_losses": len(seen.lost()),
        "resumed_from_step": min((printed(logs[resumed.id]).began_with for resumed in seen.resumed()), default=0),
        "came_home": len(seen.came_home()),
        "doubled": sum(doubled(tries) for tries in accounts.values()),
        "lost": _unfinished(seen, accounts),
        "output": "equal" if results(seen, logs) == undisturbed() else f"{results(seen, logs)} and not {undisturbed()}",
        "home_jobs": "Complete" if set(ended.values()) == {"Complete"} else str(ended),
        "redecide": "equal" if not verdict["different"] else f"{verdict['different']} steps differ",
    }


def _unfinished(seen: Observer, accounts: dict[str, list[Printed]]) -> int:
    gaps = sum(missing(accounts[trail.id], JOBS[short(trail.spec.name)]) for trail in seen.jobs.values())
    return len(JOBS) - sum(trail.done for trail in seen.jobs.values()) + gaps


def short(name: str) -> str:
    """A home Job's name without its namespace."""
    return name.rpartition("/")[2]


def results(seen: Observer, logs: dict[str, str]) -> dict[str, str]:
    """What each job printed at its very end."""
    last = {short(trail.spec.name): logs[trail.tries[-1].id] for trail in seen.jobs.values()}
    return {name: _result(text) for name, text in last.items()}


def undisturbed() -> dict[str, str]:
    """The same trainings, each in one go on this machine, without a checkpoint."""
    command = [sys.executable, str(POD), "--pace", "0", "--save-every", "1e9"]
    return {
        name: _result(run_program([*command, "--steps", str(steps), "--seed", str(number)]))
        for number, (name, steps) in enumerate(JOBS.items(), 1)
    }


def _result(text: str) -> str:
    return next((line.partition(" ")[2] for line in text.splitlines() if line.startswith("result ")), "none")


def tell(voice: Console, machine: Machine, lab: DevCluster, seen: Observer) -> None:
    """Shows one story three times: from kubectl get, kubectl describe and Penstock."""
    voice.say(f"\n$ kubectl get jobs\n{lab.kubectl('get', 'jobs', '-n', PEOPLE).rstrip()}")
    description = lab.kubectl("describe", "job", TRAVELLER, "-n", PEOPLE)
    voice.say(f"\n$ kubectl describe job {TRAVELLER}\n{description[description.index('Events:') :].rstrip()}")
    trail = next(candidate for candidate in seen.jobs.values() if short(candidate.spec.name) == TRAVELLER)
    voice.say(f"\n$ penstock why {trail.id}\n{machine.ask('why', trail.id).rstrip()}")
    voice.say(f"\nIn all {money(seen.charged(), CURRENCY)} was charged for rented GPUs.")


def run_program(command: list[str], stdin: str = "", env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, input=stdin, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S, cwd="/"
    )
    if done.returncode:
        raise BadInput(f"`{shutil.which(command[0]) or command[0]} {' '.join(command[1:4])}`: {done.stderr.strip()}")
    return done.stdout
