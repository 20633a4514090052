"""Who may come in, who has to go, and whose turn it is: without sockets."""

import asyncio
import resource
import socket
from typing import Any

import pytest

from penstock.web.connections import (
    LONG_TURN_SECONDS,
    PARSE_SECONDS,
    PROBES_IN_A_TURN,
    STARTS_IN_A_TURN,
    Bounds,
    Connections,
    Peer,
    Turns,
    address_key,
)


class Quiet:
    """A connection that does nothing; it tells whether it was closed."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.closed = peer, False

    def is_late(self, *_: object) -> bool:
        return False

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self.closed = True


class Door(Connections):
    """Admits addresses without sockets."""

    def __init__(self, most: int, most_each: int) -> None:
        super().__init__(Bounds(most, most_each), lambda _: asyncio.Protocol())

    def comes(self, address: str) -> Quiet | None:
        ours, theirs = socket.socketpair()
        with theirs, ours:
            before = set(self.open)
            self._admit(ours, address)
        (peer,) = set(self.open) - before or (None,)
        if peer is None:
            return None
        assert peer.starting is not None
        peer.starting.cancel()
        peer.starting, peer.connection = None, Quiet(peer)
        return peer.connection


def story(run: Any) -> None:
    async def inside() -> None:
        run()

    asyncio.run(inside())


def test_the_oldest_silent_one_of_an_address_goes_for_its_newest() -> None:
    def run() -> None:
        door = Door(10, 2)
        first, second, third = door.comes("a"), door.comes("a"), door.comes("a")
        assert first is not None
        assert second is not None
        assert third is not None
        assert (first.closed, second.closed, third.closed) == (True, False, False)
        assert (door.total, door.peers["a"]) == (2, 2)

    story(run)


def test_streams_give_way_when_nobody_waits_for_their_client() -> None:
    """Streams were never closed for others: who opened enough of them kept everybody else of an address out, and with
    some addresses, all.
    """

    def run() -> None:
        door = Door(4, 2)
        streams = [door.comes(address) for address in "aabb"]
        for stream in streams:
            assert stream is not None
            door.works(stream.peer)
            stream.peer.streams = True
        assert door.comes("a") is not None  # the oldest of its address
        assert [stream is not None and stream.closed for stream in streams] == [True, False, False, False]
        assert door.comes("c") is not None  # for this one, the one of "a" that waits for its client
        assert [stream is not None and stream.closed for stream in streams] == [True, False, False, False]

    story(run)


def test_one_that_spoke_before_goes_after_those_that_never_did_and_one_that_works_never() -> None:
    def run() -> None:
        door = Door(10, 3)
        worker, known, silent = door.comes("a"), door.comes("a"), door.comes("a")
        assert worker is not None
        assert known is not None
        assert silent is not None
        door.works(worker.peer)
        door.works(known.peer)
        door.waits(known.peer)
        fourth = door.comes("a")
        assert fourth is not None
        assert (silent.closed, known.closed) == (True, False)
        door.works(fourth.peer)
        assert door.comes("a") is not None
        assert known.closed
        assert not worker.closed

    story(run)


def test_when_all_work_a_new_one_is_refused_and_other_addresses_are_not() -> None:
    def run() -> None:
        door = Door(3, 2)
        for _ in range(2):
            connection = door.comes("a")
            assert connection is not None
            door.works(connection.peer)
        assert door.comes("a") is None
        assert door.comes("b") is not None
        assert door.total == 3

    story(run)


def test_at_the_total_the_most_crowded_address_makes_room() -> None:
    def run() -> None:
        door = Door(4, 3)
        crowd = [door.comes("a") for _ in range(3)]
        alone = door.comes("b")
        assert door.comes("c") is not None
        assert [connection.closed for connection in (*crowd, alone) if connection] == [True, False, False, False]

    story(run)


def test_requests_of_all_addresses_start_in_turn() -> None:
    """One address asks a hundred times at once; another one's question is among the first of the next turn."""

    async def inside() -> None:
        turns, order = Turns(now=lambda: 0.0), list[str]()
        for k in range(100):
            turns.start("greedy", lambda k=k: order.append(f"greedy {k}"))  # type: ignore[misc]  # its own k
        turns.start("other", lambda: order.append("other"))
        assert len(order) == STARTS_IN_A_TURN
        await asyncio.sleep(0)
        assert len(order) == 2 * STARTS_IN_A_TURN
        assert order.index("other") == STARTS_IN_A_TURN + 1
        for _ in range(101 // STARTS_IN_A_TURN):
            await asyncio.sleep(0)
        assert len(order) == 101
        assert (turns.waiting, turns.begun) == ({}, 0)

    asyncio.run(inside())


def test_a_probe_waits_for_nobody_unless_there_are_many() -> None:
    """A stranger that pipelined a thousand of them delayed everybody's."""

    async def inside() -> None:
        turns, order = Turns(now=lambda: 0.0), list[str]()
        for _ in range(100):
            turns.start("greedy", lambda: order.append("greedy"))
        for _ in range(100):
            turns.start("probes", lambda: order.append("probe"), at_once=True)
        few = PROBES_IN_A_TURN - STARTS_IN_A_TURN
        assert order == ["greedy"] * STARTS_IN_A_TURN + ["probe"] * few
        await asyncio.sleep(0)
        assert sorted(order[PROBES_IN_A_TURN:]) == ["greedy", "greedy", "probe", "probe"]  # in turn from now on

    asyncio.run(inside())


def test_what_clients_sent_is_parsed_for_some_milliseconds_in_a_turn() -> None:
    async def inside() -> None:
        clock, order = [0.0], list[str]()
        turns = Turns(now=lambda: clock[0])

        def parse(data: bytes) -> None:
            clock[0] += PARSE_SECONDS / 2
            order.append(data.decode())

        for k in range(5):
            if turns.has_time:
                turns.parse(parse, b"%d" % k)
            else:
                turns.later("greedy", lambda k=k: turns.parse(parse, b"%d" % k))  # type: ignore[misc]  # its own k
        assert order == ["0", "1"]
        await asyncio.sleep(0)
        assert order == ["0", "1", "2", "3"]
        await asyncio.sleep(0)
        assert (order, turns.waiting) == (["0", "1", "2", "3", "4"], {})

    asyncio.run(inside())


def test_after_a_long_turn_half_as_many_requests_start() -> None:
    async def inside() -> None:
        clock, begun = [0.0], list[int]()
        turns = Turns(now=lambda: clock[0])

        def begin() -> None:
            begun.append(1)
            clock[0] += 2 * LONG_TURN_SECONDS

        for _ in range(3 * STARTS_IN_A_TURN):
            turns.start("a", begin)
        counts = [len(begun)]
        for _ in range(6):
            await asyncio.sleep(0)
            counts.append(len(begun))
        assert counts == [4, 6, 7, 8, 9, 10, 11]

    asyncio.run(inside())


@pytest.mark.parametrize(("files", "most"), [(1_024, 768), (256, 192), (64, 16), (1 << 20, 2_000), (20_000, 2_000)])
def test_connections_leave_files_for_everything_else(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert Bounds.here().most == most


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_a_network_of_ipv6_counts_as_one_client(address: str, key: str) -> None:
    assert address_key(address) == key
