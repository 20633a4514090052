"""The same seed gives the same journal, whatever the interpreter's hash seed."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = """
import sys, tempfile, pathlib
from penstock.journal.sqlite import BulkJournal
from tests.parity import chosen, scenario
from penstock.sim.scenario import run
made = scenario(jobs=120)
with tempfile.TemporaryDirectory() as folder:
    with BulkJournal(str(pathlib.Path(folder) / "j.db"), group=1000) as journal:
        _, engine = run(made, chosen(made, sys.argv[1]), lambda step, _: journal.append(step))
print(journal.last.hex(), engine.state.digest())
"""


@pytest.mark.parametrize("name", ["compute-q30", "penstock"])
def test_three_hash_seeds_write_one_journal(name: str) -> None:
    outputs = [_run(seed, name) for seed in ("0", "1", "4242")]
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0].split()) == 2


def _run(hash_seed: str, name: str) -> str:
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
