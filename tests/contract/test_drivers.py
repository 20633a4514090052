"""What runs workloads (`drivers/driver.py`): the same stories on a local site, in a rehearsal and in a cluster."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from penstock.core.model import events as e
from penstock.core.units import HOUR, NEVER
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import Refused, Unreachable
from penstock.drivers.local import supervisor
from penstock.drivers.local.driver import LocalDriver
from tests.awaiting import story
from tests.contract.kit import (
    Ground,
    KubernetesGround,
    LocalGround,
    RehearsalGround,
    opened,
    site,
    start,
    work,
)


@pytest.fixture(params=["local", "rehearsal", "kubernetes"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    if request.param == "kubernetes":
        lab: ExternalCluster = request.getfixturevalue("lab")
        return KubernetesGround(lab.kubeconfig, request.getfixturevalue("namespace"), tmp_path)
    return LocalGround(tmp_path) if request.param == "local" else RehearsalGround(site())


# --- attempts --------------------------------------------------------------------------------------------------------


@story
async def test_an_attempt_runs_when_its_start_is_answered_and_its_end_is_said(ground: Ground) -> None:
    async with opened(ground) as lab:
        attempt = await lab.start("quick")
        assert not lab.said
        assert (await lab.hears(e.AttemptEnded, attempt)).outcome == "done"
        seen = await lab.sees(attempt)
        assert seen is not None
        assert seen.phase == "done"


@story
async def test_a_start_is_answered_before_its_end_is_said(ground: Ground) -> None:
    async with opened(ground) as lab:
        for number in range(5):
            await asyncio.create_task(lab.start("quick", number))  # in a task of its own, as `live/dispatch` does it
            assert not any(getattr(fact, "attempt", "") == f"quick.{number}" for fact in lab.said)
            await lab.hears(e.AttemptEnded, f"quick.{number}")


@story
async def test_a_start_told_many_times_at_once_and_again_starts_once(ground: Ground) -> None:
    async with opened(ground) as lab:
        await asyncio.gather(*(lab.start("quick") for _ in range(5)))
        await lab.start("quick")
        await lab.hears(e.AttemptEnded, "quick.1")
        assert len((await lab.driver.look()).attempts) == 1
        if ground.kind == "local":
            assert await lab.driver.log("quick.1", 0, 1000) == (b"ran\n", False)


@story
async def test_an_attempt_that_ended_never_starts_again_and_says_that_it_is_over(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("quick")
        await lab.hears(e.AttemptEnded, "quick.1")
        lab.said.clear()
        await lab.start("quick")
        await lab.hears(e.AttemptEnded, "quick.1")
        seen = await lab.sees("quick.1")
        assert seen is not None
        assert seen.phase == "done"


@story
async def test_a_start_may_be_cancelled_and_told_again(ground: Ground) -> None:
    async with opened(ground) as lab:
        first = asyncio.create_task(lab.start("long", offer="lab/pods"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await lab.start("long", offer="lab/pods")
        seen = await lab.sees("long.1")
        assert seen is not None
        assert seen.phase == "running"
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_row_26_a_start_that_comes_after_its_stop_meets_a_tombstone(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.driver.stop("long.1", 1000)
        assert (await lab.hears(e.AttemptStopped, "long.1")).kept_ms == 0
        await lab.start("long")
        seen = await lab.sees("long.1")
        assert seen is not None
        assert seen.phase == "stopped"
    async with opened(ground) as lab:  # and still does for whoever comes next
        await lab.start("long")
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_a_stop_is_said_when_it_is_done_and_may_be_told_twice(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("long")
        await lab.driver.stop("long.1", 5000)
        await lab.driver.stop("long.1", 5000)
        await lab.hears(e.AttemptStopped, "long.1")
        lab.said.clear()
        await lab.driver.stop("long.1", 5000)
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_what_runs_outlives_the_control_plane_and_is_not_started_again(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("long")
    async with opened(ground) as lab:
        seen = await lab.sees("long.1")
        assert seen is not None
        assert seen.phase == "running"
        await lab.start("long")
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")
        if ground.kind == "local":
            assert await lab.driver.log("long.1", 0, 1000) == (b"ran\n", False)


@story
async def test_an_end_that_nobody_heard_is_said_to_whoever_comes_next(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("quick")
    async with opened(ground) as lab:
        assert (await lab.hears(e.AttemptEnded, "quick.1")).outcome == "done"


@story
async def test_a_forgotten_attempt_is_seen_no_more_and_still_never_starts_again(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("quick")
        await lab.hears(e.AttemptEnded, "quick.1")
        await lab.driver.forget("quick.1")
        assert await lab.sees("quick.1") is None
        lab.said.clear()
        await lab.start("quick")
        await lab.hears(e.AttemptEnded, "quick.1")
        assert await lab.sees("quick.1") is None


@story
async def test_a_site_refuses_an_offer_that_it_does_not_have(ground: Ground) -> None:
    async with opened(ground) as lab:
        with pytest.raises(Refused, match="no offer lab/moon"):
            await lab.driver.start(start("quick", offer="lab/moon"), ground.work("quick"))


# --- deadlines -------------------------------------------------------------------------------------------------------


@story
async def test_a_deadline_holds_while_the_control_plane_is_dead(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("long", offer="lab/pods", deadline_at=ground.clock() + HOUR)
        await lab.set_deadline("long.1", ground.clock() + 1000)
    async with opened(ground) as lab:
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_a_deadline_can_be_moved_earlier(ground: Ground) -> None:
    async with opened(ground) as lab:
        await lab.start("long", offer="lab/pods", deadline_at=ground.clock() + HOUR)
        sooner = ground.clock() + 100
        assert await lab.set_deadline("long.1", sooner) == sooner
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_a_deadline_can_be_moved_later_before_it_passes(ground: Ground) -> None:
    async with opened(ground) as lab:
        first = ground.clock() + 40_000
        await lab.start("long", offer="lab/pods", deadline_at=first)
        later = ground.clock() + HOUR
        assert await lab.set_deadline("long.1", later) == later
        seen = await lab.sees("long.1")
        assert seen is not None
        assert (seen.phase, seen.deadline_at) == ("running", later)
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_the_deadline_of_something_that_is_not_here_is_not_known(ground: Ground) -> None:
    async with opened(ground) as lab:
        with pytest.raises(Unreachable):
            await lab.driver.set_deadline("nothing.1", 5)


# --- where only local sites have a say of their own ------------------------------------------------------------------


@story
async def test_row_28_a_second_installation_is_refused(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground):
        pass
    other = ground.driver()
    other.disk.installation = "elsewhere"
    with pytest.raises(Refused, match=r"belongs to installation home.*folder of its own"):
        await other.open(lambda _: None)
    await other.close()


@story
async def test_row_26_a_supervisor_that_comes_too_late_starts_nothing(tmp_path: Path) -> None:
    """The control plane was stopped between order and start, another one stopped the job, and the first goes on."""
    async with opened(LocalGround(tmp_path)) as late, opened(LocalGround(tmp_path)) as successor:
        assert isinstance(late.driver, LocalDriver)
        folder = late.driver.disk.order(start("quick"), work("quick"), {})
        await successor.driver.stop("quick.1", 0)
        await successor.hears(e.AttemptStopped, "quick.1")
        subprocess.run(supervisor.command(str(folder)), check=True)
        assert not (folder / "begun.json").exists()
        assert not (folder / "log").exists()


@pytest.mark.parametrize(
    "job", ["a/../../b", "..", ".", "a b;rm -rf $HOME", "<b>x</b>", "=1+1", "neue\nzeile", "é" * 200, "x" * 500]
)
@story
async def test_row_22_any_name_of_a_job_is_only_a_name(tmp_path: Path, job: str) -> None:
    async with opened(LocalGround(tmp_path / "site")) as lab:
        ask = start(job, deadline_at=NEVER)
        await lab.driver.start(ask, work("quick"))
        await lab.hears(e.AttemptEnded, ask.attempt)
        assert [one.attempt for one in (await lab.driver.look()).attempts] == [ask.attempt]
        assert (await lab.driver.log(ask.attempt, 0, 100))[0] == b"ran\n"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
