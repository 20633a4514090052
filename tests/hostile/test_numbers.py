"""Numbers that no sane person sends, against a real control plane on both databases: refused, denied, or set aside."""

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.core.decide.rules import BuiltInRules
from penstock.core.model.events import JobSubmitted
from penstock.core.model.types import JobSpec
from penstock.journal.open import open_journal
from penstock.live.periods import Periods
from penstock.live.sequencer import Ask, Sequencer
from tests.hostile.control_plane import ControlPlane, until
from tests.postgres import server

LATER: Final = 10**14  #: any lease has run out by then
DEAR: Final = {
    "sites": [
        {
            "name": "here",
            "driver": "local",
            "egress": [{"per_gb": 1_000_000}],
            "offers": [
                {
                    "name": "rent",
                    "gpu": "H100",
                    "gpus_per_node": 1,
                    "price": {"list": 1},
                    "guarantee": "timer",
                    "billing_step": "1s",
                }
            ],
        }
    ]
}


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "live.journal")
        return
    with server() as database:
        yield database.new_database()


def plane_of(tmp_path: Path, journal: str) -> ControlPlane:
    return ControlPlane(tmp_path / "home", "--journal", journal, sites=DEAR)


def is_done(plane: ControlPlane, name: str) -> bool:
    return str(plane.ended(name)["state"]) == "succeeded"


def test_a_size_beyond_the_bound_is_refused_and_the_plane_goes_on(tmp_path: Path, journal: str) -> None:
    """`{"output": "1000000PB", "count": 200}` overflowed 64 bits in the journal: the plane exited."""
    with plane_of(tmp_path, journal) as plane:
        member = plane.client(plane.token("member", "vision"))
        bodies: list[dict[str, Any]] = [
            {"output": "1000000PB", "count": 200},
            {"gpus": 1_000_000},
            {"gpus": 10**30},
            {"gpus": 1_000, "count": 1_000},
            {"cap": "1000000000001"},
            {"run_time": "4000d"},
            {"priority": 10**20},
        ]
        for body in bodies:
            answer = member.post("/v1/jobs", json={"gpus": 1, "command": ["true"], "team": "vision"} | body)
            assert (answer.status_code, answer.json()["type"]) == (422, "urn:penstock:bad-input")
            assert any(words in answer.json()["detail"] for words in ("at most ", " from "))
        for cap in (10**18 + 1, 10**30, -1):
            assert plane.client().put("/v1/budget", json={"scope": "org", "per_month": cap}).status_code == 422
        assert is_done(plane, plane.submit("true", client=member, team="vision"))
        assert "Traceback" not in plane.words


def test_what_the_books_cannot_hold_is_denied_with_a_reason_and_stays_so_after_a_crash(
    tmp_path: Path, journal: str
) -> None:
    with plane_of(tmp_path, journal) as plane:
        member = plane.client(plane.token("member", "vision"))
        array = plane.submit("true", client=member, team="vision", output="1000PB", count=200)
        assert is_done(plane, plane.submit("true", client=member, team="vision"))
        for _ in range(2):
            first = until(lambda: plane.job(f"{array}/0"), lambda job: job.get("state") == "queued")
            assert "the most that the books can hold" in first["because"]["says"]
            for path in ("/", "/jobs", f"/jobs/{array}/0", "/v1/exposure", "/v1/costs", "/metrics"):
                assert plane.client().get(path).status_code == 200
            assert plane.client().get("/v1/status").json()["alarms"] == []
            plane.stop(signal.SIGKILL)
            plane.start()
        assert is_done(plane, plane.submit("true", team="vision"))
        assert "Traceback" not in plane.words


def test_a_journal_that_an_older_version_poisoned_starts_again(tmp_path: Path, journal: str) -> None:
    """It accepted a job of 10**21 bytes while something held it back; then every start died of placing it."""
    plane = plane_of(tmp_path, journal)
    with plane:
        plane.stop()
        with closing(open_journal(journal)) as written:
            sequencer = Sequencer(written, Periods(), BuiltInRules())
            sequencer.epoch = written.claim("older", LATER, 1)
            spec = JobSpec(1, team="vision", output_bytes=10**21, count=200)
            sequencer.take([Ask((JobSubmitted(0, 0, "", spec),))], [], sequencer.state_now().at)
            written.release(sequencer.epoch)
        plane.start()
        assert plane.client().get("/v1/status").json()["queued"] == 200
        assert is_done(plane, plane.submit("true", team="vision"))
        assert "Traceback" not in plane.words
