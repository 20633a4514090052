"""Seeded mistakes: each undoes one protection, and a test of `tests/hostile` must find it. The product has none of it.

    PENSTOCK_TEST_MISTAKE=label_believed python -m pytest -p tests.hostile.mistakes tests/live/test_admission.py
    PENSTOCK_TEST_MISTAKE=label_believed python -m tests.hostile.mistakes up --home ...

The first makes it in the tests' own process and, by `ControlPlane`, in the control planes that they start.
"""

import os
import sys
from collections.abc import Callable
from typing import Final

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


#: The mistake, and a test that must fail with it.
FOUND_BY: Final[dict[Callable[[], None], str]] = {
    label_believed: "tests/live/test_admission.py::test_a_jobs_label_cannot_book_to_a_team_that_is_not_its_namespaces",
    project_open_to_all: "tests/hostile/test_teams.py::test_a_member_takes_nothing_that_is_another_teams",
    array_counted_once: "tests/hostile/test_teams.py::test_a_storm_of_one_teams_arrays_ends_and_the_others_go_on",
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
