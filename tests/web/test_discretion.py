"""Reasons name no job of another team."""

from pathlib import Path

from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.units import HOUR
from penstock.explain.sentences import Say, sentence
from penstock.web.discretion import ANOTHER, Discretion
from penstock.web.tokens import Token
from tests.awaiting import story
from tests.web.kit import running

ADMIN, VISION, SPEECH = (Token("t", "d", "member", team) for team in ("", "vision", "speech"))


@story
async def test_a_reason_names_jobs_to_their_own_team_only(tmp_path: Path) -> None:
    """Who was preempted read in `why` what another team had called the job that took the place."""
    async with running(tmp_path) as penstock:
        await penstock.admin.post("/v1/pause")
        theirs = await penstock.submits(penstock.team("speech"), name="secret")
        preempted = r.Preempted(theirs, 9, -5)
        backfills = r.Backfills(0, 2, theirs, 2 * HOUR, "gives_way", HOUR, learned=False)
        made = r.RoomMade(0, 2, (theirs, "nobody"))
        stop = e.StopPromised(0, "a.1", "wait", yields=True, because=preempted)
        start = e.StartPromised(
            0, "a", "a.1", "lab/owned", 1, 1000, 0, (), (), None, (f"{theirs}.1", f"{theirs}.2"), (), made
        )  # fmt: skip
        for caller, name in ((VISION, ANOTHER), (SPEECH, theirs), (ADMIN, theirs)):
            discretion = Discretion(penstock.reader, caller)
            assert discretion.event(stop).because == r.Preempted(name, 9, -5)
            assert sentence(discretion.event(stop).because, Say("USD")).startswith(f"Preempted by {name}, which has")
            assert discretion.event(e.WaitPromised(0, "a", HOUR, backfills)).because.reserved_for == name
        assert Discretion(penstock.reader, VISION).event(start).because.left_by == (ANOTHER, ANOTHER)
        assert Discretion(penstock.reader, VISION).event(start).after == ()
        assert Discretion(penstock.reader, SPEECH).event(start).after == (f"{theirs}.1", f"{theirs}.2")
        assert Discretion(penstock.reader, ADMIN).event(start) is start
