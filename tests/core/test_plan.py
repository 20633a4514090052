"""`plan` names what the engine does next: a property over random states and jobs.

The engine that is planned on is not touched, and then really given the job: both must agree.
"""

from dataclasses import replace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from penstock.core.engine import Engine, Step
from penstock.core.model import events as e
from penstock.core.model.lifecycle import Broken
from penstock.core.model.reasons import (
    JoinsNode,
    NotWorthWaiting,
    PatienceOver,
    QueueFull,
    Reason,
)
from penstock.core.model.types import STANDING, JobSpec, Waiting
from penstock.core.plan import Plan, plan
from penstock.core.units import HOUR, MICRO, MINUTE, Instant
from penstock.live import snapshot
from penstock.policy.rules import PolicyRules
from tests.core.histories import History, Life, histories, packed, rented, specs, tense

ANSWERED = (e.StartPromised, e.WaitPromised, e.ReservePromised, e.JobRefused)
JOB = "planned"


def cut_short(history: History, cut: int) -> Engine:
    """The engine somewhere in the middle of a history."""
    life = Life(history)
    life.run()
    engine = Engine(PolicyRules())
    for step in life.steps[: 1 + cut % len(life.steps)]:
        engine.handle(*step.inputs)
    return engine


def submission(engine: Engine, spec: JobSpec, now: Instant) -> e.JobSubmitted:
    return e.JobSubmitted(now, engine.state.numbered + 1, JOB, spec)


def planned(engine: Engine, submitted: e.JobSubmitted) -> Plan:
    """On a copy, and the engine knows nothing of it."""
    before = engine.state.digest()
    preview = plan(snapshot.unpack(snapshot.pack(engine.state)), PolicyRules(), submitted)
    assert engine.state.digest() == before
    return preview


@st.composite
def eager(draw: st.DrawFn) -> History:
    """Nothing is owned, money is there, delay is dear: jobs burst, and the two offers differ in start and losses."""
    history = draw(histories())
    policy = replace(history.policy, burst=True, pace=False, waiting=Waiting("worth", value_per_hour=20 * MICRO))
    sites = (draw(rented("alpha")), draw(rented("beta")))
    return replace(history, sites=sites, policy=policy, caps=(), commands=())


@st.composite
def moments(draw: st.DrawFn) -> tuple[History, int, JobSpec, int, bool]:
    history = draw(st.one_of(histories(), eager(), histories().map(tense), histories().map(packed)))
    later = draw(st.sampled_from((0, 0, 1, 7 * MINUTE, 3 * HOUR)))
    return history, draw(st.integers(0, 10_000)), draw(specs()), later, draw(st.sampled_from((False,) * 7 + (True,)))


@settings(max_examples=150)
@given(moments())
def test_the_plan_is_the_next_decision(moment: tuple[History, int, JobSpec, int, bool]) -> None:
    history, cut, spec, later, pauses = moment
    engine = cut_short(history, cut)
    now = engine.state.at + later
    if pauses:
        engine.handle(e.Paused(now))
    submitted = submission(engine, spec, now)
    preview = planned(engine, submitted)
    step = engine.handle(submitted)
    note(f"{preview.answer} {preview.offer}: {preview.decision}")
    ids = [JOB] if spec.count == 1 else [f"{JOB}/{k}" for k in range(spec.count)]
    promises = {name: [p for p in step.outputs if isinstance(p, ANSWERED) and p.job == name] for name in ids}
    assert preview.decision == promises[ids[0]][-1]
    assert sum(count for _, _, count in preview.tally) == spec.count
    for name in ids:
        assert any(is_so(engine, name, answer, offer) for answer, offer, _ in preview.tally)
    assert is_so(engine, ids[0], preview.answer, preview.offer)
    assert [effect.because for effect in preview.effects] == made_room(step, ids)
    if preview.answer == "burst":
        bursts_to_the_first_that_is_paid(preview)


def is_so(engine: Engine, job_id: str, answer: str, offer: str) -> bool:
    """What became of the job in truth, told by the state and not by the promise."""
    job = engine.state.jobs.get(job_id)
    if job is None:
        return answer == "refuse"
    if job.attempt is not None:
        at = (job.next or job.attempt).offer
        return (answer, offer) == ("start" if at.term in STANDING else "burst", at.id)
    if engine.state.paused:
        return answer == "paused"
    if job.short_of:
        return answer == "short of money"
    return answer in ("wait", "no room", "short of money") and not offer and (job.until_at > engine.state.at)


def made_room(step: Step, ids: list[str]) -> list[Reason]:
    """Why others were stopped for it."""
    reasons = [promise.because for promise in step.outputs if isinstance(promise, e.StopPromised)]
    return [why for why in reasons if getattr(why, "gainer", "") in ids]


def bursts_to_the_first_that_is_paid(preview: Plan) -> None:
    """Of the offers with room, in the order they are listed: the first that money allows, at the price shown."""
    rented = [choice for choice in preview.choices if choice.offer.term not in STANDING and choice.fits_now]
    first = next(choice for choice in rented if choice.denied is None)
    assert isinstance(preview.decision, e.StartPromised)
    assert (first.offer.id, first.node) == (preview.offer, preview.decision.joins)
    assert first.copies == preview.decision.copies
    holds = [ask.hold for ask in preview.decision.nodes] + ([preview.decision.hold] if preview.decision.hold else [])
    assert first.held == sum(part.amount for hold in holds for part in hold.parts)
    because = preview.decision.because
    if isinstance(because, (NotWorthWaiting, PatienceOver, JoinsNode, QueueFull)):
        assert first.cost == because.cost


def test_a_submission_that_the_engine_ignores_has_no_plan() -> None:
    """Its number is known already: told twice, the engine hears it once."""
    engine = Engine(PolicyRules())
    with pytest.raises(Broken, match="gave planned no answer"):
        planned(engine, e.JobSubmitted(0, -1, JOB, JobSpec(1)))
