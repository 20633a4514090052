"""Two installations whose sites files name the same namespace of the same home cluster, on a real API server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster.external import ExternalCluster, Refusal
from penstock.front import namespace_claims
from penstock.kube import annotations
from tests.front.kit import LIMIT_S, Penstock, complete, home_job, ours, running

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(lab: ExternalCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Penstock]:
    """Each with a journal of its own; they look at the Lease again and again without a pause that a test would feel."""
    monkeypatch.setattr(namespace_claims, "AGAIN_SECONDS", 0.1)
    made = []
    for name, runs in (("first", {"j1": 0.5}), ("second", {})):
        (tmp_path / name).mkdir()
        made.append(Penstock(lab, namespace, tmp_path / name, runs=runs))
    return made


def test_the_second_front_door_of_a_namespace_is_refused_and_told_who_has_it(pair: list[Penstock]) -> None:
    """Both once accepted the Job, and ran it twice."""

    async def tell() -> None:
        first, second = pair
        async with first:
            first.apply(home_job("a"))
            await first.shows("a", running)
            async with second:
                (words,) = await refused(second)
                assert words == (
                    f"Jobs in namespace {first.namespace} of the home cluster lab are not accepted: it belongs to the"
                    f" front door of installation {first.plane.installation} (penstock), by the Lease"
                    f" {first.namespace}/penstock-front-door. Let that installation leave first, or delete the Lease if"
                    " it is no more."
                )
                first.apply(home_job("b"))
                await first.shows("b", complete)
                first.delete("b")
                await first.is_gone("b")
                assert (first.phase("j0"), first.phase("j1")) == ("placed", "done")
                assert second.reader.counts() == []

                await leaves(second)  # it takes nothing of the other's along
                job = await first.shows("a", running)
                assert annotations.CANCEL in ours(job)
                assert holder(first) == first.plane.installation
            assert alarms(first) == []

    asyncio.run(tell())


def test_once_the_first_has_left_the_second_takes_the_namespace(pair: list[Penstock]) -> None:
    async def tell() -> None:
        first, second = pair
        async with first:
            await holds(first)  # not the second, which may be quicker
            async with second:
                await refused(second)
                await leaves(first)
                await accepted(second)
                assert holder(second) == second.plane.installation
                second.apply(home_job("a"))
                await second.shows("a", running)
                assert (second.phase("j0"), first.reader.counts()) == ("placed", [])

    asyncio.run(tell())


async def refused(here: Penstock) -> list[str]:
    """Wait for the alarm."""
    async with asyncio.timeout(LIMIT_S):
        while not alarms(here):
            await asyncio.sleep(0.02)
    return alarms(here)


async def accepted(here: Penstock) -> None:
    async with asyncio.timeout(LIMIT_S):
        while alarms(here):
            await asyncio.sleep(0.02)


def alarms(here: Penstock) -> list[str]:
    return [alarm.text for alarm in here.plane.alarms.now() if annotations.FRONT_DOOR in alarm.text]


async def holds(here: Penstock) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await asyncio.to_thread(holder, here) != here.plane.installation:
            await asyncio.sleep(0.02)


async def leaves(here: Penstock) -> None:
    await here.manager.leave("lab")
    async with asyncio.timeout(LIMIT_S):
        await here.manager.controllers["lab"].left.wait()


def holder(here: Penstock) -> str:
    """Empty: nobody has it yet."""
    try:
        lease: dict[str, Any] = here.given.get("-n", here.namespace, "lease", annotations.FRONT_DOOR)
    except Refusal:
        return ""
    return str(lease["spec"]["holderIdentity"])
