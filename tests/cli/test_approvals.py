"""`penstock approvals` and `penstock policy` against a real `penstock up`, as people type them."""

import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from tests.cli.test_live import Says, started, stopped

SITES = """
currency: USD
sites:
  - name: cloud
    driver: rehearsal
    offers:
      - {name: pods, term: on_demand, gpu: H100, gpus_per_node: 8, start: 1s, price: {per: gpu_hour, list: 3},
         guarantee: timer, kill: 1s}
"""
POLICY = """version: 1
approvals:
  - {name: all, when: quote.cost >= 0.0, by: role:approver, within: 4h}
rules:
  - {name: wide, deny: job.gpus > 64, because: One rack only}
"""


class Running:
    def __init__(self, folder: Path, server: subprocess.Popen[str], address: str) -> None:
        self.folder, self.server, self.address = folder, server, address
        self.policy = folder / "policy.yaml"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One rented site, simulated, and a policy by which every burst needs approval."""
    folder = tmp_path_factory.mktemp("approvals")
    (folder / "sites.yaml").write_text(SITES)
    (folder / "policy.yaml").write_text(POLICY)
    files = ("--sites", str(folder / "sites.yaml"), "--policy", str(folder / "policy.yaml"))
    server, address = started(folder / "home", "--port", "0", "--rehearse", *files)
    try:
        yield Running(folder, server, address)
    finally:
        stopped(server)


@pytest.fixture
def says(running: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Says:
    monkeypatch.setenv("PENSTOCK_HOME", str(running.folder / "home"))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)

    def run(*args: str, code: int = 0) -> str:
        capfd.readouterr()
        assert main(args) == code, capfd.readouterr().err
        captured = capfd.readouterr()
        return captured.out + (captured.err if code else "")

    return run


def shown(says: Says, *args: str) -> Any:
    return json.loads(says(*args, "--json"))


def until(says: Says, *args: str, what: str) -> Any:
    """The answer, once it has this in it."""
    for _ in range(600):
        output = says(*args, "--json")
        if what in output:
            return json.loads(output)
        time.sleep(0.05)
    raise AssertionError(f"{args} never says {what}")


def test_a_job_waits_until_another_person_approves(
    running: Running, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    (running.folder / "job.yaml").write_text("{command: 'true', gpus: 8, run_time: 1h}")
    job = says("submit", str(running.folder / "job.yaml")).strip().split()[-1]
    (approval,) = until(says, "approvals", "ls", what=job)["jobs"]
    assert (approval["rule"], approval["amount"], approval["source"][-2:]) == ("all", approval["cost"], ":3")
    assert job in says("approvals", "ls", "-o", "wide")
    assert "is your own job; another person must answer." in says("approvals", "approve", job, "--yes", code=4)
    bob = says("token", "make", "--role", "approver", "--name", "Bob").strip()
    with monkeypatch.context() as env:
        env.setenv("PENSTOCK_URL", running.address)
        env.setenv("PENSTOCK_TOKEN", bob)
        env.setattr("sys.stdin", io.StringIO("y\n"))
        output = says("approvals", "approve", job, "--reason", "for the paper")
        assert f"{job}: Approved up to $24" in output
    until(says, "job", job, what='"running"')
    assert "for the paper" in says("why", job)
    assert "asks for no approval now" in says("approvals", "deny", job, code=2)
    asks_before_it_closes_the_offer_of(job, running, says, monkeypatch)


def asks_before_it_closes_the_offer_of(job: str, running: Running, says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    """`penstock apply -f` with a sites file by which a running job could not be where it is."""
    closed = running.folder / "closed.yaml"
    closed.write_text(SITES.replace("kill: 1s", "kill: 1s, closed: true"))
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    output = says("apply", "-f", str(closed), code=130)
    assert f"{job} of default on cloud/pods: the offer is closed (closed.yaml:8)" in output
    assert "1 running job would not be allowed where it is; it would not be stopped. Apply it?" in output
    assert "is in force: 1 change." in says("apply", "-f", str(closed), "--yes")
    assert '"running"' in says("job", job, "--json")
    says("apply", "-f", str(running.folder / "sites.yaml"))


def test_a_policy_is_applied_listed_shown_and_rolled_back(says: Says, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("version: 1\n")
    before = shown(says, "policy", "history")["revisions"][0]["revision"]
    assert says("policy", "show") == POLICY
    assert says("policy", "apply", str(other), "--reason", "try") == f"Revision {before + 1} is in force.\n"
    assert says("policy", "show") == "version: 1\n"
    assert "try" in says("policy", "history")
    assert says("policy", "rollback", str(before)) == f"Revision {before + 2} is in force.\n"
    assert says("policy", "show", str(before + 2)) == POLICY
    other.write_text("version: 99\n")
    assert "version" in says("policy", "apply", str(other), code=2)
    assert "no such file" in says("policy", "apply", str(tmp_path / "none.yaml"), code=2).lower()
    assert shown(says, "policy", "history")["revisions"][0]["revision"] == before + 2


def test_a_job_that_a_running_penstock_knows_is_explained_as_the_files_explain_it(
    running: Running, says: Says, tmp_path: Path
) -> None:
    policy, sites = tmp_path / "policy.yaml", running.folder / "sites.yaml"
    policy.write_text(POLICY)
    says("policy", "apply", str(policy))
    (tmp_path / "job.yaml").write_text("{command: 'true', gpus: 72, run_time: 1h}")
    job = says("submit", str(tmp_path / "job.yaml")).strip().split()[-1]
    asked = ("policy", "explain", "--job", job)
    for form in ((), ("-o", "table"), ("-o", "yaml"), ("--json",)):
        assert says(*asked, *form) == says(*asked, "--sites", str(sites), "--policy", str(policy), *form)
    assert shown(says, *asked) == {
        "job": job,
        "class": "training",
        "team": "default",
        "gpus": 72,
        "offers": [
            {
                "offer": "cloud/pods",
                "allowed": False,
                "against": [{"rule": "rule wide: One rack only", "where": "policy.yaml:5"}],
            }
        ],
    }
    assert "cloud/pods: denied: rule wide: One rack only (policy.yaml:5)" in says(*asked)
    assert "no job" in says("policy", "explain", "--job", "none", code=2)
    refused = says("policy", "explain", "--job", str(tmp_path / "job.yaml"), code=2)
    assert "needs --sites FILE, the offers to judge" in refused
    assert "leave one of them out" in says(*asked, "--sites", str(sites), "--url", running.address, code=2)


def test_the_file_is_applied_when_it_changes_and_on_sighup(running: Running, says: Says) -> None:
    running.policy.write_text(POLICY.replace("4h", "3h"))
    os.kill(running.server.pid, signal.SIGHUP)
    until(says, "policy", "show", what="within: 3h")
    running.policy.write_text("version: 99\n")
    for _ in range(600):
        if "is not in force" in complaints(says):
            break
        time.sleep(0.05)
    assert "is not in force" in complaints(says)
    running.policy.write_text(POLICY)
    until(says, "policy", "show", what="within: 4h")


def complaints(says: Says) -> str:
    try:
        return says("doctor", code=1)
    except AssertionError:  # nothing to complain of yet
        return ""
