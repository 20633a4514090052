"""What a Job costs in requests, counted where they are sent, to real API servers: it is what one cluster can bear."""

import asyncio
from collections import Counter

import pytest

from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.front.binding_driver import BindingDriver
from tests.front.kit import Clustered, complete
from tests.front.test_clusters import Made, lasting, penstock

pytestmark = pytest.mark.slow
__all__ = ["penstock"]
JOBS = 6
#: Following what there is costs the same however many Jobs there are, and pods of kwok have no log to ask for.
FOR_JOBS = ("create jobs.batch", "patch jobs.batch", "patch jobs.batch/status", "get jobs.batch", "create events")


def test_from_its_creation_to_its_end_a_job_takes_seven_requests(penstock: Made) -> None:
    """Bound, made, shown to run, told; shown to have ended, told, let go. One more for each Job is one too many; a few
    in all may meet somebody else's change."""

    async def tell() -> None:
        async with penstock() as here:
            before = asked(here)
            here.apply(*(lasting(f"a{number}", "6s", gpus=1) for number in range(JOBS)))
            for number in range(JOBS):
                await here.shows(f"a{number}", complete)
                await here.says(f"a{number}", "Succeeded")
            await let_go(here)
            count = asked(here) - before
            assert count.total() <= 7 * JOBS + JOBS // 2, count
            assert count["create jobs.batch"] == JOBS
            assert count["create events"] <= 2 * JOBS

    asyncio.run(tell())


def asked(here: Clustered) -> Counter[str]:
    clusters = [here.cluster]
    for gate in here.plane.drivers.values():
        assert isinstance(gate, BindingDriver)
        assert isinstance(gate.driver, KubernetesDriver)
        clusters.append(gate.driver.here.cluster)
    return Counter({what: sum(cluster.requests[what] for cluster in clusters) for what in FOR_JOBS})


async def let_go(here: Clustered) -> None:
    """Until the cluster may take every execution Job away."""
    await here.shows_all(lambda job: not job["metadata"].get("finalizers"))
