"""Generated jobs with a firm's own teams, classes and data."""

from dataclasses import replace

from penstock.config import SitesFile
from penstock.config.teams import Team
from penstock.core.model.governance import ClassRule, Governance
from penstock.core.model.types import DataSet
from penstock.core.units import GB
from penstock.sim.suited import Firm, firm_of, suited
from penstock.sim.traces.generate import CLASSES, generate

FIRM = SitesFile(
    "EUR",
    (),
    data=(DataSet("cards", GB, "lab", "personal"), DataSet("rates", GB, "lab", "public")),
    data_teams=(("cards", ("fraud",)),),
    teams=(Team("fraud", classes=("inference", "night")), Team("risk")),
    caps=(("org", 1, None), ("team:quants", 1, None)),
    governance=Governance(classes=(ClassRule("inference"), ClassRule("training"), ClassRule("night"))),
)


def test_generated_jobs_are_of_the_firms_own_teams_classes_and_data() -> None:
    """They had teams and classes of their own: under a firm's policy a quarter was refused for its class, and the
    firm's team caps, shares and data rules were never tried.
    """
    firm = firm_of([FIRM])
    jobs = suited(generate(400, names=firm.teams).jobs, firm, seed=0)
    assert {job.spec.team for job in jobs} == {"fraud", "risk", "quants"}
    assert {job.spec.job_class for job in jobs} == {"inference", "training", "night"}
    assert {job.spec.job_class for job in jobs if job.spec.team == "fraud"} <= {"inference", "night"}
    reads = {(job.spec.team, *job.spec.data) for job in jobs if job.spec.data}
    assert {"cards", "rates"} == {name for _, name in reads}
    assert {team for team, name in reads if name == "cards"} == {"fraud"}
    assert any(not job.spec.data for job in jobs)


def test_what_the_files_do_not_say_stays_as_it_is_generated() -> None:
    jobs = generate(200).jobs
    assert suited(jobs, firm_of([SitesFile("EUR", ())]), seed=0) == list(jobs)
    assert suited(jobs, Firm(classes=tuple(name for name, _ in CLASSES)), seed=0) == list(jobs)


def test_only_the_words_differ() -> None:
    """Widths, run times and submissions are those that made-up teams have."""
    firm = replace(firm_of([FIRM]), data=())
    made = generate(300, teams=3).jobs
    ours = suited(generate(300, names=firm.teams).jobs, firm, seed=0)
    assert [(job.submit_at, job.run_ms, job.spec.gpus) for job in ours] == [
        (job.submit_at, job.run_ms, job.spec.gpus) for job in made
    ]
