"""A process that writes a journal until it is killed: `python -m tests.contract.writer ADDRESS LEASE_MS`.

It recovers as the live loop does (fold what is there), then submits jobs, one append each, and says each step's number
once it is durable. What it says is what the tests hold the journal to.
"""

import sys
import time

from penstock.core.engine import replay
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import DAY
from penstock.journal.journal import Fenced, Held
from penstock.journal.open import open_journal
from penstock.journal.projection import project

FENCED, HELD = 3, 4


def main(where: str, lease_ms: int) -> int:
    journal = open_journal(where)
    try:
        epoch = journal.claim("writer", int(time.time() * 1000), lease_ms)
    except Held as error:
        print(error, flush=True)
        return HELD
    engine = replay((row.at, row.inputs, row.outputs) for row in journal.read())
    engine.state.watch()
    print("claimed", epoch, flush=True)
    while True:
        number, at = engine.state.steps, engine.state.at + 1
        step = engine.handle(*(opening() if number == 0 else submission(at, number)))
        changes, blobs = project(engine.state, step), {f"digest-{step.number}": b"work"}
        try:
            journal.append(epoch, [step], changes, blobs, {f"key-{step.number}": f"answer-{step.number}"})
        except Fenced as error:
            print("fenced", error, flush=True)
            return FENCED
        print(step.number, flush=True)


def opening() -> list[e.Fact]:
    lab = Site("lab", (Offer("lab/owned", "lab", "owned", (NodeShape(8, 4),)),), front_door=True)
    return [e.PeriodOpened(0, "month 1", 0, 30 * DAY), e.SiteJoined(0, lab), e.PolicySet(0, 1, Policy("story"))]


def submission(at: int, number: int) -> list[e.Fact]:
    """One comes; every third time an older one ends."""
    facts: list[e.Fact] = [e.JobSubmitted(at, number, f"job-{number}", JobSpec(1, team=f"team-{number % 3}"))]
    return [*facts, e.AttemptEnded(at, f"job-{number // 3}.1", "done")] if number % 3 == 0 else facts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
