"""`penstock up` as people run it: a process of its own, on a free port, that may be killed at any instant."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.cli.main import main
from penstock.config import parse_sites, this_machine
from penstock.core.errors import BadInput
from penstock.core.units import HOUR, MINUTE, money
from penstock.drivers.local.driver import LocalDriver
from penstock.front.home_cluster import HomeCluster
from penstock.front.home_jobs import HomeJobs
from penstock.journal.open import open_journal, open_reader
from penstock.journal.redecide import redecide
from penstock.live.clock import Clock
from penstock.live.config_facts import policy_of
from penstock.options import Options
from penstock.site_drivers import SiteDrivers
from penstock.wiring import _what_jobs_are_handed
from tests.conftest import ROOT

LIMIT_S = 60  #: a wait that takes longer has failed


@contextmanager
def up(home: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """A running Penstock and a client; it is told to stop at the end, if it still runs."""
    program = "import sys; from penstock.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        program,
        "up",
        "--port",
        "0",
        "--home",
        str(home),
        "--trust-teams",
        "--json",
        *more,
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        announced = json.loads(_json_in(process.stdout))
        headers = {"Authorization": f"Bearer {Path(announced['token_file']).read_text().strip()}"}
        with httpx2.Client(base_url=announced["address"], headers=headers, timeout=LIMIT_S, trust_env=False) as client:
            yield process, client
    finally:
        timer.cancel()
        process.terminate()
        process.wait(LIMIT_S)
        assert process.stdout is not None
        process.stdout.close()


def _json_in(lines: Iterable[str]) -> str:
    """The first whole value that it prints."""
    text = ""
    for line in lines:
        text += line
        try:
            json.loads(text)
        except ValueError:
            continue
        return text
    raise AssertionError(f"it ended without a word: {text}")


def _ended(client: httpx2.Client, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        shown = client.get(f"/v1/jobs/{name}").json()
        if shown["state"] in ("succeeded", "failed", "cancelled", "refused"):
            return shown
        time.sleep(0.1)  # over the network there is nothing to await but the stream, which has tests of its own
    raise AssertionError(shown)


@pytest.mark.slow
def test_killed_and_started_again_it_finds_its_job_running_and_starts_nothing_twice(tmp_path: Path) -> None:
    lines = "import time\nfor k in range(40): print(k, flush=True); time.sleep(0.1)"
    body = {"gpus": 1, "command": [sys.executable, "-c", lines]}
    with up(tmp_path) as (process, client):
        name = client.post("/v1/jobs", json=body).json()["job"]
        while client.get(f"/v1/jobs/{name}").json()["started_at"] is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
    with up(tmp_path) as (process, client):
        assert _ended(client, name)["state"] == "succeeded"
        attempts = client.get(f"/v1/jobs/{name}").json()["attempts"]
        log = client.get(f"/v1/jobs/{name}/log").text
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    assert attempts == 1
    assert [int(line) for line in log.split()] == list(range(40))
    with closing(open_journal(str(tmp_path / "journal.db"))) as journal:
        assert redecide(journal.read(), 1).different == 0


@pytest.mark.slow
def test_a_rehearsal_moves_by_itself_at_any_speed(tmp_path: Path) -> None:
    with up(tmp_path, "--rehearse", "--speed", "5000") as (_, client):
        body = {"gpus": 8, "run_time": "2h", "checkpoint_every": "10m", "command": ["train"]}
        names = [client.post("/v1/jobs", json=body).json()["job"] for _ in range(3)]
        assert [_ended(client, name)["state"] for name in names] == ["succeeded"] * 3


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["up", "--home", str(tmp_path / "home"), "--port", str(port)]) == 2
    assert f"Cannot listen on 127.0.0.1 port {port}" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_second_one_on_the_same_journal_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_journal(str(tmp_path / "journal.db"))) as journal:
        journal.claim("another machine", int(time.time() * 1000), HOUR)
        assert main(["up", "--home", str(tmp_path), "--port", "0"]) == 2
    assert "is written by another machine" in capsys.readouterr().err


def test_speed_is_of_a_rehearsal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--speed", "60"]) == 2
    assert "--rehearse" in capsys.readouterr().err


def test_without_a_sites_file_this_machine_is_the_one_site() -> None:
    (site,) = this_machine(gpus=4).sites
    assert (site.id, site.front_door, site.offers[0].term) == ("here", True, "owned")
    assert site.offers[0].shapes[0].gpus == 4
    (bare,) = this_machine(gpus=0).sites
    assert bare.offers[0].shapes[0].gpus == 2


FILE = b"""
currency: EUR
time_zone: Europe/Berlin
policy: {cost_of_delay: 7.5, share_nodes: false, stay: 1m, least_left: 30s, when_exhausted: move_home, preempt: true}
sites:
  - name: lab
    driver: local
    local: {notice: 1s, lost_after: [40s, 0s]}
    offers:
      - {name: gpu, term: owned, gpu: A100, gpus_per_node: 2, nodes: 1}
  - name: cloud
    driver: rehearsal
    offers:
      - name: gpu
        term: on_demand
        gpu: A100
        gpus_per_node: 2
        price: {per: gpu_hour, list: 2}
        billing_step: 1s
        kill: 5s
        guarantee: timer
"""


def test_the_sites_file_says_how_sites_are_reached_and_what_waiting_is_worth(tmp_path: Path) -> None:
    file = parse_sites(FILE, "sites.yaml")
    chosen = policy_of(file)
    assert (chosen.currency, chosen.waiting.value_per_hour) == ("EUR", money("7.50"))
    assert (chosen.settle_ms, chosen.least_left_ms, chosen.exhausted) == (MINUTE, MINUTE // 2, "move_home")
    assert not chosen.share_nodes
    assert file.time_zone == "Europe/Berlin"
    assert dict(file.local)["lab"].losses_ms == (40_000, 0)
    with (
        closing(open_journal(str(tmp_path / "j.db"))) as journal,
        closing(open_reader(str(tmp_path / "j.db"))) as reader,
    ):
        made = SiteDrivers(Options(tmp_path), file, journal.installation, reader, Clock()).all(file)
    assert [type(driver).__name__ for driver in made.values()] == ["LocalDriver", "Rehearsal"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            (b"driver: rehearsal", b"driver: slurm"),
            "line 12, sites[1].driver (cloud): unknown word 'slurm'; known here: local, rehearsal",
        ),
        (
            (b"driver: local", b"driver: rehearsal"),
            "line 8, sites[0].local (lab): this is for sites with 'driver: local'",
        ),
        ((b"Europe/Berlin", b"Mars/Olympus"), "line 3, time_zone: there is no time zone 'Mars/Olympus'"),
        ((b"stay: 1m", b"stay: long"), "line 4, policy.stay: 'long' is not"),
        ((b"preempt: true", b"preemt: true"), "line 4, policy: unknown key 'preemt'; did you mean 'preempt'?"),
    ],
)
def test_what_is_wrong_with_it_is_named_by_line(change: tuple[bytes, bytes], says: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_sites(FILE.replace(*change), "sites.yaml")
    assert says in str(error.value)


def test_a_site_without_a_driver_is_refused_unless_it_is_rehearsed(tmp_path: Path) -> None:
    path = tmp_path / "sites.yaml"
    path.write_bytes(FILE.replace(b"    driver: rehearsal\n", b""))
    file = parse_sites(path.read_bytes(), str(path))
    made = SiteDrivers(Options(tmp_path, str(path)), file, "i", None, Clock())  # type: ignore[arg-type]  # nobody reads
    with pytest.raises(BadInput, match="site 'cloud' says nothing of how it is reached"):
        made.all(file)


def test_a_start_says_which_of_our_own_keys_every_job_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that also manages nodes reached every job, and only whoever read the code could know."""
    secret = CLUSTERS.replace(b"{kubeconfig: /nowhere-else}", b"{kubeconfig: /nowhere-else, secret: bucket}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("PENSTOCK_CHECKPOINTS", raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    assert list(_what_jobs_are_handed(parse_sites(CLUSTERS, "sites.yaml"))) == []  # there is no bucket
    monkeypatch.setenv("PENSTOCK_CHECKPOINTS", "s3://bucket")
    (words,) = _what_jobs_are_handed(parse_sites(CLUSTERS, "sites.yaml"))
    assert words.startswith("Every job at lab, east sees AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY of Penstock's")
    assert "geheim" not in words
    (words,) = _what_jobs_are_handed(parse_sites(secret, "sites.yaml"))
    assert words.startswith("Every job at lab sees ")
    (words,) = _what_jobs_are_handed(this_machine(1))
    assert words.endswith("give Penstock keys that open this bucket and nothing else.")


CLUSTERS = b"""currency: USD
sites:
  - name: lab
    driver: kubernetes
    front_door: true
    kubernetes: {kubeconfig: /nowhere}
    offers: [{name: owned, term: owned, gpu: A100, gpus_per_node: 2}]
  - name: east
    driver: kubernetes
    kubernetes: {kubeconfig: /nowhere-else}
    offers: [{name: owned, term: owned, gpu: A100, gpus_per_node: 2}]
"""


def test_a_cluster_is_known_to_leave_once_it_has_joined_and_until_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`leave` waited for ever for a cluster that had been refused, and for one that was removed long ago."""
    monkeypatch.setattr("penstock.kube.access.connect", lambda access: access)
    file = parse_sites(CLUSTERS, "sites.yaml")
    homes = [HomeJobs(HomeCluster("lab", None))]  # type: ignore[arg-type]  # nothing is asked of it
    where = str(tmp_path / "journal.db")
    with closing(open_journal(where)), closing(open_reader(where)) as reader:
        drivers = SiteDrivers(Options(tmp_path), file, "i", reader, Clock(), homes)
    met: list[str] = []
    drivers.meet, drivers.part = lambda cluster: met.append(cluster.site), met.remove
    sites = {site.id: site for site in file.sites}
    for site in sites.values():
        drivers.make(file, site)
    assert met == []
    for site in sites.values():
        drivers.joined(file, site)
    assert met == ["east"]
    drivers.forget("east")
    assert met == []


def test_checkpoints_of_local_sites_go_to_a_bucket_if_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> dict[str, str]:
        file = this_machine(gpus=0)
        (driver,) = SiteDrivers(Options(tmp_path), file, "i", None, Clock()).all(file).values()  # type: ignore[arg-type]  # nobody reads
        assert isinstance(driver, LocalDriver)
        return driver.checkpoints.ready("here", "j1", "j1.1", "")

    monkeypatch.delenv("PENSTOCK_CHECKPOINTS", raising=False)
    assert asked()["PENSTOCK_CHECKPOINT_URL"].startswith("file://")
    monkeypatch.setenv("PENSTOCK_CHECKPOINTS", "s3://ours/penstock")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert asked()["PENSTOCK_CHECKPOINT_URL"] == "s3://ours/penstock/j1"
    assert asked()["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"


LAB = """sites:
  - name: lab
    driver: rehearsal
    offers:
      - {name: owned, gpu: A100, term: owned, gpus_per_node: 8, nodes: 1}
"""


@pytest.mark.slow
def test_sites_change_by_command_and_by_their_file_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, file, other = tmp_path / "home", tmp_path / "sites.yaml", tmp_path / "other.yaml"
    more = LAB.removeprefix("sites:\n").replace("lab", "annex")
    file.write_text(LAB)
    with up(home, "--sites", str(file)) as (process, client):
        monkeypatch.setenv("PENSTOCK_HOME", str(home))
        other.write_text(LAB + more)
        assert main(["apply", "-f", str(other), "--reason", "a new room"]) == 0
        assert "Site annex was added, with 1 offer." in capsys.readouterr().out
        other.write_text(LAB.replace("lab", "elsewhere").replace("A100", "[]"))
        assert main(["apply", "-f", str(other)]) == 2
        assert "other.yaml, line 5" in capsys.readouterr().err
        file.write_text(LAB + more + more.replace("annex", "barn"))
        process.send_signal(signal.SIGHUP)
        until = time.monotonic() + LIMIT_S
        while len(sites := client.get("/v1/sites").json()["sites"]) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        assert [site["id"] for site in sites] == ["lab", "annex", "barn"]
        (entry,) = client.get("/v1/audit", params={"did": "site"}).json()["entries"]
        assert (entry["about"], entry["before"], entry["after"]) == ("annex", "", "annex/owned")
