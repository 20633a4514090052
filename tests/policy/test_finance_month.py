"""The finance firm of examples/policy.yaml: its policy's promises, read from the journal's rows.

A slice of its trace over 31 days, from the middle of one month into the next, with a monthly cap in the slice's scale.
The same file then drives `simulate`, `compare`, `shadow` and `up --rehearse`.
"""

import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.cli.scenario_options import policy_of_file, scenario_at, under_policy
from penstock.config import SitesFile, read_sites
from penstock.core.engine import Engine, Step
from penstock.core.model.events import JobFailed, JobRefused, JobSubmitted, StartPromised, StopPromised, WaitPromised
from penstock.core.model.types import JobSpec
from penstock.core.units import DAY, money
from penstock.explain.sentences import Say, sentence
from penstock.journal.open import read
from penstock.journal.sqlite import BulkJournal
from penstock.sim.engine.simulator import known
from penstock.sim.scenario import prepare, run
from penstock.sim.traces.generate import generate
from penstock.sim.traces.trace import TraceJob
from tests.cli.test_live import started, stopped
from tests.conftest import ROOT
from tests.front.test_shadow import seen
from tests.web import certificates

SITES = str(ROOT / "examples" / "sites.yaml")
JOBS, DAYS = 600, 31.0
STARTS_AT = 14 * DAY  #: of a simulated month of 30
CAP = "300"  #: a month: more than is wanted in the first one, and less than in the second
CLASSES_OF_DATA = ("", "personal", "restricted", "public")

#: A cluster that is watched: half of its GPUs are headroom by day.
WATCHED = """
currency: EUR
sites:
  - {name: lab, front_door: true, driver: kubernetes,
     offers: [{name: a100, term: owned, gpu: A100-80GB, gpus_per_node: 8, nodes: 2}]}
  - name: aws
    driver: kubernetes
    cloud: aws
    region: eu-central-1
    maps: {namespaces: {vision: vision}}
    offers:
      - {name: on-demand, term: on_demand, gpu: A100-80GB, family: p4de, gpus_per_node: 8, guarantee: timer,
         price: {per: gpu_hour, list: 0.5}}
      - {name: spot, term: spot, gpu: A100-80GB, family: p4de, gpus_per_node: 8, guarantee: timer,
         price: {per: gpu_hour, list: 1, most: 2}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    text = (ROOT / "examples" / "policy.yaml").read_text("utf-8")
    assert "per_month: 50000" in text
    path = tmp_path / "policy.yaml"
    path.write_text(text.replace("per_month: 50000", f"per_month: {CAP}"))
    return str(path)


def firm(policy: str) -> SitesFile:
    return under_policy(read_sites(SITES), policy)


@cache
def jobs() -> tuple[TraceJob, ...]:
    """Every fourth job brings along data of each class."""
    made = generate(JOBS, seed=17, days=DAYS, widest=32).jobs
    return tuple(
        replace(
            job,
            submit_at=STARTS_AT + job.submit_at,
            spec=replace(job.spec, data_class=CLASSES_OF_DATA[k % len(CLASSES_OF_DATA)]),
        )
        for k, job in enumerate(made)
    )


def month(policy: str, journal: Path) -> Engine:
    """The whole run, in a journal; after every step no cap is crossed."""
    file = firm(policy)
    scenario = scenario_at(file, prepare(known(jobs(), "e2", 0), "l1"), {})
    faults = tuple(replace(fault, at=STARTS_AT + fault.at) for fault in scenario.faults)

    def see(step: Step, engine: Engine) -> None:
        kept.append(step)
        for (scope, _), account in engine.state.ledger.accounts.items():
            assert account.cap is None or account.spent + account.held <= account.cap, scope

    with BulkJournal(str(journal)) as kept:
        _, engine = run(replace(scenario, faults=faults), policy_of_file(file, policy), see)
    return engine


def promises_hold(policy: str, journal: Path) -> list[Any]:
    """By the record: every rented hour is spot, data stays where it may be, and each refusal names its line."""
    rows = list(read(str(journal)))
    offers = {offer.id: offer for site in firm(policy).sites for offer in site.offers}
    specs: dict[str, JobSpec] = {e.job: e.spec for row in rows for e in row.inputs if isinstance(e, JobSubmitted)}
    outputs = [event for row in rows for event in row.outputs]
    starts = [event for event in outputs if isinstance(event, StartPromised)]
    rented = [start for start in starts if start.rented]
    assert {offers[start.offer].term for start in rented} <= {"spot"}
    assert not {specs[start.job].job_class for start in rented} & {"inference", "interactive", "compliance"}
    assert not [start for start in starts if not start.rented and specs[start.job].job_class == "experiment"]
    went = Counter((specs[start.job].data_class, offers[start.offer].site) for start in starts)
    assert {site for data_class, site in went if data_class == "restricted"} <= {"lab"}
    assert "aws-frankfurt" not in {site for data_class, site in went if data_class == "personal"}
    sentences = {sentence(e.because, Say("EUR")) for e in outputs if isinstance(e, (JobRefused, JobFailed))}
    assert all("policy.yaml:" in words or "at most" in words for words in sentences), sentences
    return outputs


def test_a_month_of_the_finance_firm_keeps_what_its_policy_promises(policy: str, tmp_path: Path) -> None:
    engine = month(policy, tmp_path / "month.journal")
    outputs = promises_hold(policy, tmp_path / "month.journal")
    starts = [event for event in outputs if isinstance(event, StartPromised)]

    assert sum(start.rented for start in starts) > 30, "otherwise this shows nothing"
    assert any(isinstance(event, JobRefused) for event in outputs)
    assert max(start.at for start in starts) - min(start.at for start in starts) > 30 * DAY
    accounts = engine.state.ledger.accounts
    for name in ("month 1", "month 2"):
        assert money("200") < accounts["org", name].spent <= money(CAP)
    waits = Counter(event.because.kind for event in outputs if isinstance(event, WaitPromised))
    assert min(waits["CapBinds"], waits["InQuietHours"]) > 0
    for stop in [event for event in outputs if isinstance(event, StopPromised) and event.then == "fail"]:
        assert "policy.yaml:" in sentence(stop.because, Say("EUR"))


def test_simulate_and_compare_take_the_same_file(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--generate", "150", "--seed", "17", "--sites", SITES, "--policy", policy, "--json")
    assert main(["simulate", *asked, "--journal", "simulated.journal"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["jobs"] > 100, report["policy"]) == (True, "policy.yaml")
    outputs = promises_hold(policy, tmp_path / "simulated.journal")
    assert any(isinstance(event, StartPromised) and event.rented for event in outputs)
    assert main(["compare", *asked, "--policies", "nowait", "--no-bound", "--workers", "1"]) == 0
    compared = json.loads(capsys.readouterr().out)["traces"][0]
    assert "policy.yaml" in json.dumps(compared)


def test_shadow_takes_the_same_file(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three Jobs of eight GPUs for a lab that keeps half of its two nodes free by day: two burst, to spot, for seven
    hours at $1, though nodes on demand cost half. By the sites file alone one bursts, for eight hours on demand.
    """
    (tmp_path / "sites.yaml").write_text(WATCHED)
    days = []
    with watched_cluster(
        [seen(f"train-{k}", 8, "08:00:00", "", "16:00:00", uid=f"u-{k}") for k in range(3)], tmp_path
    ) as kubeconfig:
        asked = ("--once", "--json", "--sites", str(tmp_path / "sites.yaml"), "--kubeconfig", kubeconfig)
        for more in (("--policy", policy), ("--cost-of-delay", "1000")):
            assert main(["shadow", *asked, *more]) == 0
            days += json.loads(capsys.readouterr().out)["days"]
    assert [(day["jobs"], day["would_burst"], day["stays_home"]) for day in days] == [(3, 2, 0), (3, 1, 0)]
    assert [day["would_cost"] for day in days] == [money("112"), money("32")]


@contextmanager
def watched_cluster(jobs: Sequence[dict[str, Any]], folder: Path) -> Iterator[str]:
    """An API server with these Jobs, which can only be read; its kubeconfig."""
    over = threading.Event()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the server's own name for it
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if "watch=" in self.path:
                over.wait()  # nothing happens
            else:
                items = jobs if self.path.partition("?")[0].endswith("/jobs") else []
                self.wfile.write(json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    certificate, key = certificates.make(folder, "lab")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = folder / "look.kubeconfig"
    reached = {"server": f"https://127.0.0.1:{server.server_port}", "certificate-authority": str(certificate)}
    kubeconfig.write_text(json.dumps({
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "clusters": [{"name": "lab", "cluster": reached}],
        "users": [{"name": "lab", "user": {"token": "t"}}],
    }))  # fmt: skip
    try:
        yield str(kubeconfig)
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_a_rehearsal_takes_the_same_file(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server, _ = started(tmp_path / "home", "--port", "0", "--rehearse", "--sites", SITES, "--policy", policy)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)

    def says(*words: str) -> str:
        capfd.readouterr()
        assert main(words) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    try:
        asked = {
            "inference": "{command: 'true', gpus: 8, class: inference, team: vision}",
            "secret": "{command: 'true', gpus: 8, class: experiment, team: vision, data_class: restricted}",
        }
        verdicts = {name: _explained(says, tmp_path, name, text) for name, text in asked.items()}
        shown = json.loads(says("policy", "history", "--json"))["revisions"][0]
        assert shown["revision"] == 1
    finally:
        stopped(server)
    assert [offer for offer, allowed in verdicts["inference"].items() if allowed] == [
        "lab/a100",
        "aws-frankfurt/reserved",
    ]
    assert not any(verdicts["secret"].values())


def _explained(says: Any, folder: Path, name: str, text: str) -> dict[str, bool]:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    job = says("submit", str(path)).strip().split()[-1]
    offers: Sequence[dict[str, Any]] = json.loads(says("policy", "explain", "--job", job, "--json"))["offers"]
    assert all("policy.yaml:" in row["against"][0]["where"] for row in offers if not _by_itself(row))
    return {row["offer"]: row["allowed"] for row in offers}


def _by_itself(row: dict[str, Any]) -> bool:
    """Allowed, or excluded by what the job asks for and not by the policy."""
    return bool(row["allowed"]) or row["against"][0]["where"] == "built in"
