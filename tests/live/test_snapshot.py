"""A snapshot is the state, and nothing but a state."""

import pickle

import pytest

from penstock.core.engine import Engine, replay
from penstock.live import snapshot
from tests.parity import chosen, scenario, steps_of


def test_from_a_snapshot_on_the_same_is_decided() -> None:
    made = scenario(60)
    steps, _ = steps_of(made, chosen(made, "penstock"))
    half = len(steps) // 2
    engine = Engine()
    engine.state = snapshot.unpack(
        snapshot.pack(replay((step.at, step.inputs, step.outputs) for step in steps[:half]).state)
    )
    engine.state.check()
    assert [engine.handle(*step.inputs) for step in steps[half:]] == steps[half:]


@pytest.mark.parametrize("evil", [eval, print, pickle.loads, Engine], ids=lambda evil: evil.__name__)
def test_whoever_can_write_the_database_cannot_run_code_here(evil: object) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return evil, ("1",)

    with pytest.raises(pickle.UnpicklingError):
        snapshot.unpack(pickle.dumps(Evil()))
