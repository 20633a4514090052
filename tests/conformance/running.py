"""Run cases in all modes: plain first, then at home, burst, and moved in between. All manifests of a mode at once."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.conformance.cases import Case
from tests.conformance.comparing import Allowed, Difference, unexplained
from tests.conformance.ground import MODES, Ground
from tests.conformance.playing import Play, Trace

Say = Callable[[str], None]


@dataclass
class Outcome:
    """What came of one case: a trace for each mode."""

    case: Case
    on: str
    traces: dict[str, Trace] = field(default_factory=dict)

    def found(self) -> list[Difference]:
        """All differences, and for each run that was lost one of its own."""
        lost = [
            Difference(self.case.name, mode, "lost", "run", "ended", trace.lost)
            for mode, trace in self.traces.items()
            if trace.lost
        ]
        return [*(difference for trace in self.traces.values() for difference in trace.found), *lost]

    def unexplained(self, allowed: list[Allowed], mode: str) -> list[Difference]:
        return unexplained([difference for difference in self.found() if difference.mode == mode], allowed)


async def run(ground: Ground, cases: list[Case], allowed: list[Allowed], say: Say) -> list[Outcome]:
    """On real pods nothing is moved in between: there the test bed's own demo shows that."""
    outcomes = {case.name: Outcome(case, on="real pods" if ground.real else "kwok") for case in cases}
    for mode in ("plain", *MODES[:2]) if ground.real else ("plain", *MODES):
        say(f"{mode}: {len(cases)} manifests")
        plays = [_play(ground, outcomes[case.name], mode, allowed) for case in cases]
        await _all(ground, mode, plays, say)
        for play in plays:
            outcomes[play.case.name].traces[mode] = play.trace
        await ground.cleared(mode)
    return [outcomes[case.name] for case in cases]


def _play(ground: Ground, outcome: Outcome, mode: str, allowed: list[Allowed]) -> Play:
    plain = outcome.traces.get("plain")
    return Play(ground, outcome.case, mode, allowed, plain, asyncio.Event() if mode == "moved" else None)


async def _all(ground: Ground, mode: str, plays: list[Play], say: Say) -> None:
    if mode in ("plain", "home"):
        await asyncio.gather(*(_told(play, say) for play in plays))
        return
    async with ground.full() as empty:
        tasks = [asyncio.create_task(_told(play, say)) for play in plays]
        if mode == "moved":
            await asyncio.gather(*(play.arrived.wait() for play in plays))
            empty()
            await asyncio.sleep(2)  # Penstock sees the free GPUs, too
            for play in plays:
                if play.may_move is not None:
                    play.may_move.set()
        await asyncio.gather(*tasks)


async def _told(play: Play, say: Say) -> None:
    trace = await play.tell()
    wrong = len(unexplained(trace.found, play.allowed))
    what = trace.lost or ("stays home" if trace.stays else f"{wrong} differences" if wrong else "the same")
    say(f"  {play.mode:6} {play.case.name:32} {what}")
