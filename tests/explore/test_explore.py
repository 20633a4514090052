"""Random months through engine and simulator: those that once broke a rule, and some that nobody has seen before."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.core.decide import targets
from penstock.core.fold import apply, attempts
from penstock.core.model import events as e
from tests.explore import living
from tests.explore.drive import Drive, run
from tests.explore.months import Month, dumped, loaded, month
from tests.explore.seeds import COMPARED, lived, named
from tests.explore.shrink import shrunk
from tests.explore.unequal import uneven

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
SEEDS, PARTS = 20, 5


@pytest.mark.parametrize("case", KEPT, ids=[case.stem for case in KEPT])
def test_a_month_that_broke_a_rule_breaks_none(case: Path) -> None:
    """What was wrong stands in the file."""
    assert lived(loaded(case.read_text("utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_months_that_nobody_has_seen_break_no_rule(part: int, request: pytest.FixtureRequest) -> None:
    """Others in each run, by the seed of the tests' order; `make explore SEEDS=1 START=...` makes it smaller."""
    run_seed = request.config.getoption("randomly_seed", 0)
    start = Random(f"{run_seed} {part}").randrange(1 << 40)
    for number in range(start, start + SEEDS):
        try:
            lived(uneven(month(number)))
        except Exception as error:
            raise AssertionError(f"make explore SEEDS=1 START={number}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_live_loop_bears_kills_in_months_that_nobody_has_seen(
    part: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Plane, sequencer and a journal in SQLite; what one forgets when it dies, the next one finds in the journal."""
    run_seed = request.config.getoption("randomly_seed", 0)
    number = Random(f"live {run_seed} {part}").randrange(1 << 40)
    try:
        assert living.lived(month(number), tmp_path) == living.KILLS
    except Exception as error:
        raise AssertionError(f"make explore LIVE=1 SEEDS=1 START={number}: {error}") from error


def test_a_month_is_the_same_wherever_it_is_read_again() -> None:
    for seed in range(20):
        one = uneven(month(seed))
        assert loaded(dumped(one, "")) == one


def test_the_same_month_is_decided_in_the_same_way() -> None:
    assert run(month(7)) == run(month(7))


# --- what it sees: with a mistake in the engine it breaks a rule ------------------------------------------------------


def _found(seeds: range) -> str:
    """The first rule that one of these months breaks."""
    for seed in seeds:
        try:
            lived(uneven(month(seed)))
        except Exception as error:  # noqa: BLE001 - any rule
            return named(error)
    return ""


def test_who_wakes_the_engine_late_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: with a target for delay, the next review had no instant of its own."""
    monkeypatch.setattr(targets, "next_at", lambda state: 0 if state.aim.next_at <= state.at else 1 << 62)
    assert _found(range(COMPARED * 12)).startswith("Violated a wake-up decides")


def test_a_job_that_begins_beside_itself_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt starts although the one before it has not stopped."""
    monkeypatch.setattr(attempts, "must_be_alone", lambda _: None)
    monkeypatch.setattr("penstock.core.fold.state.Attempt.ready", property(lambda self: self.phase == "promised"))
    assert _found(range(40))


def test_gpus_that_are_counted_on_other_nodes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cluster says of where it put a start is not heard."""
    monkeypatch.setitem(apply.APPLY, e.AttemptPlaced, lambda _, __: None)
    assert _found(range(20_079, 20_110)).startswith("Violated GPUs are counted where they are not")


def test_a_month_is_made_smaller_and_breaks_the_same_rule() -> None:
    """Of twenty jobs those stay without which the rule would hold."""

    def breaks(one: Month) -> str:
        wanted = [fact.job for fact in one.jobs if fact.spec.gpus > 4]
        return "wide" if len(wanted) > 1 else ""

    small = shrunk(replace(month(3), restarts_permille=0), breaks)
    assert len(small.jobs) == 2
    assert list(small.runs) == [fact.job for fact in small.jobs]
    Drive(small).play()
