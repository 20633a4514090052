"""What ended jobs left behind goes, and only that."""

from contextlib import closing
from pathlib import Path

from penstock.journal.open import open_journal, open_reader
from penstock.live.retention import CHECKPOINTS_KEPT, long_over
from tests.contract.journals import append
from tests.contract.journals import story as told_in_steps


def test_checkpoints_go_thirty_days_after_their_job_has_ended_and_unknown_ones_stay(tmp_path: Path) -> None:
    where = str(tmp_path / "journal")
    with closing(open_journal(where)) as journal:
        steps = told_in_steps()
        append(journal, journal.claim("test", 0, 1), steps)
    last = steps[-1].at  # of "b"
    with closing(open_reader(where)) as reader:
        assert not long_over(reader, "b", last + CHECKPOINTS_KEPT)
        assert long_over(reader, "b", last + CHECKPOINTS_KEPT + 1)
        assert not long_over(reader, "sweep/0", last + 2 * CHECKPOINTS_KEPT)
        assert not long_over(reader, "nobody", last + 2 * CHECKPOINTS_KEPT)
