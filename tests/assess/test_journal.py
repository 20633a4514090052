"""A journal as a source: each attempt is a run, and the first one ends the wait."""

from dataclasses import replace
from typing import Any

from penstock.assess.history import OwnedGpus
from penstock.assess.sources.journal import reading_of
from penstock.core.engine import Engine, Step
from penstock.core.model import events as e
from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import HOUR
from penstock.policy.presets import policy
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.generate import generate


def test_a_simulated_journal_tells_every_run_and_the_owned_gpus() -> None:
    trace = generate(60, seed=1, teams=2, days=2)
    scenario = yardstick(trace.jobs, 2, costs="l1", knowledge="e2", seed=1)
    steps: list[Step] = []

    def see(step: Step, _: Engine) -> None:
        steps.append(step)

    report, _ = run(scenario, policy("compute", "0.25", scenario.jobs), see)
    reading = reading_of(steps, "journal month.journal")
    first = [job for job in reading.jobs if job.submitted_at is not None]
    assert len(first) == report.jobs == 60
    assert not reading.calendar
    assert sum(job.gpus * (job.run_ms or 0) for job in reading.jobs) / HOUR > 0
    assert {job.id: job.submitted_at for job in first} == {job.id: job.submit_at for job in scenario.jobs}
    assert any(job.rented for job in reading.jobs) == bool(report.cloud_jobs)
    assert reading.owned[-1].gpus == 16


def test_owned_gpus_leave_with_their_site_and_with_an_offer_that_it_no_longer_has() -> None:
    """Both were counted as owned to the end of the month."""
    lab = Site("lab", (_offer("lab/old", "A100", 8, 2), _offer("lab/new", "H100", 8, 1)))
    annex = Site("annex", (_offer("annex/old", "A100", 4, None),))
    events: list[Any] = [
        e.SiteJoined(0, lab),
        e.SiteJoined(HOUR, annex),
        e.NodesSeen(2 * HOUR, "annex/old", (("n1", 4), ("n2", 4))),
        e.SiteJoined(3 * HOUR, replace(lab, offers=lab.offers[1:])),
        e.SiteJoined(4 * HOUR, annex),  # applied once more: its nodes stay
        e.SiteRemoved(5 * HOUR, "annex"),
        e.SiteJoined(6 * HOUR, annex),  # a new one: its nodes have not been seen yet
    ]
    rows = [Step(k + 1, event.at, (event,), (), (), 1) for k, event in enumerate(events)]
    assert reading_of(rows, "journal").owned == (
        OwnedGpus(0, 16, "A100"),
        OwnedGpus(0, 8, "H100"),
        OwnedGpus(2 * HOUR, 24, "A100"),
        OwnedGpus(3 * HOUR, 8, "A100"),
        OwnedGpus(5 * HOUR, 0, "A100"),
    )


def _offer(name: str, model: str, gpus: int, nodes: int | None) -> Offer:
    return Offer(name, name.partition("/")[0], "owned", (NodeShape(gpus, nodes),), model)
