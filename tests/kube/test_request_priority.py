"""Who goes first when there is more to ask than a cluster is asked at once."""

import asyncio

from penstock.kube.request_priority import LATER, NOW, SOON, PriorityLimiter, Rank
from tests.awaiting import story


async def go(lanes: PriorityLimiter, rank: Rank, name: str, went: list[str]) -> None:
    async with lanes.slot(rank):
        went.append(name)


@story
async def test_binds_go_before_status_and_status_before_events_and_each_in_its_order() -> None:
    lanes, went = PriorityLimiter(1), list[str]()
    async with lanes.slot(LATER):
        asked: list[tuple[Rank, str]] = [(LATER, "event"), (SOON, "status"), (NOW, "bind"), (SOON, "another status")]
        tasks = [asyncio.create_task(go(lanes, rank, name, went)) for rank, name in asked]
        await asyncio.sleep(0)
        assert went == []
    await asyncio.gather(*tasks)
    assert went == ["bind", "status", "another status", "event"]


@story
async def test_in_a_long_burst_of_binds_every_fourth_turn_is_for_what_is_shown() -> None:
    lanes, went = PriorityLimiter(1), list[str]()
    async with lanes.slot(NOW):
        ranks: dict[str, Rank] = {"b": NOW, "s": SOON, "e": LATER}
        tasks = [asyncio.create_task(go(lanes, ranks[name], name, went)) for name in "bbbbbbbbbssse"]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert "".join(went) == "bbbsbbbsbbbse"


@story
async def test_a_lane_given_to_somebody_who_has_just_left_is_given_to_the_next() -> None:
    lanes, went = PriorityLimiter(1), list[str]()
    async with lanes.slot(NOW):
        leaves = asyncio.create_task(go(lanes, NOW, "leaves", went))
        stays = asyncio.create_task(go(lanes, NOW, "stays", went))
        await asyncio.sleep(0)
    leaves.cancel()  # after its turn was called, and before it heard
    await asyncio.gather(leaves, stays, return_exceptions=True)
    assert went == ["stays"]
    await go(lanes, NOW, "after", went)
    assert lanes.free == 1


@story
async def test_one_who_leaves_while_waiting_is_passed_over() -> None:
    lanes, went = PriorityLimiter(1), list[str]()
    async with lanes.slot(NOW):
        leaves = asyncio.create_task(go(lanes, NOW, "leaves", went))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
    assert (went, lanes.free) == ([], 1)
