"""What would the engine do? A copy of the process answers, and the engine that decides learns nothing of it."""

import asyncio
import os
from pathlib import Path

import pytest

from penstock.core.decide.rules import BuiltInRules, Candidate, Verdict
from penstock.core.engine import Engine
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, Policy
from penstock.core.plan import Plan, plan
from penstock.drivers.driver import Work
from penstock.live import background_snapshot
from penstock.live.plane import NotReady, Plane, Setup
from penstock.live.what_if import FEW_JOBS, Question, Unanswered
from tests.live.kit import job
from tests.live.memory import MemoryJournal
from tests.live.test_snapshot import crowded
from tests.stories.kit import site

FEW, MANY = FEW_JOBS // 2, FEW_JOBS + 1
LIMIT_S = 60
forks = pytest.mark.skipif(not background_snapshot.FORKS, reason="only Linux copies a process with threads")


def one_more(engine: Engine) -> e.JobSubmitted:
    return e.JobSubmitted(2, engine.state.numbered + 1, "one more", JobSpec(4))


def planned(copy: State, submitted: e.JobSubmitted) -> Plan:
    return plan(copy, BuiltInRules(), submitted)


@pytest.mark.parametrize("jobs", [FEW, MANY])
def test_the_engine_decides_what_its_copy_said(jobs: int) -> None:
    engine = crowded(jobs)
    submitted, digest = one_more(engine), engine.state.digest()
    question = Question(engine.state, lambda copy: planned(copy, submitted))
    assert bool(question.child) == (jobs == MANY and background_snapshot.FORKS)
    answer = asyncio.run(question.answer())
    assert engine.state.digest() == digest
    assert answer.decision == engine.handle(submitted).outputs[-1]


@forks
def test_what_is_decided_meanwhile_changes_no_answer() -> None:
    engine = crowded(MANY)
    question = Question(engine.state, lambda copy: len(copy.jobs))
    engine.handle(one_more(engine))
    assert asyncio.run(question.answer()) == MANY


@forks
def test_it_works_at_low_priority_and_leaves_nothing_behind() -> None:
    open_before = os.listdir("/proc/self/fd")
    question = Question(crowded(MANY).state, lambda _: os.nice(0))
    child = question.child
    assert asyncio.run(question.answer()) == min(19, os.nice(0) + background_snapshot.POLITE)  # 19: as low as it gets
    assert os.listdir("/proc/self/fd") == open_before
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


def breaks(copy: State) -> None:
    copy.jobs.clear()
    raise ValueError("too much")


@pytest.mark.parametrize("jobs", [FEW, MANY])
def test_a_copy_that_raises_is_no_trouble_of_the_engine(jobs: int) -> None:
    engine = crowded(jobs)
    question = Question(engine.state, breaks)
    with pytest.raises(Unanswered, match="ValueError: too much"):
        asyncio.run(question.answer())
    assert len(engine.state.jobs) == jobs


@forks
def test_a_copy_that_ends_without_an_answer_is_said_so() -> None:
    question = Question(crowded(MANY).state, lambda _: os.kill(os.getpid(), 9))
    with pytest.raises(Unanswered, match="it took too long"):
        asyncio.run(question.answer())


@forks
def test_without_room_for_a_copy_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> int:
        raise OSError("no more processes")

    monkeypatch.setattr(os, "fork", refuses)
    open_before = os.listdir("/proc/self/fd")
    question = Question(crowded(MANY).state, lambda copy: len(copy.jobs))
    with pytest.raises(Unanswered, match="no more processes"):
        asyncio.run(question.answer())
    assert os.listdir("/proc/self/fd") == open_before


# --- through the plane -----------------------------------------------------------------------------------------------


class Stubborn(BuiltInRules):
    """Thinks about three GPUs until there is a file: in a copy of the process an event would be a copy, too."""

    def __init__(self, folder: Path) -> None:
        self.thinking, self.enough = folder / "thinking", folder / "enough"

    def verdict(self, asked: Candidate) -> Verdict:
        while asked.spec.gpus == 3 and not self.enough.exists():
            self.thinking.touch()
        return super().verdict(asked)


async def busy(rules: BuiltInRules) -> Plane:
    """One node, and more jobs wait for it than are copied in place."""
    setup = Setup(opening=(site("lab")(0), e.PolicySet(0, 0, Policy("p", burst=False))), rules=rules)
    plane = Plane(MemoryJournal(), {}, setup)
    await plane.start()
    await plane.submit(job(count=MANY), Work(()))
    return plane


@forks
def test_others_submit_and_look_while_a_plan_is_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        rules = Stubborn(tmp_path)
        async with asyncio.timeout(LIMIT_S):
            plane = await busy(rules)
            planning = asyncio.create_task(plane.plan(job(gpus=3)))
            while not rules.thinking.exists():
                await asyncio.sleep(0.01)
            assert (await plane.submit(job(), Work(()))).answer == "j1"
            assert plane.view.waiting == MANY
            assert not planning.done()
            rules.enough.touch()
            assert (await planning).answer == "wait"
            await plane.stop()

    asyncio.run(scenario())


def test_a_plan_that_cannot_be_made_is_said_so_and_the_plane_goes_on() -> None:
    class Broken(BuiltInRules):
        def verdict(self, asked: Candidate) -> Verdict:
            if asked.spec.gpus == 3:
                raise ValueError("odd")
            return super().verdict(asked)

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S):
            plane = await busy(Broken())
            with pytest.raises(NotReady, match=r"The plan could not be made \(ValueError: odd\)"):
                await plane.plan(job(gpus=3))
            assert (await plane.plan(job())).answer == "wait"
            assert (await plane.submit(job(), Work(()))).answer == "j1"
            await plane.stop()

    asyncio.run(scenario())
