"""Pods that find each other by name, on real pods with a real DNS server: a headless Service that selects by
`job-name`, and hosts called JOB-0.SERVICE, at home and elsewhere. With the rights that we ask for, and no others.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup, ClusterPlan, NodePlan, dns, kubelet_nodes, programs
from penstock.devcluster.images import BUSYBOX, PYTHON
from penstock.kube import annotations, manifests
from tests.clusters import A100
from tests.conftest import Part
from tests.front.kit import Clustered, binding, complete, home_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(bool(kubelet_nodes.lacks()), reason=Part.REAL_PODS),
    pytest.mark.skipif(not dns.is_available(), reason=Part.DNS),
]
Json = dict[str, Any]
#: Ends well if it finds the first pod by its name and talks to it, and both pods by the Service's.
MEETS = """
import os, socket, sys, time
job, rank = sys.argv[1], int(os.environ["JOB_COMPLETION_INDEX"])

def addresses(name, wanted):
    until, found = time.monotonic() + 50, set()
    while len(found) < wanted and time.monotonic() < until:
        try:
            found = {info[4][0] for info in socket.getaddrinfo(name, 29501, socket.AF_INET)}
        except OSError:
            found = set()
        time.sleep(0.1)
    return found

first, both = addresses(f"{job}-0.rendezvous", 1), addresses("rendezvous", 2)
print("first", first, "both", both, flush=True)
assert len(first) == 1 and len(both) == 2 and first < both
if rank == 0:
    server = socket.create_server(("", 29501))
    server.settimeout(50)
    server.accept()[0].sendall(b"hello")
else:
    until = time.monotonic() + 50
    while True:
        try:
            assert socket.create_connection((f"{job}-0.rendezvous", 29501), 5).recv(5) == b"hello"
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)
print("rank", rank, "met the others", flush=True)
time.sleep(2)
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[ClusterGroup]:
    plans = [ClusterPlan(name, (NodePlan(1, gpus=2, model=A100),), real=True, dns=True) for name in ("lab", "east")]
    with ClusterGroup(tmp_path / "bed", plans) as made:
        yield made


def service(name: str, job: str) -> Json:
    spec = {"clusterIP": "None", "selector": {"job-name": job}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def gang(name: str) -> Json:
    job = home_job(name, 1, spec={"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0})
    pod = job["spec"]["template"]["spec"]
    pod["subdomain"] = "rendezvous"
    pod["containers"][0] |= {
        "image": PYTHON,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", MEETS, name],
    }
    return job


def hog(namespace: str) -> Json:
    wanted = {"limits": {"nvidia.com/gpu": "2"}}
    container = {"name": "hog", "image": BUSYBOX, "imagePullPolicy": "Never", "resources": wanted}
    metadata = {"name": "hog", "namespace": namespace}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_pods_find_each_other_by_the_names_that_the_home_job_gives_them(bed: ClusterGroup, tmp_path: Path) -> None:
    lab, east = bed.cluster("lab"), bed.cluster("east")
    namespace = lab.new_namespace()
    east.new_namespace(namespace)
    account = f"penstock-{namespace}"
    limited = {cluster.name: cluster.token_for(account, [], namespace) for cluster in (lab, east)}
    lab.apply(*manifests.rbac("home", account, namespace))
    east.apply(*manifests.rbac("act", account, namespace))

    def ours(cluster: Any, kind: str, label: str) -> list[str]:
        return [item["metadata"]["name"] for item in cluster.get("-n", namespace, kind, "-l", label)["items"]]

    async def tell() -> None:
        kept: Json = {"kubeconfig": limited["lab"], "limited": limited, "maps": {"copy_services": True}}
        async with Clustered(lab, east, namespace, tmp_path, **kept) as here:
            lab.apply(here.placed(service("rendezvous", "near")))
            here.apply(gang("near"))
            job = await here.shows("near", complete)
            assert binding(job)["site"] == "lab"
            logs = lab.kubectl("-n", namespace, "logs", "-l", "job-name=near", "--prefix")
            assert logs.count("met the others") == 2, logs
            assert "met the others" in lab.kubectl("-n", namespace, "logs", "job/near")

            lab.kubectl("-n", namespace, "delete", "service", "rendezvous")
            lab.apply(here.placed(service("rendezvous", "far")), hog(namespace))
            lab.kubectl("-n", namespace, "wait", "pod/hog", "--for=condition=Ready", "--timeout=50s")
            async with asyncio.timeout(50):
                while any(offer.idle for site in here.plane.view.sites if site.id == "lab" for offer in site.offers):
                    await asyncio.sleep(0.1)
            here.apply(gang("far"))
            job = await here.shows("far", complete)
            assert binding(job)["site"] == "east"
            command = f"kubectl penstock logs -f far -n {namespace}"
            assert (command in here.text("far"), job["metadata"]["annotations"][annotations.LOGS]) == (True, command)
            assert ours(east, "services", annotations.COPY) == ["rendezvous"]
            for cluster in (lab, east):
                assert ours(cluster, "endpointslices", annotations.EXECUTION) == []

    asyncio.run(tell())
