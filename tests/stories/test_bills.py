"""What each way costs in which a rented attempt does not start or does not end well: by the ledger, which `penstock
costs` shows, and in the words of `penstock why`.

A node of eight GPUs costs $8.00 an hour, so a minute costs 13.3 cents.
"""

import pytest

from penstock.core.units import MINUTE, Money
from penstock.front.event_recorder import EventRecorder
from tests.stories.kit import (
    Penstock,
    Told,
    cancelled,
    ended,
    given,
    gone,
    lost,
    node_lost,
    node_refused,
    nothing,
    obstructed,
    offer,
    ready,
    refused,
    started,
    stopped,
    submitted,
    usd,
)

#: What happens, when, for how many minutes that is charged, and what `why` says of it.
Way = tuple[list[tuple[Told, str]], int, tuple[str, ...]]
FREE = "Settled: $0.00 charged in total, $96.27 of the hold returned."
AGAIN = "The start failed after 2 min: 8 GPUs cost $0.00. It is not tried there again before day 1, 09:02."


def obstacle(words: str) -> tuple[str, str]:
    return FREE, f"Not started at cloud: {words}. {AGAIN}"


#: A cluster sells attempts: it charges from the start that we asked for, unless nothing ran at all.
BY_ATTEMPT: dict[str, Way] = {
    "the offer is full": ([(refused("a.1"), "09:02")], 0, ("cloud had no capacity after all.", FREE)),
    "no node suits it": ([(obstructed("a.1", "unfit", "no node"), "09:02")], 0, obstacle("no node")),
    "something is missing": ([(obstructed("a.1", "missing", "no Secret"), "09:02")], 0, obstacle("no Secret")),
    "a policy denies it": ([(obstructed("a.1", "denied", "not known"), "09:02")], 0, obstacle("not known")),
    "cancelled before it ran": (
        [(cancelled("a"), "09:02"), (stopped("a.1"), "09:03")],
        3,
        ("Settled: $0.40 charged in total, $95.87 of the hold returned.",),
    ),
    "it failed before we saw it run": (
        [(ended("a.1", failed=True), "09:02")],
        2,
        (
            "Failed: its own program ended with an error.",
            "Settled: $0.27 charged in total, $96.00 of the hold returned.",
        ),
    ),
    "it failed": (
        [(started("a.1"), "09:01"), (ended("a.1", failed=True), "09:31")],
        31,
        (
            "Failed: its own program ended with an error.",
            "Settled: $4.13 charged in total, $92.13 of the hold returned.",
        ),
    ),
    "it was preempted": (
        [(started("a.1"), "09:01"), (lost("a.1"), "09:31")],
        31,
        (
            "Preempted: its node was reclaimed; 0 s of work kept.",
            "Settled: $4.13 charged in total, $92.13 of the hold returned.",
        ),
    ),
    "cancelled": (
        [(started("a.1"), "09:01"), (cancelled("a"), "09:31"), (stopped("a.1"), "09:32")],
        32,
        ("Stopped; 0 s of work kept.", "Settled: $4.27 charged in total, $92.00 of the hold returned."),
    ),
}
#: A node is paid from its launch until it is gone, whatever becomes of the attempt.
BY_NODE: dict[str, Way] = {
    "the offer is full": ([(node_refused("a.1/n0"), "09:02")], 0, (FREE,)),
    "its node is lost before it is ready": (
        [(node_lost("a.1/n0"), "09:02")],
        2,
        (
            "Settled: $0.27 charged in total, $96.00 of the hold returned.",
            "That was 2 min after its start, before it made progress: 8 GPUs cost $0.27.",
        ),
    ),
    "the node does not suit it": (
        [(ready("a.1/n0"), "09:01"), (obstructed("a.1", "unfit", "no driver"), "09:02"), (gone("a.1/n0"), "09:10")],
        10,
        ("Settled: $1.33 charged in total, $94.93 of the hold returned.",),
    ),
    "cancelled before it ran": (
        [(cancelled("a"), "09:02"), (gone("a.1/n0"), "09:03")],
        3,
        ("Settled: $0.40 charged in total, $95.87 of the hold returned.",),
    ),
    "it failed": (
        [
            *((ready("a.1/n0"), "09:01"), (started("a.1"), "09:01")),
            *((ended("a.1", failed=True), "09:31"), (gone("a.1/n0"), "09:33")),
        ],
        33,
        (
            "Failed: its own program ended with an error.",
            "Settled: $4.40 charged in total, $91.87 of the hold returned.",
        ),
    ),
    "its node was lost": (
        [(ready("a.1/n0"), "09:01"), (started("a.1"), "09:01"), (node_lost("a.1/n0"), "09:31")],
        31,
        ("Settled: $4.13 charged in total, $92.13 of the hold returned.",),
    ),
}


@pytest.mark.parametrize(("facts", "minutes", "says"), BY_ATTEMPT.values(), ids=BY_ATTEMPT)
def test_the_bill_of_an_attempt_that_a_cluster_sells(
    facts: list[tuple[Told, str]], minutes: int, says: tuple[str, ...]
) -> None:
    check(given(offer("cloud", sold_by="attempt")), facts, minutes, says)


@pytest.mark.parametrize(("facts", "minutes", "says"), BY_NODE.values(), ids=BY_NODE)
def test_the_bill_of_a_node_of_its_own(facts: list[tuple[Told, str]], minutes: int, says: tuple[str, ...]) -> None:
    check(given(offer("cloud", sold_by="node")), facts, minutes, says)


def check(penstock: Penstock, facts: list[tuple[Told, str]], minutes: int, says: tuple[str, ...]) -> None:
    penstock.hears(submitted("a"), at="09:00")
    for fact, at in facts:
        penstock.hears(fact, at=at)
    bill = charge(minutes)
    assert [penstock.account(scope)[1] for scope in ("org", "team:default")] == [bill, bill]
    lines = penstock.story("a")
    assert [line for line in lines if line in says] == list(says), lines
    still_held = penstock.engine.state.ledger.leases.keys()
    assert not [thing for thing in still_held if thing.startswith("a.1")], "its hold was returned"


def charge(minutes: int) -> Money:
    """By the millisecond, rounded up to the smallest amount."""
    return -(-usd("8") * minutes * MINUTE // (60 * MINUTE))


def test_a_job_on_several_nodes_is_settled_and_renewed_in_one_line() -> None:
    """A job on 32 nodes had 32 lines `Settled` in `why`, in its Events and on its page, and as many at each renewal."""
    penstock = given(offer("cloud", sold_by="node"))
    penstock.hears(submitted("a", gpus=32, run="4h", lease_max_ms="2h"), at="09:00")
    nodes = [f"a.1/n{number}" for number in range(4)]
    penstock.hears(*(ready(node) for node in nodes), at="09:10")
    penstock.hears(started("a.1"), at="09:10")
    penstock.hears(nothing, at="10:50")
    renewed = [line for line in penstock.story("a") if "renewed until" in line]
    assert len(renewed) == 1, penstock.story("a")
    assert renewed[0].startswith("Leases of 4 nodes renewed until ")
    penstock.hears(ended("a.1"), at="11:00")
    penstock.hears(*(gone(node) for node in nodes[:3]), at="11:10")
    assert penstock.story("a")[-1] == "Succeeded."
    penstock.hears(gone(nodes[3]), at="11:30")
    settled = "Settled for 4 nodes: $72.00 charged in total, $51.73 of the holds returned."
    assert penstock.story("a")[-1] == settled

    recorder = EventRecorder("a", "lab", "uid", "USD")
    for step in penstock.steps:
        for event in (*step.inputs, *step.outputs):
            recorder.hear(event)
    assert [line.text for _, _, line in recorder.lines] == penstock.story("a")  # a home Job's Events say the same
