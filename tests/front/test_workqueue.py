"""What is due is looked at by one hand at a time, once for each time it was named or more, and never not at all."""

import asyncio

from penstock.front.workqueue import WorkQueue
from tests.awaiting import story


@story
async def test_who_has_just_come_does_not_wait_for_all_the_others() -> None:
    due = WorkQueue()
    for number in range(100):
        due.add(f"old{number}")
    due.add("new", ahead=True)
    assert await due.take(ahead=True) == "new"
    assert await due.take() == "old0"


@story
async def test_a_thing_named_while_somebody_looks_is_looked_at_again_by_one_hand_only() -> None:
    due = WorkQueue()
    due.add("a", ahead=True)
    thing = await due.take(ahead=True)
    due.add("a")
    due.add("a", ahead=True)
    assert [len(row.waiting) for row in due.rows] == [0, 0]
    due.done(thing)
    assert await due.take() == "a"
    assert [len(row.waiting) for row in due.rows] == [0, 0]


@story
async def test_of_two_times_the_sooner_counts() -> None:
    due = WorkQueue()
    due.again("a", 3600)
    due.again("a", 0.01)
    due.again("a", 3600)
    async with asyncio.timeout(60):
        assert await due.take() == "a"
    assert due.timed == {}
