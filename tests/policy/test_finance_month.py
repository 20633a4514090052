"""The finance firm of examples/policy.yaml on generated jobs: its policy's promises, read from the journal's rows."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

from penstock.cli.scenario_options import policy_of_file, scenario_at, under_policy
from penstock.config import SitesFile, read_sites
from penstock.core.engine import Engine, Step
from penstock.core.model.events import JobRefused, StartPromised
from penstock.core.model.types import JobSpec
from penstock.explain.sentences import Say, sentence
from penstock.journal.open import read
from penstock.journal.sqlite import BulkJournal
from penstock.sim.engine.simulator import known
from penstock.sim.scenario import prepare, run
from penstock.sim.traces.generate import generate
from penstock.sim.traces.trace import TraceJob
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
POLICY = str(EXAMPLES / "policy.yaml")
#: More work than the firm's own GPUs do in the time.
JOBS, DAYS = 400, 1.0
CLASSES_OF_DATA = ("", "personal", "restricted", "public")


@cache
def firm() -> SitesFile:
    return under_policy(read_sites(str(EXAMPLES / "sites.yaml")), POLICY)


@cache
def jobs() -> tuple[TraceJob, ...]:
    """Every fourth job brings along data of each class."""
    made = generate(JOBS, seed=17, days=DAYS, widest=32).jobs
    return tuple(
        replace(job, spec=replace(job.spec, data_class=CLASSES_OF_DATA[k % len(CLASSES_OF_DATA)]))
        for k, job in enumerate(made)
    )


def month(journal: Path) -> Engine:
    """The whole run, in a journal; after every step no cap is crossed."""
    scenario = scenario_at(firm(), prepare(known(jobs(), "e2", 0), "l1"), {})

    def see(step: Step, engine: Engine) -> None:
        kept.append(step)
        for (scope, _), account in engine.state.ledger.accounts.items():
            assert account.cap is None or account.spent + account.held <= account.cap, scope

    with BulkJournal(str(journal)) as kept:
        _, engine = run(scenario, policy_of_file(firm(), POLICY), see)
    return engine


def test_a_month_of_the_finance_firm_keeps_what_its_policy_promises(tmp_path: Path) -> None:
    engine = month(tmp_path / "month.journal")
    specs: dict[str, JobSpec] = {job.id: job.spec for job in jobs()}
    offers = {offer.id: offer for site in firm().sites for offer in site.offers}
    outputs = [event for row in read(str(tmp_path / "month.journal")) for event in row.outputs]
    starts = [event for event in outputs if isinstance(event, StartPromised)]
    refusals = [event for event in outputs if isinstance(event, JobRefused)]
    rented = [start for start in starts if start.rented]

    assert len(rented) > 20, "otherwise this shows nothing"
    assert {offers[start.offer].term for start in rented} == {"spot"}
    assert "inference" not in {specs[start.job].job_class for start in rented}
    went = Counter((specs[start.job].data_class, offers[start.offer].site) for start in starts)
    assert {site for data_class, site in went if data_class == "restricted"} == {"lab"}
    assert "aws-frankfurt" not in {site for data_class, site in went if data_class == "personal"}
    assert ("public", "aws-frankfurt") in went

    said = {sentence(event.because, Say("EUR")) for event in refusals}
    assert refusals
    assert all("policy.yaml:" in words or "at most" in words for words in said), said
    assert engine.state.ledger.accounts["org", "month 1"].spent > 0
