"""Golden journals: what was written once means the same for ever."""

from collections import Counter
from pathlib import Path

import pytest

from penstock.core.engine import replay
from penstock.core.fold.invariants import check
from tests.journals.make import FOLDER, digest, rows

GOLDEN = sorted(FOLDER.glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_a_golden_journal_replays_to_its_digest(path: Path) -> None:
    packed = path.read_bytes()
    engine = replay(rows(packed))
    check(engine.state)
    assert engine.state.meaning() == digest(packed)


def test_the_golden_journals_hold_what_is_easily_broken() -> None:
    kinds = Counter(
        type(event).__name__
        for path in GOLDEN
        for _, inputs, outputs in rows(path.read_bytes())
        for event in (*inputs, *outputs)
    )
    wanted = (
        "AttemptLost", "NodeLost", "NodeRefused", "ReplicaLanded", "SiteLost", "SiteBack", "LeaseRenewed",
        "RenewalDenied", "Settled", "OfferClosed", "StopPromised", "CapSet", "PeriodOpened", "ReleasePromised",
    )  # fmt: skip
    assert [kind for kind in wanted if not kinds[kind]] == []
    assert all(path.stat().st_size < 200_000 for path in GOLDEN)
