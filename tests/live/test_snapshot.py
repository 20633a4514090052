"""A state put away and taken out again decides as if nothing had happened."""

import pickle
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.engine import Engine, replay
from penstock.core.fold.invariants import check
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site, Waiting
from penstock.core.units import DAY, HOUR
from penstock.live import snapshot
from penstock.policy.rules import PolicyRules
from tests.conftest import ROOT
from tests.core.histories import History, Life, histories
from tests.parity import chosen, scenario, steps_of


@settings(max_examples=40)
@given(histories(), st.integers(0, 10_000))
def test_what_comes_back_decides_the_same(history: History, cut: int) -> None:
    life = Life(history)
    life.run()
    at = cut % len(life.steps)
    engine = Engine(PolicyRules())
    for step in life.steps[:at]:
        engine.handle(*step.inputs)
    again = restored(engine)
    assert again.state.digest() == engine.state.digest()
    check(again.state)
    for step in life.steps[at:]:
        assert again.handle(*step.inputs) == step
    assert list(map(repr, again.state.canonical())) == list(map(repr, life.engine.state.canonical()))


@pytest.mark.slow
def test_twenty_thousand_waiting_jobs_are_not_too_deep() -> None:
    """Python's own limit is a depth of a thousand."""
    engine = crowded(20_000)
    again = restored(engine)
    assert len(again.state.jobs) == 20_000
    assert again.state.digest() == engine.state.digest()
    ends = e.AttemptEnded(2 * HOUR, "job-0.1", "done")
    assert again.handle(ends) == engine.handle(ends)


def test_what_is_one_thing_stays_one() -> None:
    state = restored(crowded(50)).state
    for shape in state.shape_list:
        assert shape.lane is None or any(shape.lane is lane for lane in state.lanes)
    for lane in state.lanes:
        assert all(pool is state.pools[name] for name, pool in lane.pools)
        assert all(job is state.jobs[job.id] for job in lane.jobs.values())
    for attempt in state.attempts.values():
        assert attempt.job.attempt is attempt
        assert attempt.offer is state.offers[attempt.offer.id]
        assert all(state.on_node[attempt.offer.id][node][attempt.id] is attempt for node, _ in attempt.slots)
    for (scopes, period), book in state.ledger.books.items():
        for scope, account in zip(scopes, book, strict=True):
            assert account is state.ledger.accounts[scope, "" if scope.startswith("job:") else period]


class Thief:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("your money",))


@pytest.mark.parametrize(
    "planted", [Thief(), print, pickle.Unpickler, Life], ids=["a call", "a builtin", "another module", "a test"]
)
def test_nothing_but_the_core_is_made_from_a_snapshot(planted: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pickle.UnpicklingError, match="a snapshot may not hold"):
        snapshot.unpack(zlib.compress(pickle.dumps(planted)))
    assert capsys.readouterr().out == ""


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError, match="a snapshot holds a State, not a Policy"):
        snapshot.unpack(zlib.compress(pickle.dumps(Policy("x"))))


def test_a_new_file_of_the_core_is_another_schema_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = schema_now()
    assert schema_now() == before
    core = tmp_path / "core"
    shutil.copytree(ROOT / "src/penstock/core", core, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("penstock.core.__path__", [str(core)])
    assert schema_now() == before
    for place in ("", "fold", "decide/nested"):
        (core / place).mkdir(exist_ok=True)
        (core / place / "another.py").write_text("class Another: ...")
        assert schema_now() != before
        (core / place / "another.py").unlink()
        assert schema_now() == before
    monkeypatch.undo()
    assert schema_now() == before


def schema_now() -> str:
    snapshot.schema.cache_clear()
    return snapshot.schema()


def test_from_a_snapshot_on_the_same_is_decided() -> None:
    made = scenario(60)
    steps, _ = steps_of(made, chosen(made, "penstock"))
    half = len(steps) // 2
    engine = restored(replay((step.at, step.inputs, step.outputs) for step in steps[:half]))
    check(engine.state)
    assert [engine.handle(*step.inputs) for step in steps[half:]] == steps[half:]


def restored(engine: Engine) -> Engine:
    again = Engine(PolicyRules())
    again.state = snapshot.unpack(snapshot.pack(engine.state))
    return again


def crowded(jobs: int) -> Engine:
    """One node, and everybody waits for it."""
    lab = Site("lab", (Offer("lab/owned", "lab", "owned", (NodeShape(8, 1),)),), front_door=True)
    policy = Policy("patient", waiting=Waiting("constant", 10 * HOUR))
    engine = Engine()
    engine.handle(e.PeriodOpened(0, "month 1", 0, 30 * DAY), e.SiteJoined(0, lab), e.PolicySet(0, 1, policy))
    engine.handle(*(e.JobSubmitted(1, k, f"job-{k}", JobSpec(1 + k % 8, team=f"team-{k % 9}")) for k in range(jobs)))
    return engine
