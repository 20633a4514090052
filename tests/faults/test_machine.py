"""Faults of a whole Penstock on one machine: real processes, real disks, a real database. Slow, and named by row."""

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.cli.main import main
from penstock.core.engine import replay
from penstock.core.model import events as e
from penstock.core.units import HOUR, Money, money
from penstock.journal.open import open_journal
from penstock.journal.redecide import redecide
from tests.postgres import Server, server
from tests.test_wiring import LIMIT_S, up

pytestmark = pytest.mark.slow
PRICE: Money = money("360")  #: an hour; so a second is a tenth of a unit
SITES = """
currency: USD
policy: {{cost_of_delay: 100000, least_lease: 3s}}
caps: [{{scope: org, per_month: {cap}}}]
sites:
  - name: cloud
    driver: local
    offers:
      - {{name: pods, term: on_demand, gpu: A100, gpus_per_node: 1, nodes: 2, sold_by: attempt,
         price: {{per: gpu_hour, list: 360}}, billing_step: 1s, kill: 2s, guarantee: timer}}
"""
#: Counts, and writes down on SIGTERM how far it came.
COUNTS = """
import os, signal, sys, time
shelf = os.environ["PENSTOCK_CHECKPOINT_URL"].removeprefix("file://")
def told(*_):
    open(shelf + "/kept", "w").write(str(time.time()))
    print("penstock: checkpoint step 1", flush=True)
    open(sys.argv[1], "w").write(str(time.time()))
    raise SystemExit(1)
signal.signal(signal.SIGTERM, told)
for k in range(int(sys.argv[2])):
    print("line", k, flush=True)
    time.sleep(0.1)
"""


def until(true: Callable[[], Any], what: str) -> Any:
    """Another process has no event that we could await; this ends as soon as it is so."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        if result := true():
            return result
        time.sleep(0.05)
    raise AssertionError(f"not within {LIMIT_S} s: {what}")


def sites(home: Path, cap: str) -> list[str]:
    (home / "sites.yaml").write_text(SITES.format(cap=cap))
    return ["--sites", str(home / "sites.yaml")]


def counting(home: Path, tenths: int, **more: Any) -> dict[str, Any]:
    return {"gpus": 1, "command": [sys.executable, "-c", COUNTS, str(home / "told"), str(tenths)], **more}


def in_state(client: httpx2.Client, job: str, *wanted: str) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        answer: dict[str, Any] = client.get(f"/v1/jobs/{job}").json()
        return answer if answer["state"] in wanted else None

    got: dict[str, Any] = until(reached, f"{job} is {wanted}")
    return got


def prints(client: httpx2.Client, job: str, text: str) -> None:
    until(lambda: text in client.get(f"/v1/jobs/{job}/log").text, f"{job} prints {text}")


def killed(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)


def test_row_04_while_it_is_dead_a_job_with_room_in_its_caps_runs_on_to_its_end(tmp_path: Path) -> None:
    more = sites(tmp_path, "100000")
    with up(tmp_path, *more) as (process, client):
        job = client.post("/v1/jobs", json=counting(tmp_path, 30)).json()["job"]
        prints(client, job, "line 1")
        most = client.get("/v1/exposure").json()["most"]
        killed(process)
    (ended,) = until(lambda: list(tmp_path.glob("sites/cloud/attempts/*/ended.json")), "it ends by itself")
    assert json.loads(ended.read_text())["phase"] == "done"
    with up(tmp_path, *more) as (_, client):
        shown = in_state(client, job, "succeeded")
        until(lambda: client.get("/v1/exposure").json()["most"] == 0, "its hold is settled")
        spent = client.get("/v1/budget").json()["scopes"][0]["spent"]
    assert shown["attempts"] == 1
    assert 0 < spent <= most


def test_row_04_while_it_is_dead_a_job_near_its_cap_is_checkpointed_and_gone(tmp_path: Path) -> None:
    """By its own deadline and the time to kill; what was said to be exposed is enough for it."""
    more = sites(tmp_path, "30")
    with up(tmp_path, *more) as (process, client):
        job = client.post("/v1/jobs", json=counting(tmp_path, 6_000, grace="1s", lease_max="3s")).json()["job"]
        prints(client, job, "line 1")
        killed(process)
    with closing(open_journal(str(tmp_path / "journal.db"))) as journal:
        ledger = replay((row.at, row.inputs, row.outputs) for row in journal.read()).state.ledger
    (lease,) = ledger.leases.values()
    (ended,) = until(lambda: list(tmp_path.glob("sites/cloud/attempts/*/ended.json")), "it ends by its deadline")
    gone_at = int(ended.stat().st_mtime * 1000)
    assert lease.deadline_at - 100 <= gone_at <= lease.worst_at
    assert json.loads(ended.read_text())["phase"] == "stopped"
    assert (tmp_path / "told").exists()
    bill = -(-PRICE * (gone_at - lease.opened_at) // HOUR)
    assert bill <= lease.held + lease.charged
    with up(tmp_path, *more) as (_, client):
        until(lambda: client.get(f"/v1/jobs/{job}").json()["attempts"] == 2, "it goes on from its checkpoint")
        client.post(f"/v1/jobs/{job}/cancel")
        in_state(client, job, "cancelled")


def test_row_12_a_disk_that_is_full_refuses_submissions_clearly_and_recovers_by_itself(tmp_path: Path) -> None:
    """A limit on the size of the process's files stands for the disk's end; it is lifted while Penstock runs."""
    with up(tmp_path) as (process, client):
        job = client.post("/v1/jobs", json=counting(tmp_path, 20)).json()["job"]
        prints(client, job, "line 1")
        endless = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, endless[1]))
        answer = until(lambda: _refused(client, tmp_path), "a submission is refused")
        assert "The journal cannot be written" in answer["detail"]
        assert "Free space on its disk" in answer["detail"]
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        prints(client, job, "line 19")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, endless)
        until(lambda: client.get("/readyz").status_code == 200, "it takes submissions again")
        assert in_state(client, job, "succeeded")["attempts"] == 1
        in_state(client, client.post("/v1/jobs", json=counting(tmp_path, 1)).json()["job"], "succeeded")
    with closing(open_journal(str(tmp_path / "journal.db"))) as journal:
        assert redecide(journal.read(), 1).different == 0


def _refused(client: httpx2.Client, home: Path) -> dict[str, Any] | None:
    answer = client.post("/v1/jobs", json=counting(home, 1))
    if answer.status_code == 201:  # it still fitted
        return None
    assert answer.status_code == 503, answer.text
    refusal: dict[str, Any] = answer.json()
    return refusal


def test_row_12_a_database_that_is_gone_loses_nothing_and_is_found_again(tmp_path: Path) -> None:
    with server() as database:
        where = database.new_database()
        with up(tmp_path, "--journal", where) as (_, client):
            job = client.post("/v1/jobs", json=counting(tmp_path, 20)).json()["job"]
            prints(client, job, "line 1")
            _gone_for_a_while(database, client, tmp_path)
            until(lambda: client.get("/readyz").status_code == 200, "it takes submissions again")
            assert in_state(client, job, "succeeded")["attempts"] == 1
            in_state(client, client.post("/v1/jobs", json=counting(tmp_path, 1)).json()["job"], "succeeded")
        with closing(open_journal(where)) as journal:
            rows = list(journal.read())
        assert redecide(rows, 1).different == 0
        assert [event for row in rows for event in row.inputs if isinstance(event, e.AttemptLost)] == []


def _gone_for_a_while(database: Server, client: httpx2.Client, home: Path) -> None:
    database.stop()
    try:
        answer = client.post("/v1/jobs", json=counting(home, 1))
        assert (answer.status_code, "restore its database" in answer.json()["detail"]) == (503, True)
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/jobs").status_code == 503
        until(lambda: list(home.glob("sites/*/attempts/*/ended.json")), "the job ends while nobody can write it down")
    finally:
        database.start()


def test_row_28_a_second_installation_at_the_same_site_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with up(tmp_path) as (_, client):
        job = client.post("/v1/jobs", json=counting(tmp_path, 10)).json()["job"]
        prints(client, job, "line 1")
        assert main(["up", "--home", str(tmp_path), "--port", "0", "--journal", str(tmp_path / "other.db")]) == 2
        assert "belongs to installation" in capsys.readouterr().err
        assert in_state(client, job, "succeeded")["attempts"] == 1


def test_a_port_that_is_taken_leaves_the_journal_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["up", "--home", str(tmp_path / "home"), "--port", port]) == 2
    assert f"port {port}" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
