"""Notices of EC2 in a queue of SQS, which moto plays."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capacity import eks
from penstock.capacity.machine_notices import NoticeQueue, QueueReaders
from penstock.capacity.spot_queue import HEALTH, SPOT, STATE, notice_of
from penstock.kube.node_selection import EksWay
from tests.awaiting import story
from tests.capacity.played_eks import REGION
from tests.capacity.played_queue import PlayedQueue, played_queue

A, B = "i-0123456789abcdef0", "i-00ff00ff"
KEYS = ["detail", "state", "instance-id", "affectedEntities"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedQueue]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "played")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "played")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with played_queue() as made:
        yield made


def queue_at(url: str) -> NoticeQueue:
    way = EksWay(REGION, "gpu", "role", ("subnet-1",), notices=url)
    queue = eks.queue_of(way)
    assert queue is not None
    return queue


def event(kind: str, detail: Any) -> str:
    return json.dumps({"detail-type": kind, "detail": detail})


@pytest.mark.parametrize(
    ("body", "machines", "words"),
    [
        (event(SPOT, {"instance-id": A, "instance-action": "terminate"}), (A,), "AWS takes its spot machine back"),
        (event(STATE, {"instance-id": A, "state": "shutting-down"}), (A,), "its machine is shutting-down, says EC2"),
        (
            event(
                HEALTH,
                {
                    "eventTypeCategory": "scheduledChange",
                    "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
                    "affectedEntities": [{"entityValue": A}, {"entityValue": B}, {"entityValue": "vol-1"}, 3],
                },
            ),
            (A, B),
            "AWS has scheduled an end of its machine: AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        ),
        (event(STATE, {"instance-id": A, "state": "running"}), (), ""),
        (event("EC2 Instance Rebalance Recommendation", {"instance-id": A}), (), ""),
        (event(HEALTH, {"eventTypeCategory": "issue", "affectedEntities": [{"entityValue": A}]}), (), ""),
    ],
)
def test_what_ec2_announces(body: str, machines: tuple[str, ...], words: str) -> None:
    """Advice that a spot machine may be taken back some day is no notice: most of these machines live on for hours."""
    assert notice_of(body) == (machines, words)


@given(
    st.text(max_size=50)
    | st.just("[" * 100_000)
    | st.builds(event, st.sampled_from([SPOT, STATE, HEALTH]) | st.text(max_size=3), JSON)
    | st.builds(lambda rows: event(HEALTH, {"eventTypeCategory": "scheduledChange", "affectedEntities": rows}), JSON)
)
def test_rubbish_in_the_queue_says_nothing(body: str) -> None:
    assert notice_of(body)[0] == ()


@story
async def test_a_queue_is_read_once_for_all_offers_and_a_message_goes_when_it_was_told(queue: PlayedQueue) -> None:
    heard: list[tuple[str, str]] = []
    readers = QueueReaders(lambda machine, words: heard.append((machine, words)))
    for _ in range(2):
        readers.follow(queue_at(queue.url))
    queue.send("rubbish")
    queue.announce(SPOT, {"instance-id": A, "instance-action": "terminate"})
    while await asyncio.to_thread(queue.left):
        await asyncio.sleep(0.02)
    assert heard == [(A, "AWS takes its spot machine back")]
    assert readers.warns() == ""
    await readers.close()


@story
async def test_a_message_stays_until_the_engine_was_told(queue: PlayedQueue) -> None:
    """Read and not told, as when Penstock is killed in between: whoever comes next reads it again."""

    def hear(machine: str, words: str) -> None:
        raise RuntimeError(f"killed while {machine} was told: {words}")

    readers = QueueReaders(hear)
    queue.announce(SPOT, {"instance-id": A})
    readers.follow(queue_at(queue.url))
    while "killed while" not in readers.warns():
        await asyncio.sleep(0.02)
    assert queue.left() == 1
    await readers.close()


@story
async def test_a_queue_that_is_not_there_is_said_until_it_is(
    queue: PlayedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.capacity.machine_notices.AGAIN_SECONDS", 0.05)
    monkeypatch.setattr("penstock.capacity.spot_queue.WAIT_SECONDS", 1)
    readers = QueueReaders(lambda *_: None)
    readers.follow(queue_at(f"{queue.url}-2"))
    while not readers.warns():
        await asyncio.sleep(0.02)
    assert "spot-2" in readers.warns()
    assert "The specified queue does not exist" in readers.warns()
    await asyncio.to_thread(queue.sqs.create_queue, QueueName="spot-2")
    while readers.warns():
        await asyncio.sleep(0.02)
    await readers.close()
