"""Leaving clusters of which one does not answer, or is no longer there: the others are left, and that one is named."""

import asyncio
from pathlib import Path

from penstock.core.model import events as e
from penstock.front.home_cluster import ExecutionCluster, HomeCluster
from penstock.front.home_jobs import HomeJobs
from penstock.front.leave_file import import_leave_file
from penstock.front.manager import Manager
from penstock.front.uninstall.sweep import LOST_SECONDS
from penstock.live.plane import Plane
from tests.kube.scripted import Server
from tests.live.kit import given, story
from tests.live.virtual import VirtualClock
from tests.stories.kit import site


def manager(plane: Plane, **clusters: Server) -> Manager:
    others = [ExecutionCluster(name, server.cluster(), ()) for name, server in clusters.items()]
    return Manager([], plane, None, others)  # type: ignore[arg-type]  # without homes nobody reads


@story("09:00")
async def test_leaving_does_not_wait_for_a_cluster_that_is_out_of_reach(clock: VirtualClock) -> None:
    """`leave` waited for ever, and other clusters kept what was ours, because one was gone for good."""
    east, west = Server(), Server()
    east.down = True
    async with given(clock, site("lab")).up() as plane:
        here = manager(plane, east=east, west=west)
        began = asyncio.get_running_loop().time()
        await here._leave_all()
        assert LOST_SECONDS <= asyncio.get_running_loop().time() - began < LOST_SECONDS + 10
        gone, left = here.elsewhere["east"], here.elsewhere["west"]
        assert (left.left.is_set(), left.unreached) == (True, "")
        assert (gone.left.is_set(), gone.unreached.startswith("it cannot be asked: ")) == (False, True)
        east.down = False
        await gone.left.wait()  # it goes on by itself
        assert (gone.unreached, gone.lost.is_set()) == ("", False)


@story("09:00")
async def test_a_cluster_that_was_removed_is_not_waited_for(clock: VirtualClock) -> None:
    """Its sweep stayed, also of a cluster that never joined, and asked a cluster that nobody knew any more."""
    east = Server()
    east.down = True
    async with given(clock, site("lab")).up() as plane:
        here = manager(plane, east=east)
        leaving = asyncio.create_task(here._leave_all())
        await asyncio.sleep(1)
        here.forget("east")
        await leaving
        assert here.elsewhere == {}
        asked = len(east.asked)
        await asyncio.sleep(LOST_SECONDS)
        assert len(east.asked) == asked


@story("09:00")
async def test_what_an_older_version_kept_in_a_file_is_left_once_and_is_in_the_journal_then(
    clock: VirtualClock, tmp_path: Path
) -> None:
    file = tmp_path / "leaving"
    file.write_text("lab bring-home\nelsewhere\n")
    world = given(clock, site("lab", front_door=True))
    async with world.up() as plane:
        home = HomeJobs(HomeCluster("lab", Server().cluster()))
        here = Manager([home], plane, None)  # type: ignore[arg-type]  # nothing runs, so nobody reads
        await import_leave_file(file, here)
        assert here.controllers["lab"].leaving.is_set()
        assert here.bringing["lab"].is_set()
        assert [path.name for path in tmp_path.iterdir()] == ["leaving.imported"]
        await import_leave_file(file, here)
    (asked,) = world.events(e.LeaveRequested)
    assert (asked.site, asked.bring_home) == ("lab", True)
    async with world.up(holder="another machine") as plane:
        again = Manager([home], plane, None)  # type: ignore[arg-type]  # as above
        assert again.controllers["lab"].leaving.is_set()
