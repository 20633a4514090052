"""No number ends the plane: the largest of everything, through the real path from a file's text to both databases."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config.jobs import parse_json_job
from penstock.config.sites import parse_sites
from penstock.core.decide.rules import BuiltInRules
from penstock.core.engine import replay
from penstock.core.errors import BadFile
from penstock.core.model import events as e
from penstock.core.model.types import EgressTier, JobSpec, NodeShape, Offer, Policy, Site
from penstock.core.units import DAY, HOUR, MICRO, MINUTE, MOST_MONEY, NEVER, Instant
from penstock.journal.open import open_journal, read
from penstock.journal.writer import JournalWriter
from penstock.live.config_facts import configured
from penstock.live.fact_bounds import bounded
from penstock.live.periods import Periods
from penstock.live.sequencer import Ask, Quarantined, Sequencer, Told
from tests.contract.journals import KINDS, LEASE, epoch_of, new_address

NOW: Instant = 20_000 * DAY


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_address(request.param, tmp_path, request)


def opened(where: str, *facts: e.Fact, now: Instant = NOW) -> Sequencer:
    made = Sequencer(open_journal(where), Periods(), BuiltInRules())
    made.epoch = made.journal.claim("test", 0, LEASE)
    if facts:
        made.take((), facts, now)
    return made


CLOUD = Site(
    id="cloud",
    offers=(
        Offer(
            id="cloud/rent",
            site="cloud",
            term="on_demand",
            shapes=(NodeShape(gpus=1, list_per_hour=MICRO),),
            guarantee="timer",
            sold_by="attempt",
        ),
    ),
    egress=(EgressTier(None, MICRO),),
)
BURSTS = e.PolicySet(0, 0, Policy("nowait"))


def submit(spec: JobSpec) -> Ask:
    return Ask((e.JobSubmitted(0, 0, "", spec),))


# --- what a journal cannot store is set aside, never the plane -------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [
        JobSpec(1, priority=10**30),
        JobSpec(1, priority=-(10**30)),
        JobSpec(1 << 63),
        JobSpec(1, team="half \ud800"),
        JobSpec(1, name="half \udfff"),
    ],
    ids=["priority", "negative priority", "gpus", "team", "name"],
)
def test_a_fact_that_a_journal_cannot_store_is_set_aside_and_the_others_of_its_batch_go_through(
    where: str, poison: JobSpec
) -> None:
    """`OverflowError: Python int too large to convert to SQLite INTEGER` ended the plane."""
    made = opened(where, e.SiteJoined(0, CLOUD), BURSTS)
    with closing(made.journal):
        taken = made.take([submit(JobSpec(1)), submit(poison), submit(JobSpec(1))], [], NOW + MINUTE)
        first, bad, other = taken.answers
        assert isinstance(bad, Quarantined)
        assert isinstance(first, Told)
        assert isinstance(other, Told)
        assert [kind for _, kind, _ in made.state_now().alarms] == ["quarantine"]
        digest = made.state_now().digest()
    again = opened(where)
    with closing(again.journal):
        assert again.state_now().digest() == digest
        (told,) = again.take([submit(JobSpec(1))], [], NOW + HOUR).answers
        assert isinstance(told, Told)


@pytest.mark.parametrize(
    "fact",
    [
        e.AttemptStopped(0, "j0.1", 10**30),
        e.AttemptLost(0, "j0.1", -(10**30)),
        e.AttemptEnded(0, "j0.1", "failed", "zero \0 and half \ud800 " + "x" * 100_000),
    ],
    ids=["stopped", "lost", "ended"],
)
def test_an_attempt_ends_whatever_its_site_says_of_it(where: str, fact: e.Fact) -> None:
    """A 30-digit number in a job's marks must not keep its money held for ever: the report is bounded, not dropped."""
    made = opened(where, e.SiteJoined(0, CLOUD), BURSTS)
    with closing(made.journal):
        made.take([submit(JobSpec(1))], [], NOW + MINUTE)
        made.take((), [e.AttemptStarted(0, "j0.1")], NOW + 2 * MINUTE)
        made.take((), [bounded(fact)], NOW + 3 * MINUTE)
        assert made.state_now().alarms == []
        assert "j0.1" not in made.state_now().attempts


# --- a journal that was poisoned before -----------------------------------------------------------------------------


def test_a_journal_with_a_job_too_dear_for_64_bits_starts_again_and_its_job_waits_with_a_reason(where: str) -> None:
    """Accepted by an older version while a cap held it back; when the cap went, every start died of its hold."""
    made = opened(where, e.SiteJoined(0, CLOUD), BURSTS, e.CapSet(0, "org", 5 * MICRO))
    with closing(made.journal):
        made.take([submit(JobSpec(1, output_bytes=10**21, count=200))], [], NOW + MINUTE)
    again = opened(where)
    with closing(again.journal):
        again.take((), [e.CapSet(0, "org", None)], NOW + HOUR)
        state = again.state_now()
        assert state.alarms == []
        reasons = {type(job.because).__name__ for job in state.jobs.values()}
        assert reasons == {"CapBinds"}
        assert {job.short_of for job in state.jobs.values()} == {"org"}
        (told,) = again.take([submit(JobSpec(1))], [], NOW + 2 * HOUR).answers
        assert isinstance(told, Told)
        assert state.jobs[told.answer].attempt is not None


def test_a_sum_of_many_jobs_beyond_the_books_is_a_denial(where: str) -> None:
    """Each hold fits into 64 bits; together they did not."""
    made = opened(where, e.SiteJoined(0, CLOUD), BURSTS)
    with closing(made.journal):
        dear = JobSpec(1, output_bytes=10**20, count=200)  # 10**17 of egress each
        made.take([submit(dear)], [], NOW + MINUTE)
        state = made.state_now()
        placed = [job for job in state.jobs.values() if job.attempt is not None]
        assert 0 < len(placed) < 10
        assert {type(job.because).__name__ for job in state.jobs.values() if job.attempt is None} == {"CapBinds"}
        assert all(account.held + account.spent <= MOST_MONEY for account in state.ledger.accounts.values())


# --- the largest of everything --------------------------------------------------------------------------------------

AMOUNTS = st.sampled_from(["0.000001", "1", "1000000", "999999999.999999", "1000000000", "1000000000000", "9" * 15])
#: Of one hour, of one GB, and of a start: the last of each list is beyond the bound.
PRICES = st.sampled_from(["0.000001", "1", "1000000", "499999999", "499999999.999999", "500000000.1"])
PER_GB = st.sampled_from(["0.000001", "0.1", "1", "1000", "499999.999999", "500000.1"])
SPANS = st.sampled_from(["1ms", "10m", "12h", "20d", "3650d"])
SIZES = st.sampled_from(["1KB", "1GB", "1PB", "1000PB", "888PiB", "1000000PB"])
GPUS = st.sampled_from([1, 1, 8, 1_000, 100_000, 1_000_000, 10**30])
ODD = st.sampled_from(["a", "b", "x" * 63, "x" * 60_000, "zero \0", "half \ud800"])

JOBS = st.fixed_dictionaries(
    {"command": st.just(["true"]), "gpus": GPUS, "output": SIZES},
    optional={
        "count": st.sampled_from([1, 100, 1_000, 10**9]),
        "run_time": SPANS,
        "checkpoint_every": SPANS,
        "grace": SPANS,
        "restart": SPANS,
        "deadline": SPANS,
        "lease_max": SPANS,
        "cap": AMOUNTS,
        "penalty_per_hour": AMOUNTS,
        "priority": st.sampled_from([0, 1000, -1000, 10**18]),
        "name": ODD,
        "team": ODD,
        "project": ODD,
    },
)
SITES = st.fixed_dictionaries(
    {
        "price": PRICES,
        "gpus_per_node": st.sampled_from([1, 8, 1_000_000]),
        "sold_by": st.sampled_from(["node", "attempt"]),
        "rate": st.sampled_from(["0.000001", "1", "1"]),
        "per_gb": PER_GB,
        "fee": PRICES,
        "kill": st.sampled_from(["0s", "10m", "12h", "3650d"]),
        "billing_step": SPANS,
        "billing_minimum": st.sampled_from(["0s", "10m", "12h", "3650d"]),
        "start": SPANS,
        "cap": st.none() | AMOUNTS,
        "delay": AMOUNTS,
        "least_lease": st.sampled_from(["1s", "10m", "12h", "3650d"]),
        "nodes": st.sampled_from([0, 0, 0, 1, 125_000]),
    }
)


def sites_file(said: dict[str, Any]) -> str:
    rented = {
        "name": "rent",
        "gpu": "H100",
        "gpus_per_node": said["gpus_per_node"],
        "sold_by": said["sold_by"],
        "price": {"list": said["price"], "per": "node_hour"},
        "kill": said["kill"],
        "billing_step": said["billing_step"],
        "billing_minimum": said["billing_minimum"],
        "start": said["start"],
        "guarantee": "timer",
        "extras": {"launch_fee": said["fee"], "nat_per_gb": said["per_gb"]},
    }
    owned = {"name": "own", "gpu": "A100", "term": "owned", "gpus_per_node": 8, "nodes": said["nodes"]}
    file = {
        "currency": "USD",
        "rates": [{"currency": "EUR", "rate": said["rate"], "dated": "2026-08-22", "margin": "100%"}],
        "policy": {"cost_of_delay": said["delay"], "least_lease": said["least_lease"]},
        "sites": [
            {"name": "cloud", "currency": "EUR", "egress": [{"per_gb": said["per_gb"]}], "offers": [rented]},
            *([{"name": "lab", "offers": [owned]}] if said["nodes"] else []),
        ],
    }
    return yaml.safe_dump(file | ({"caps": [{"scope": "org", "per_month": said["cap"]}]} if said["cap"] else {}))


def parsed(file: dict[str, Any]) -> tuple[e.Fact, ...]:
    """The sites file's facts; where it is refused, those of an ordinary one."""
    try:
        return configured(parse_sites(sites_file(file).encode(), "sites.yaml"))
    except BadFile:
        return (e.SiteJoined(0, CLOUD), BURSTS)


def asks(bodies: list[dict[str, Any]]) -> Iterator[Ask]:
    for body in bodies:
        try:
            file = parse_json_job(json.dumps(body).encode(), "job")
        except BadFile:
            continue
        spec = replace(file.spec, team=file.team or "default", count=min(file.spec.count, 20))
        yield submit(spec if file.deadline_ms is None else replace(spec, deadline_at=NOW + file.deadline_ms))


#: A database for each takes PostgreSQL half a second.
EXAMPLES = {"sqlite": 40, "postgres": 15}


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_of_everything_is_refused_denied_or_done(
    kind: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    """Nothing is quarantined, nothing raises, and the books of the engine, its journal and its tables agree."""

    @settings(max_examples=EXAMPLES[kind], deadline=None, suppress_health_check=list(HealthCheck))
    @given(file=SITES, bodies=st.lists(JOBS, min_size=1, max_size=4), kept=st.sampled_from([0, HOUR, NEVER, 10**30]))
    def is_done(file: dict[str, Any], bodies: list[dict[str, Any]], kept: int) -> None:
        all_agree(new_address(kind, tmp_path_factory.mktemp("largest"), request), file, bodies, kept)

    is_done()


def all_agree(where: str, file: dict[str, Any], bodies: list[dict[str, Any]], kept: int) -> None:
    made = opened(where, *parsed(file))
    with closing(made.journal):
        now = NOW + MINUTE
        answers = made.take(list(asks(bodies)), [], now).answers
        assert all(isinstance(answer, Told) for answer in answers), answers
        for reports in (e.AttemptStarted, e.AttemptCheckpointed, e.AttemptStopped):
            now = min(now + 12 * HOUR, made.next_deadline() or NEVER)
            live = list(made.state_now().attempts)[:50]
            more: dict[str, Any] = {} if reports is e.AttemptStarted else {"kept_ms": kept}
            made.take(
                (), [bounded(reports(at=0, attempt=name, **more)) for name in live], max(now, made.state_now().at)
            )
        state = made.state_now()
        assert state.alarms == []
        assert all(account.held + account.spent <= MOST_MONEY for account in state.ledger.accounts.values())
        assert isinstance(made.journal, JournalWriter)
        made.journal.rebuild(epoch_of(made.journal))
        digest = state.digest()
    assert replay((row.at, row.inputs, row.outputs) for row in read(where)).state.digest() == digest
