"""Promise 5: the simulator and the live system are the same program. The same trace gives the same journal.

The real loop, dispatch, recovery and a journal in SQLite, or PostgreSQL, run under virtual time; only clock and driver
are replaced.
"""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.engine import Step
from penstock.core.model import events as e
from penstock.journal.journal import Row
from penstock.journal.open import open_journal
from penstock.journal.redecide import redecide
from penstock.policy.rules import PolicyRules
from tests.conftest import ROOT
from tests.parity import chosen, fingerprint, governed, narrow, scenario, steps_of, warmed
from tests.parity_live import live, plain
from tests.postgres import server

PROGRAM = """
import sys
from tests.parity import fingerprint
from tests.test_parity_live import both
from tests.parity_live import plain
steps, rows = both(sys.argv[1], sys.argv[2])
assert list(map(plain, rows)) == list(map(plain, steps))
print(len(rows), fingerprint(steps))
"""


def both(
    folder: str, name: str, jobs: int = 120, where: str = "", with_file: bool = False
) -> tuple[list[Step], list[Row]]:
    """What the simulator decided, and what the live plane wrote down."""
    made = narrow(scenario(jobs)) if with_file else scenario(jobs)
    policy = governed(made, chosen(made, name)) if with_file else chosen(made, name)
    steps, _ = steps_of(made, policy)
    with closing(open_journal(where or str(Path(folder) / "live.db"))) as journal:
        live(made, policy, journal, steps[-1])
        return steps, list(journal.read())


@pytest.mark.parametrize("name", ["compute-q30", "penstock"])
def test_the_same_trace_gives_the_same_journal_row_by_row(name: str, tmp_path: Path) -> None:
    steps, rows = both(str(tmp_path), name)
    for step, row in zip(steps, rows, strict=True):
        assert plain(row) == plain(step)
    assert redecide(rows, 1).different == 0


@pytest.mark.parametrize("name", ["compute-q30", "penstock"])
def test_they_are_the_same_under_a_policy_file_that_has_all_of_the_moment(name: str, tmp_path: Path) -> None:
    steps, rows = both(str(tmp_path), name, jobs=200, with_file=True)
    for step, row in zip(steps, rows, strict=True):
        assert plain(row) == plain(step)
    assert redecide(rows, 1, PolicyRules()).different == 0
    kinds = {event.because.kind for step in steps for event in step.outputs if hasattr(event, "because")}
    assert kinds >= {"BurstAllowed", "NoTriggerHolds", "TooDear", "TeamAtLimit", "EgressSpent", "InQuietHours"}
    assert kinds >= {"HeadroomKept", "RanTooLong"}


def test_they_are_the_same_with_nodes_that_are_rented_ahead(tmp_path: Path) -> None:
    """By hours and by forecast. After the last submission the simulator closes the pools, and the plane keeps them."""
    made = warmed(scenario(120))
    policy = chosen(made, "penstock")
    whole, _ = steps_of(made, policy)
    joined = [k for k, step in enumerate(whole) if any(isinstance(event, e.SiteJoined) for event in step.inputs)]
    steps = whole[: joined[1] if len(joined) > 1 else len(whole)]
    with closing(open_journal(str(tmp_path / "live.db"))) as journal:
        live(made, policy, journal, steps[-1])
        rows = list(journal.read())[: len(steps)]
    assert list(map(plain, rows)) == list(map(plain, steps))
    assert redecide(rows, 1).different == 0
    kinds = {type(event) for step in steps for event in (*step.inputs, *step.outputs)}
    assert kinds >= {e.WarmPromised, e.PayerChanged, e.DemandForecast, e.HoursOpened}
    assert not whole[-1].actions  # all of them are returned


@pytest.mark.slow
def test_they_are_the_same_in_postgresql(tmp_path: Path) -> None:
    with server() as database:
        steps, rows = both(str(tmp_path), "penstock", where=database.new_database())
    assert list(map(plain, rows)) == list(map(plain, steps))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compute-q30", "penstock"])
def test_they_are_the_same_whatever_the_hash_seed(name: str, tmp_path: Path) -> None:
    outputs = [_run(seed, name, tmp_path) for seed in ("0", "1", "4242")]
    made = scenario(120)
    steps, _ = steps_of(made, chosen(made, name))
    assert outputs == [f"{len(steps)} {fingerprint(steps)}\n"] * 3


def _run(hash_seed: str, name: str, folder: Path) -> str:
    (folder / hash_seed).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / hash_seed), name],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
