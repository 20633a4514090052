"""On unequal nodes an ordinary Job runs at home as in plain Kubernetes, whatever the node that suits it is called. What
no node can take waits there, says why, and is not tried again and again.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from penstock.devcluster import ClusterGroup, programs
from penstock.devcluster.cluster import DevCluster
from tests.conformance.unequal import (
    FITS,
    NAMES,
    NEVER,
    UNKNOWN,
    WAYS,
    as_applied,
    furnish,
    job,
    others,
    penstock,
    plans,
    tries,
)
from tests.conftest import Part

pytestmark = pytest.mark.slow
#: Cases that end in plain Kubernetes within seconds have this long at home, on a machine that does other things, too.
LIMIT = "150s"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    folder = tmp_path_factory.mktemp("unequal")
    with ClusterGroup(folder / "bed", plans()) as made:
        for name in NAMES:
            furnish(made.cluster(name))
            for namespace in ("others", "plain", "home"):
                made.cluster(name).new_namespace(namespace)
            others(made.cluster(name), "others")
        with penstock(made, folder, "home"):
            yield made


def test_what_runs_in_plain_kubernetes_runs_at_home_and_at_the_first_try(bed: ClusterGroup) -> None:
    """Jobs were pinned by host name to the first nodes with free GPUs. Nine of eleven such cases never ran, held GPUs
    for a minute each time, and it depended on a node's name.
    """
    for name in NAMES:
        lab = bed.cluster(name)
        lab.apply(*(job(name, case, "plain", *asked) for case, asked in FITS.items()))
        for number, (case, asked) in enumerate(FITS.items()):
            lab.apply(as_applied(job(name, case, "home", *asked), WAYS[number % len(WAYS)]))
    for name in NAMES:
        for namespace in ("plain", "home"):
            _complete(bed.cluster(name), namespace)
        again = {case: found for case in FITS if len(found := tries(bed.cluster(name), "home", case)) != 1}
        assert not again, f"{name}: started more than once"


def _complete(lab: DevCluster, namespace: str) -> None:
    jobs = [f"job/{case}" for case in FITS]
    lab.kubectl("wait", "--for=condition=complete", f"--timeout={LIMIT}", "-n", namespace, *jobs)


def test_what_no_node_can_take_waits_and_says_why(bed: ClusterGroup) -> None:
    for name in NAMES:
        lab = bed.cluster(name)
        for case, (pod, resources, _) in NEVER.items():
            lab.apply(as_applied(job(name, case, "home", pod, resources), "by hand"))
    for name in NAMES:
        for case, (_, _, words) in NEVER.items():
            assert words in asyncio.run(_told(bed.cluster(name), case, words))
            assert tries(bed.cluster(name), "home", case) == []


async def _told(lab: DevCluster, case: str, words: str) -> str:
    """What its Events say, once they say it."""
    by = time.monotonic() + 60
    while True:
        events = await asyncio.to_thread(
            lab.get, "events", "-n", "home", "--field-selector", f"involvedObject.name={case}"
        )
        told = " ".join(event["message"] for event in events["items"])
        if words in told or time.monotonic() > by:
            return told
        await asyncio.sleep(0.3)


def test_what_only_the_scheduler_knows_is_tried_once_and_then_when_something_changes(bed: ClusterGroup) -> None:
    """It looks for a pod that is not there. It held GPUs for a minute, again and again."""
    lab = bed.cluster("first")
    ((case, (pod, resources)),) = UNKNOWN.items()
    lab.apply(as_applied(job("first", case, "home", pod, resources), "by hand"))
    assert "could not take it" in asyncio.run(_told(lab, case, "could not take it"))
    assert len(tries(lab, "home", case)) == 1
