"""The engine's thread: calls in order, results and errors to whoever asked."""

import asyncio
import threading

import pytest

from penstock.live.engine_thread import EngineThread

LIMIT_S = 60


def test_calls_run_one_after_the_other_in_one_thread() -> None:
    async def scenario() -> list[tuple[int, str]]:
        thread = EngineThread()
        answers = await asyncio.gather(*(thread.call(where, n) for n in range(5)))
        thread.shutdown()
        return answers

    def where(number: int) -> tuple[int, str]:
        return number, threading.current_thread().name

    assert asyncio.run(scenario()) == [(n, "penstock-engine") for n in range(5)]


def test_an_error_goes_to_whoever_asked_and_the_thread_goes_on() -> None:
    async def scenario() -> int:
        thread = EngineThread()
        with pytest.raises(ZeroDivisionError):
            await thread.call(lambda: 1 // 0)
        answer: int = await thread.call(max, 1, 2)
        thread.shutdown()
        return answer

    assert asyncio.run(scenario()) == 2


def test_who_is_cancelled_before_its_turn_is_not_called_and_who_works_is_not_disturbed() -> None:
    async def scenario() -> list[str]:
        thread, begun, go_on, done = EngineThread(), threading.Event(), threading.Event(), list[str]()

        def first() -> None:
            begun.set()
            go_on.wait(LIMIT_S)
            done.append("first")

        working = thread.call(first)
        waiting = thread.call(done.append, "never")
        await asyncio.to_thread(begun.wait, LIMIT_S)
        working.cancel()
        waiting.cancel()
        go_on.set()
        await thread.call(done.append, "last")
        thread.shutdown()
        return done

    assert asyncio.run(scenario()) == ["first", "last"]


def test_a_loop_that_is_closed_is_not_told_and_the_thread_ends() -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def asks() -> EngineThread:
        thread = EngineThread()

        def work() -> None:
            begun.set()
            go_on.wait(LIMIT_S)

        thread.call(work)
        await asyncio.to_thread(begun.wait, LIMIT_S)
        return thread

    thread = asyncio.run(asks())
    go_on.set()
    thread.shutdown()
    assert not thread.thread.is_alive()
