"""The Kubernetes driver where Kueue keeps quota: an attempt waits there for its turn, and is counted once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.model import events as e
from penstock.devcluster import DevCluster, kueue, programs
from penstock.drivers.driver import Work
from penstock.kube import annotations
from penstock.kube.node_selection import NodeSelection
from tests.awaiting import story
from tests.conftest import Part
from tests.contract.kit import KubernetesGround, opened, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES),
    pytest.mark.skipif(not kueue.is_available(), reason=Part.KUEUE),
]
TRAIN = Work(("train",), image="train:1")


@story
async def test_an_attempt_waits_for_its_turn_at_the_site_and_is_stopped_there_for_good(
    kueue_cluster: DevCluster, with_quota: Callable[[int], str], tmp_path: Path
) -> None:
    namespace = with_quota(2)

    def kubectl(*args: str) -> None:
        kueue_cluster.kubectl("-n", namespace, *args)

    place = (("lab/owned", NodeSelection(queue="default")),)
    ground = KubernetesGround(kueue_cluster.kubeconfig, namespace, tmp_path / "site", places=place)
    async with opened(ground) as site:
        await site.driver.start(start("first", slots=((0, 2),)), TRAIN)
        second = asyncio.create_task(site.driver.start(start("second", slots=((0, 2),)), TRAIN))
        third = asyncio.create_task(site.driver.start(start("third", slots=((0, 2),)), TRAIN))
        for attempt in ("second.1", "third.1"):
            name = annotations.execution_name("home", attempt)
            await asyncio.to_thread(kubectl, "wait", f"job/{name}", "--for=create", "--timeout=50s")
            await asyncio.to_thread(kubectl, "wait", f"job/{name}", "--for=condition=Suspended", "--timeout=50s")
            await site.hears(e.AttemptQueued, attempt)
        assert [seen_attempt.attempt for seen_attempt in (await site.driver.look()).attempts] == ["first.1"]
        assert {type(fact) for fact in site.said} == {e.AttemptQueued}  # the first waited, too, if Kueue took its time
        third.cancel()
        await site.driver.stop("third.1", 1000)
        await site.hears(e.AttemptStopped, "third.1")
        await site.driver.stop("first.1", 1000)
        await site.hears(e.AttemptStopped, "first.1")
        await second
        running = kueue_cluster.get("pods", "-n", namespace)["items"]
        assert [
            pod["metadata"]["labels"][annotations.EXECUTION] for pod in running if pod["status"]["phase"] == "Running"
        ] == [annotations.execution_name("home", "second.1")]
