"""The demo on clouds: a peak arrives, and nodes are rented from zero, where each of them is cheapest. `penstock demo
--clouds` and its test run it.

Two clusters on this machine without a node, each with the real Karpenter; their machines are toys that kwok plays, at
different prices. One kind is sold out, a spot node gets a notice, and a node comes without its GPUs. In the end all of
it is given back. All claims at the end are counted from the journal and from what was seen in both clusters.
"""

import json
from pathlib import Path
from string import Template
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.demo.cloud_observer import CloudObserver, RentedNode
from penstock.demo.clusters import conditions, create, run_program, until_complete
from penstock.demo.console import CURRENCY, Console
from penstock.demo.machine import COMMAND, Machine
from penstock.demo.script import Figures
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, karpenter
from penstock.devcluster.plan import GPU
from penstock.formatting import duration, money

BEGINS: Final = "Starting two clusters with Karpenter and no nodes: about half a minute."
PLANS: Final = (ClusterPlan("east", karpenter=True), ClusterPlan("west", karpenter=True))
PEOPLE: Final = "research"  #: the namespace at home where Jobs are applied
OURS: Final = "penstock"
SITES: Final = Path(__file__).with_name("clouds.yaml")
POLICY: Final = Path(__file__).with_name("clouds_policy.yaml")
CLASS: Final = "gpu"  #: the node class of both clouds
SOLD_OUT: Final = "sold-out"
NOTICE: Final = "aws-node-termination-handler/spot-itn"  #: as the handler of that cloud writes it
#: From when a node is asked for until it is given back because its GPUs never came, and time to see it.
PATIENCE_S: Final = 240
JOBS: Final = ("resnet", "phonemes", "segments", "ranking", "captions", "molecules")
RUNS: Final = "25s"
#: What must be true at the end.
CLAIMS: Final[dict[str, Any]] = {
    "nodes_before": 0, "clouds": 2, "notices": 1, "stopped_in_time": 1, "without_gpus": 1, "rented_twice": 0,
    "unpaid": 0, "underbilled": 0, "left": 0, "holds_left": 0, "home_jobs": "Complete", "bill": "equal",
    "redecide": "equal",
}  # fmt: skip


def play(machine: Machine, group: ClusterGroup, voice: Console) -> tuple[Figures, CloudObserver]:
    """From clusters without nodes to the figures; the control plane still runs."""
    clusters = {cluster.name: cluster for cluster in group.clusters()}
    furnish(clusters)
    machine.start()
    voice.say(f"Penstock is up at {machine.address}/ with two clouds: five offers, and no node anywhere.\n")
    seen = CloudObserver(machine.journal, voice.tell, clusters)
    before = seen.there_now()
    with voice.watching():
        apply(machine, clusters["east"])
        seen.until(lambda: seen.runs_on("east/spot") is not None, "a job on the spot node")
        seen.until(lambda: len(seen.ready) >= len(JOBS) - 1, "nodes for all but one of the jobs")
        rented = machine.ask("nodes")
        give_notice(clusters["east"], seen, voice)
        seen.until(lambda: bool(seen.noticed) and seen.stopped_in_time() > 0, "the notice to stop its job in time")
        seen.until(lambda: bool(seen.without_gpus), "the node without GPUs to be given back", PATIENCE_S)
        seen.until(seen.over, "all Jobs done and paid for")
        until_complete(clusters["east"], JOBS)
        seen.until(lambda: not seen.there_now(), "all that was rented to be gone")
    voice.live = None
    figures = {"nodes_before": len(before), **count(machine, clusters, seen)}
    tell(voice, machine, clusters, seen, rented)
    return figures, seen


def untrue(figures: Figures) -> list[str]:
    wrong = [name for name, wanted in CLAIMS.items() if figures[name] != wanted]
    return wrong + [name for name in ("rented", "stock_outs") if figures[name] < 1]


def ask_for_programs() -> None:
    """Before anything starts."""
    if not karpenter.is_available():
        raise BadInput("There is no Karpenter for the demo: `make kube KARPENTER=1` builds it once.")


def sites_file(group: ClusterGroup, home: Path) -> Path:
    path = home / "sites.yaml"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    by = {"group": karpenter.GROUP, "kind": "KWOKNodeClass"}
    words = {
        "kubeconfig": str(group.kubeconfig),
        "node_class": json.dumps({**by, "name": CLASS}),
        "sold_out": json.dumps({**by, "name": SOLD_OUT}),
    }
    path.write_text(Template(SITES.read_text("utf-8")).substitute(words), "utf-8")
    return path


# --- the course ------------------------------------------------------------------------------------------------------


def furnish(clusters: dict[str, DevCluster]) -> None:
    """The platform engineer's part, done once: namespaces, and node classes as Karpenter has them for a cloud."""
    for cluster in clusters.values():
        names = [OURS, PEOPLE] if cluster.name == "east" else [OURS]
        create(cluster, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names])
        sold_out = "InsufficientInstanceCapacity: no a100-8x left in zone-a and zone-b"
        cluster.apply(karpenter.node_class(CLASS), karpenter.node_class(SOLD_OUT, stock_out=sold_out))


def apply(machine: Machine, home: DevCluster) -> None:
    """The data scientists' part: Jobs with one more label than usual, all within a moment."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [job(name) for name in JOBS]})
    run_program([*COMMAND, "kubectl", "apply", "-f", "-"], text, {**machine.env, "KUBECONFIG": str(home.kubeconfig)})


def job(name: str) -> dict[str, Any]:
    container = {"name": "train", "image": "train", "resources": {"limits": {GPU: "8"}}}
    toy = {"pod-complete.stage.kwok.x-k8s.io/delay": RUNS, "pod-terminate.stage.kwok.x-k8s.io/delay": "1s"}
    about = {"run-time": "30s", "checkpoint-every": "5s", "lease-max": "10m"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": PEOPLE,
            "labels": {"penstock.dev/queue": "vision"},
            "annotations": {f"penstock.dev/{key}": text for key, text in about.items()},
        },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": toy},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def give_notice(east: DevCluster, seen: CloudObserver, voice: Console) -> None:
    """As a cloud does it: two minutes before it takes a spot node, its handler taints the Node."""
    attempt = seen.runs_on("east/spot")
    assert attempt is not None, "it was waited for"
    node = seen.node_names[attempt.promise.nodes[0].hold.id]
    voice.now(f"The cloud announces that it takes the spot node {node} back: a taint on the Node.")
    east.kubectl("taint", "node", node, f"{NOTICE}=soon:NoSchedule")


# --- the figures -----------------------------------------------------------------------------------------------------


def count(machine: Machine, clusters: dict[str, DevCluster], seen: CloudObserver) -> Figures:
    verdict = json.loads(machine.ask("redecide", str(machine.journal), "--json", codes=(0, 1)))
    billed = json.loads(machine.ask("costs", "--json"))["spent"]
    paid = sum(node.charged for node in seen.rented.values())
    ended = conditions(clusters["east"])
    return {
        "rented": len(seen.ready),
        "clouds": len({attempt.promise.offer.partition("/")[0] for attempt in seen.tries.values() if attempt.how}),
        "stock_outs": len(seen.stock_outs),
        "notices": len(seen.noticed),
        "stopped_in_time": seen.stopped_in_time(),
        "without_gpus": len(seen.without_gpus),
        "rented_twice": seen.rented_twice(),
        "unpaid": len(seen.unpaid),
        "underbilled": sum(node.is_underbilled for node in seen.rented.values()),
        "left": len(seen.there_now()),
        "holds_left": len(seen.holds),
        "home_jobs": "Complete" if ended == dict.fromkeys(JOBS, "Complete") else str(ended),
        "bill": "equal" if paid == billed else f"{paid} by the journal, and {billed} by `penstock costs`",
        "redecide": "equal" if not verdict["different"] else f"{verdict['different']} steps differ",
    }


def tell(voice: Console, machine: Machine, clusters: dict[str, DevCluster], seen: CloudObserver, rented: str) -> None:
    """Shows what was rented at the peak, that nothing is left, one job's story, and the bill."""
    voice.say(f"\nAt the peak:\n$ penstock nodes\n{rented.rstrip()}")
    for name, cluster in clusters.items():
        voice.say(f"\nNow, in {name}:\n$ kubectl get nodeclaims,nodes\n{_left_in(cluster)}")
    noticed = seen.jobs[seen.tries[next(iter(seen.noticed_attempts()))].promise.job]
    voice.say(f"\n$ penstock why {noticed.id}\n{machine.ask('why', noticed.id).rstrip()}")
    voice.say("\nThe bill:")
    for node in seen.rented.values():
        voice.say(_bill_line(node))
    voice.say(f"  {'in all':48} {money(seen.charged(), CURRENCY):>8}")


def _bill_line(node: RentedNode) -> str:
    how_long = duration(node.settled_at - node.asked_at) if node.settled_at else "?"
    fate = {"": "", "stock_out": ", sold out", "blind": ", no GPUs", "notice": ", spot notice"}[node.fate]
    return f"  {node.offer:12} {node.id:10} {how_long:>8}{fate:14} {money(node.charged, CURRENCY):>12}"


def _left_in(cluster: DevCluster) -> str:
    return cluster.kubectl("get", "nodeclaims,nodes").strip() or "No resources found"
