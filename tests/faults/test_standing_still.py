"""The database stands still: it takes connections and says nothing. Its own timeouts stand still with it."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.failover import JOB, Plane, until
from penstock.journal.journal import Unwritable
from penstock.journal.open import open_journal, open_reader
from penstock.journal.postgres import ANSWER_SECONDS, PATIENCE
from tests.contract.journals import LEASE
from tests.postgres import Server

pytestmark = pytest.mark.slow
#: For one answer, and one more connection; the rest is for a busy machine.
LIMIT_S = ANSWER_SECONDS + PATIENCE + 10


@pytest.fixture
def still(database: Server) -> Iterator[Server]:
    """Goes on in any case."""
    yield database
    database.signal(signal.SIGCONT)


def test_requests_end_with_a_sentence_and_readyz_says_so_and_then_it_goes_on(still: Server, tmp_path: Path) -> None:
    """Submissions hung for as long as the database did, without an answer, and /readyz said 200 throughout."""
    with Plane(tmp_path / "home", still.new_database()) as plane:
        headers = {"Idempotency-Key": "once"}
        still.signal(signal.SIGSTOP)
        began = time.monotonic()
        answer = plane.asked("POST", "/v1/jobs", json=JOB, headers=headers)
        assert time.monotonic() - began < LIMIT_S
        assert (answer.status_code, "Penstock then continues by itself" in answer.json()["detail"]) == (503, True)
        ready = plane.asked("GET", "/readyz")
        assert (ready.status_code, "has not answered for" in ready.json()["says"]) == (503, True)
        assert plane.asked("GET", "/healthz").status_code == 200
        began = time.monotonic()
        assert plane.asked("GET", "/v1/jobs").status_code == 503
        assert time.monotonic() - began < LIMIT_S
        still.signal(signal.SIGCONT)
        until(lambda: plane.asked("GET", "/readyz").status_code == 200, "it is ready again")
        first = plane.asked("POST", "/v1/jobs", json=JOB, headers=headers).json()
        again = plane.asked("POST", "/v1/jobs", json=JOB, headers=headers).json()
        assert (again["job"], again["again"]) == (first["job"], True)
        assert len([job for job in plane.asked("GET", "/v1/jobs").json()["jobs"] if job["id"] == first["job"]]) == 1


def test_an_idle_control_plane_is_not_ready_either(still: Server, tmp_path: Path) -> None:
    """Nobody asked for anything, so nothing failed but its heartbeat, which told nobody."""
    with Plane(tmp_path / "home", still.new_database()) as plane:
        still.signal(signal.SIGSTOP)
        until(lambda: plane.asked("GET", "/readyz").status_code == 503, "it says that it is not ready")
        still.signal(signal.SIGCONT)
        until(lambda: plane.asked("GET", "/readyz").status_code == 200, "it is ready again")


def test_neither_a_writer_nor_a_reader_waits_for_ever(still: Server) -> None:
    where = still.new_database()
    with closing(open_journal(where)) as journal, closing(open_reader(where)) as reader:
        epoch = journal.claim("here", 0, LEASE)
        still.signal(signal.SIGSTOP)
        for ask in (lambda: journal.renew(epoch, 1, LEASE), reader.head):
            began = time.monotonic()
            with pytest.raises(Unwritable):
                ask()
            assert time.monotonic() - began < LIMIT_S
        still.signal(signal.SIGCONT)
        journal.renew(epoch, 1, LEASE)
        assert reader.head() == 0
