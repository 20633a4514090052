"""Seeded mistakes: each undoes one protection, and a test of `tests/hostile` must find it. The product has none of it.

    PENSTOCK_TEST_MISTAKE=label_believed python -m pytest -p tests.hostile.mistakes tests/live/test_admission.py
    PENSTOCK_TEST_MISTAKE=label_believed python -m tests.hostile.mistakes up --home ...

The first makes it in the tests' own process and, by `ControlPlane`, in the control planes that they start.
"""

import os
import sys
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

VARIABLE: Final = "PENSTOCK_TEST_MISTAKE"


def label_believed() -> None:
    """A Job is booked to whatever team its label names."""
    from penstock.live.admission import Admission

    _undo(Admission, "book")


def project_open_to_all() -> None:
    """Every team may spend every project's budget."""
    from penstock.live.admission import Admission

    _answer(Admission, "_may_book", True)


def array_counted_once() -> None:
    """A team's queue counts submissions, not jobs."""
    from penstock.live.admission import Queues

    right = Queues.entered
    setattr(Queues, "entered", lambda self, team, _jobs: right(self, team, 1))  # noqa: B010 - mypy minds the other way


def snapshot_unchecked() -> None:
    """A snapshot is believed whatever its seal says."""
    from penstock.journal import seal, writer

    setattr(writer, "opened", lambda *arguments: arguments[-1][seal.SEAL_BYTES :])  # noqa: B010 - as above


def blob_unchecked() -> None:
    """A job runs whatever stands under its digest."""
    from penstock.live import sequencer

    right = sequencer.unpack_work
    setattr(sequencer, "unpack_work", lambda _, packed: right(sha256(packed).hexdigest(), packed))  # noqa: B010 - as above


def epoch_ignored() -> None:
    """A site's newer control plane is not asked about."""
    from penstock.live import site_claims

    right = site_claims.objection
    wrong: Any = lambda site, seen, kept, place, _, by_path: right(site, seen, kept, place, 2**62, by_path)  # noqa: E731 - short
    setattr(site_claims, "objection", wrong)  # noqa: B010 - as above


def incarnation_ignored() -> None:
    """A copy of the journal is as good as the journal."""
    from penstock.live import site_claims

    setattr(site_claims, "objection", lambda *_: "")  # noqa: B010 - as above


def deleted_journal_unnoticed() -> None:
    """What is written to a file without a name is answered as if it were kept."""
    from penstock.journal.sqlite import SqliteDatabase

    _undo(SqliteDatabase, "_check_files")


def environment_inherited() -> None:
    """A job has all variables of the control plane."""
    from penstock.drivers.local import job_folders

    right = job_folders.JobFolders.variables
    setattr(  # noqa: B010 - as above
        job_folders.JobFolders, "variables", lambda self, *arguments: {**os.environ, **right(self, *arguments)}
    )


def control_file_trusted() -> None:
    """What stands in an attempt's `ended.json` is its end, whoever wrote it."""
    from penstock.drivers.local import store
    from penstock.drivers.records import read

    setattr(store, "read_end", lambda folder, _: read(f"{folder}/ended.json"))  # noqa: B010 - as above
    setattr(store.LocalStore, "is_over", lambda _, folder: (folder / "ended.json").exists())  # noqa: B010 - as above


def revocation_cached() -> None:
    """A control plane believes what it knew of tokens at its start."""
    from penstock.web.tokens import Tokens

    _undo(Tokens, "_void")


def cap_retold() -> None:
    """Every start sets the caps of the sites file again."""
    from penstock.core.model.events import CapSet
    from penstock.live import config_facts

    def all_of_them(_state: object, configured: Any, _accept: bool) -> Any:
        return [fact for fact in configured if isinstance(fact, CapSet)]

    setattr(config_facts, "_cap_news", all_of_them)  # noqa: B010 - as above


#: The mistake, and a test that must fail with it.
FOUND_BY: Final[dict[Callable[[], None], str]] = {
    label_believed: "tests/live/test_admission.py::test_a_jobs_label_cannot_book_to_a_team_that_is_not_its_namespaces",
    project_open_to_all: "tests/hostile/test_teams.py::test_a_member_takes_nothing_that_is_another_teams",
    array_counted_once: "tests/hostile/test_teams.py::test_a_storm_of_one_teams_arrays_ends_and_the_others_go_on",
    environment_inherited: "tests/drivers/local/test_hostile_jobs.py::test_a_job_sees_named_variables_only",
    control_file_trusted: (
        "tests/hostile/test_local_jobs.py::test_one_attempts_rubbish_stops_neither_the_site_nor_the_control_plane"
    ),
    revocation_cached: "tests/hostile/test_tokens.py::test_revoking_a_token_ends_the_browsers_of_its_browsers",
    cap_retold: "tests/hostile/test_caps.py::test_a_cap_that_a_person_set_to_zero_survives_a_crash_and_a_start",
    snapshot_unchecked: "tests/hostile/test_chain.py::test_a_changed_snapshot_is_not_believed[richer]",
    blob_unchecked: "tests/hostile/test_chain.py::test_forged_work_does_not_run_and_all_else_does",
    epoch_ignored: "tests/live/test_site_claims.py::test_a_newer_epoch_at_a_site_ends_whoever_comes_with_an_older_one",
    incarnation_ignored: "tests/hostile/test_copies.py::test_a_copied_home_folder_is_refused_alive_or_dead",
    deleted_journal_unnoticed: (
        "tests/hostile/test_chain.py::test_a_journal_that_nobody_will_find_takes_no_more_submissions[deleted]"
    ),
}
MISTAKES: Final = {mistake.__name__: mistake for mistake in FOUND_BY}


def _undo(owner: type, name: str) -> None:
    _answer(owner, name, None)


def _answer(owner: type, name: str, answer: object) -> None:
    """The method does nothing but answer so."""
    setattr(owner, name, lambda *_, **__: answer)


def main() -> int:
    from penstock.cli.main import main as penstock

    return penstock(sys.argv[1:])


if name := os.environ.get(VARIABLE):
    MISTAKES[name]()
if __name__ == "__main__":
    sys.exit(main())
