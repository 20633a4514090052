"""What the journals' suites are told with: a story's steps, two databases, and a look at everything in one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.core.engine import Step
from penstock.core.fold.apply import fold_step
from penstock.core.fold.state import State
from penstock.core.model.types import Origin
from penstock.journal.open import open_journal
from penstock.journal.projection import project
from penstock.journal.schema import TABLES, Changes
from penstock.journal.writer import JournalWriter
from tests.stories.kit import (
    cancelled,
    cap,
    ended,
    given,
    lost,
    nothing,
    offer,
    policy,
    site,
    started,
    submitted,
)

KINDS = ("sqlite", "postgres")
LEASE = 30_000


def new_address(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Where a new journal of this kind may be."""
    if kind == "sqlite":
        return str(folder / "live.journal")
    address: str = request.getfixturevalue("postgres").new_database()
    return address


def story() -> list[Step]:
    """Two on owned GPUs, one that bursts and is lost and comes back, one refused, one cancelled."""
    cloud = offer("cloud", sizes=(8,), sold_by="attempt", limit_gpus=64)
    penstock = given(site("lab", nodes=1), cloud, policy("10m"), cap("org", "1000"))
    penstock.hears(submitted("a", team="red", name="Eins"), submitted("b", team="blue", user="Ada"), at="09:00")
    penstock.hears(started("a.1"), submitted("wide", gpus=999), at="09:01")
    penstock.hears(nothing, at="09:10")
    penstock.hears(started("b.1"), submitted("c", team="red", origin=Origin("lab", "u-7")), at="09:12")
    penstock.hears(cancelled("c"), at="09:13")
    penstock.hears(lost("b.1", kept="15m"), at="09:40")
    penstock.hears(ended("a.1"), at="10:00")
    penstock.hears(submitted("sweep", gpus=1, count=3, team="red"), at="10:30")
    penstock.hears(ended("b.2"), at="12:00")
    return penstock.steps


def claimed(where: str, holder: str = "here", at: int = 0) -> tuple[JournalWriter, int]:
    journal = open_journal(where)
    return journal, journal.claim(holder, at, LEASE)


def append(
    journal: JournalWriter,
    epoch: int,
    steps: Sequence[Step],
    blobs: Mapping[str, bytes] | None = None,
    keys: Mapping[str, str] | None = None,
) -> None:
    """With what these steps change after those that the journal has before them."""
    before = [row for row in journal.read() if steps and row.number < steps[0].number]
    journal.append(epoch, steps, changed_by(steps, before), blobs or {}, keys or {})


def changed_by(steps: Sequence[Step], before: Sequence[Any] = ()) -> Changes:
    state, changes = State(), Changes()
    state.watch()
    for row in before:
        fold_step(state, row.at, row.inputs, row.outputs)
    for step in steps:
        fold_step(state, step.at, step.inputs, step.outputs)
        project(state, step, changes)
    return changes


def epoch_of(journal: JournalWriter) -> int:
    """Of the lease as it is: of whoever claimed it last."""
    epoch: int = journal.db.all("select epoch from lease")[0][0]
    return epoch


BESIDE = ("journal", "steps", "replies", "blobs")


def everything(journal: JournalWriter) -> dict[str, list[tuple[Any, ...]]]:
    """All that is kept, but for the lease: every table, in the order of its key."""
    found: dict[str, list[tuple[Any, ...]]] = {name: _all(journal, name, "1") for name in BESIDE}
    for table in TABLES.values():
        found[table.name] = _all(journal, table.name, ", ".join(str(k + 1) for k in range(len(table.columns))))
    return found


def _all(journal: JournalWriter, table: str, order: str) -> list[tuple[Any, ...]]:
    rows = journal.db.all(f"select * from {table} order by {order}")
    return [tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in row) for row in rows]
