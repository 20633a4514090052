"""A recorded step that breaks a promise ends what reads it with one sentence that says where the way on is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.core.decide.rules import BuiltInRules
from penstock.core.errors import BadInput
from penstock.core.model import events as e
from penstock.journal.open import open_journal
from penstock.journal.schema import Changes
from penstock.live.sequencer import Sequencer
from tests.contract.journals import append, claimed
from tests.parity_live import SimulatedMonths
from tests.stories.kit import given, nothing, offer, policy, site, submitted


def doubled() -> list[Any]:
    """One job, started twice beside itself in one step, as an early version could."""
    cloud = offer("cloud", sizes=(8,), sold_by="attempt", limit_gpus=64)
    penstock = given(site("lab", nodes=1), cloud, policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(nothing, at="09:10")
    steps = penstock.steps
    (start,) = [promise for promise in steps[-1].outputs if isinstance(promise, e.StartPromised)]
    return [*steps[:-1], replace(steps[-1], outputs=(*steps[-1].outputs, start))]


@pytest.fixture
def where(tmp_path: Path) -> str:
    path = str(tmp_path / "journal.db")
    journal, epoch = claimed(path)
    steps = doubled()
    append(journal, epoch, steps[:-1])
    journal.append(epoch, steps[-1:], Changes(), {}, {})
    journal.release(epoch)
    journal.close()
    return path


@pytest.mark.parametrize("command", ["rebuild", "restore"])
def test_neither_tables_nor_a_restore_are_made_of_it(
    where: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rebuild` ended in a traceback, and `restore` put the journal in charge, which no start could go on from."""
    code = main(["journal", command, where, *(["--yes"] if command == "restore" else [])])
    words = capsys.readouterr().err
    assert code == 2
    assert "breaks a promise" in words
    assert "docs/journal.md" in words
    assert "Traceback" not in words


def test_a_start_says_which_step_it_is(where: str) -> None:
    """`penstock up` ended in 65 lines of traceback."""
    journal = open_journal(where)
    with pytest.raises(BadInput, match=r"step \d+ breaks a promise: .* docs/journal\.md says what to do"):
        Sequencer(journal, SimulatedMonths(), BuiltInRules()).state_now()
    journal.close()
