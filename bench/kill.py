"""`python -m bench.kill`: kill the control plane again and again while jobs run, and see whether anything is lost.

    python -m bench.kill --kills 300 [--journal sqlite|postgres] [--seed 1]
    python -m bench.kill --mutate [--kills 40] [--only NAME]

A real `penstock up` on three local sites (owned, on demand, spot with losses) under caps that bind, with a stream of
short real jobs. Half of its lives end by SIGKILL at a random instant, half at a random point of the protocol, around
appends and driver calls; sites are slow, and lose questions and answers (`bench.mistakes`). Then it lives to the end,
and the `Auditor` compares journal, sites and the jobs' own witness. With `--mutate` each seeded mistake takes a run of
its own, which must find it.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx2

from bench import witness
from bench.auditor import COUNTED, Auditor
from bench.mistakes import MISTAKES
from penstock.drivers.local.supervisor import is_locked
from penstock.drivers.records import write

START_S: Final = 60  #: a start that takes longer has failed
LIVE: Final = 8  #: jobs at once
MOST_LIFE_S: Final = 3.0  #: of a life that should end at a point of the protocol and does not come to it
SITES: Final = """
currency: USD
policy: {value_of_waiting: 100000, stay: 1s, least_left: 1s, least_lease: 4s}
caps:
  - {scope: org, per_month: 2000, per_hour: 1500}
  - {scope: "team:b", per_month: 12}
sites:
  - name: lab
    driver: local
    offers:
      - {name: gpu, term: owned, gpu: A100, gpus_per_node: 2, nodes: 1}
  - name: cloud
    driver: local
    offers:
      - {name: pods, term: on_demand, gpu: A100, gpus_per_node: 1, nodes: 2, sold_by: attempt, start: 100ms,
         price: {per: gpu_hour, list: 360}, billing_step: 1s, kill: 2s, guarantee: timer}
  - name: spot
    driver: local
    local: {notice: 300ms, lost_after: [LOSSES]}
    offers:
      - {name: gpu, term: spot, gpu: A100, gpus_per_node: 1, nodes: 2, start: 200ms, lost_every: 1m,
         price: {per: gpu_hour, list: 180, most: 360}, billing_step: 1s, kill: 2s, guarantee: timer}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=None, help="300, and at most 40 for each mistake")
    parser.add_argument("--journal", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutate", action="store_true")
    parser.add_argument("--only", choices=list(MISTAKES))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever is impatient leaves nothing behind, either
    if args.mutate:
        return mutated([args.only] if args.only else list(MISTAKES), args.journal, args.kills or 40, args.seed)
    series = run(args.journal, args.kills or 300, args.seed)
    print(json.dumps(series.summary), flush=True)
    for words in series.words:
        print(words, file=sys.stderr)
    return 0 if series.auditor.clean else 1


def mutated(names: list[str], journal: str, kills: int, seed: int) -> int:
    missed = 0
    for name in names:
        series = run(journal, kills, seed, name)
        missed += series.auditor.clean
        first = "NOT FOUND" if series.auditor.clean else f"found: {series.words[0]}"
        print(f"{name:34} after {series.kills:3} kills  {first[:150]}", flush=True)
    print(json.dumps({"mistakes": len(names), "found": len(names) - missed}), flush=True)
    return 1 if missed else 0


def run(journal: str, kills: int, seed: int, mistake: str = "") -> "Run":
    """With a mistake it ends as soon as something is found."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(_folder()))
        series = Run(home, where_of(journal, home, stack), random.Random(f"{seed}/{mistake}"), mistake)
        stack.callback(series.end)
        for number in range(1, kills + 1):
            series.live(number)
            if mistake and not series.auditor.clean:
                break
            if not number % 25:
                print(f"{json.dumps(series.summary)} so far", file=sys.stderr, flush=True)
        else:
            series.live_to_the_end(60 if not mistake else 30)
        return series


@contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="penstock-kill-")
    try:
        yield folder
    finally:
        _end_all(Path(folder))
        shutil.rmtree(folder, ignore_errors=True)


def _end_all(home: Path) -> None:
    """No job outlives the bench."""
    kept = [path.parent for path in home.glob("sites/*/*/*/lock") if is_locked(str(path))]
    for folder in kept:
        with suppress(OSError):
            write(f"{folder}/stop.json", {"grace_ms": 0})
    until = time.monotonic() + 20
    while any(is_locked(f"{folder}/lock") for folder in kept) and time.monotonic() < until:
        time.sleep(0.05)


def where_of(journal: str, home: Path, stack: ExitStack) -> str:
    if journal == "sqlite":
        return str(home / "journal.db")
    from bench.journal import running
    from tests.postgres import found

    programs = found()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql).")
    return stack.enter_context(running(programs)).new_database()


class Run:
    """One installation, its lives and deaths, and whoever submits to it."""

    def __init__(self, home: Path, where: str, chance: random.Random, mistake: str) -> None:
        self.home, self.where, self.chance, self.mistake = home, where, chance, mistake
        self.sites, self.witnesses = home / "sites.yaml", home / "witnesses"
        losses = [chance.choice(["0s", "1s", "3s", "8s"]) for _ in range(2_000)]
        self.sites.write_text(SITES.replace("LOSSES", ", ".join(losses)))
        self.witnesses.mkdir()
        self.auditor = Auditor(where, home)
        self.process: subprocess.Popen[str] | None = None
        self.kills = self.early = self.waited = 0
        self.sent: dict[str, dict[str, Any]] = {}  #: by key: what was asked for, answered or not
        self.jobs: dict[str, str] = {}  #: by key: the id that we were told
        self.cancelled: set[str] = set()
        self.ended: set[str] = set()

    # --- lives -----------------------------------------------------------------------------------------------------

    def live(self, number: int) -> None:
        """One life, killed; then the dead are looked at."""
        by_point = self.chance.random() < 0.5
        points = self.chance.randrange(1, 40) if by_point else 0
        early = not by_point and self.chance.random() < 0.15
        process = self._start(points, number)
        if early:  # while it starts
            process_ends_in(process, self.chance.random() * 2).join()
            self.early += 1
        else:
            client = self._ready(process)
            if client is not None:
                with client:
                    timer = process_ends_in(process, MOST_LIFE_S if by_point else self.chance.random() * 2)
                    self._crowd(process, client)
                    timer.join()
        self._buried(process)
        self.kills += 1
        self.auditor.follow()
        self.auditor.ask_sites()

    def live_to_the_end(self, patience_s: float) -> None:
        """Nobody kills it any more: every job ends, and everything adds up."""
        process = self._start(0, 0)
        client = self._ready(process)
        if client is not None:
            with client:
                self._until_all_ended(client, patience_s)
                self.auditor.follow()
                self._ask_jobs(client)
                self._ask_witnesses(client)
        process.terminate()
        self._buried(process, killed=False)
        self.auditor.follow()
        self.auditor.decide_again()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_S)

    def _start(self, points: int, world: int) -> "subprocess.Popen[str]":
        more = {"PENSTOCK_BENCH_POINTS": str(points), "PENSTOCK_BENCH_WORLD": str(world)}
        more |= {"PENSTOCK_BENCH_MISTAKE": self.mistake, "PENSTOCK_HOME": str(self.home)}
        command = [sys.executable, "-m", "bench.mistakes", "up", "--home", str(self.home), "--port", "0", "--json"]
        with open(self.home / "stderr", "ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--trust-teams", "--sites", str(self.sites), "--journal", self.where],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **more},
            )
        return self.process

    def _ready(self, process: "subprocess.Popen[str]") -> "httpx2.Client | None":
        """A client, once it says where it listens; None if it died before."""
        timer = process_ends_in(process, START_S)
        text = ""
        assert process.stdout is not None
        for line in process.stdout:
            text += line
            with suppress(ValueError):
                announced = json.loads(text)
                timer.cancel()
                headers = {"Authorization": f"Bearer {Path(announced['token_file']).read_text().strip()}"}
                return httpx2.Client(base_url=announced["address"], headers=headers, timeout=10, trust_env=False)
        timer.cancel()
        return None

    def _buried(self, process: "subprocess.Popen[str]", killed: bool = True) -> None:
        code = process.wait(START_S)
        assert process.stdout is not None
        process.stdout.close()
        if code not in ((-9,) if killed else (0,)):
            stderr = (self.home / "stderr").read_text("utf-8", "replace").strip().splitlines()
            if "is written by" in (stderr[-1] if stderr else ""):
                self.waited += 1  # the database has not noticed yet that the last one is dead
                time.sleep(0.5)
            else:
                self.auditor.finds("lost", f"the control plane ended with {code}: {stderr[-1] if stderr else ''}")

    # --- whoever submits -------------------------------------------------------------------------------------------

    def _crowd(self, process: "subprocess.Popen[str]", client: httpx2.Client) -> None:
        """Submit, ask again, cancel, look, until it is dead. An answer that did not come is asked for again."""
        with suppress(httpx2.HTTPError):
            self._read_books(client)
            while process.poll() is None:
                for key in [key for key in self.sent if key not in self.jobs]:
                    self._submit(client, key)
                if self.jobs and self.chance.random() < 0.1:  # a client that lost the answer
                    self._submit(client, self.chance.choice(list(self.jobs)[-20:]))
                if len(self.jobs) - len(self.ended) < LIVE:
                    self._submit(client, self._new_job())
                else:
                    self._look(client)
                    time.sleep(0.02)

    def _new_job(self) -> str:
        key = f"k{len(self.sent)}"
        steps, step_ms = self.chance.choice([(2, 20), (10, 40), (40, 50), (120, 60)])
        script = [sys.executable, "-I", "-S", witness.__file__, str(self.witnesses), key, str(steps), str(step_ms)]
        self.sent[key] = {
            "name": key, "gpus": 1, "team": self.chance.choice(["a", "b"]), "command": script,
            "checkpoint_every": "1s", "run_time": "3s", "grace": "1s", "lease_max": "4s",
        }  # fmt: skip
        return key

    def _submit(self, client: httpx2.Client, key: str) -> None:
        answer = client.post("/v1/jobs", json=self.sent[key], headers={"Idempotency-Key": key})
        if answer.status_code in (429, 503):
            time.sleep(0.1)
            return
        answer.raise_for_status()
        job = str(answer.json()["job"])
        if self.jobs.setdefault(key, job) != job:
            self.auditor.finds("doubled", f"{key} was answered with {self.jobs[key]} and with {job}")
        if answer.status_code == 201 and self.chance.random() < 0.2:
            time.sleep(self.chance.random() * 0.4)
            self.cancelled.add(key)
            client.post(f"/v1/jobs/{job}/cancel")

    def _look(self, client: httpx2.Client) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = client.get("/v1/jobs", params={"limit": 200}).json()["jobs"]
        over = {row["id"] for row in page if row["state"] in ("succeeded", "failed", "cancelled", "refused")}
        self.ended |= {key for key, job in self.jobs.items() if job in over}
        return page

    def _read_books(self, client: httpx2.Client) -> None:
        """Before and after the journal was read: what the plane says must be one of its rows."""
        lines = client.get("/metrics").text.splitlines()
        matching = [line for line in lines if line.startswith("penstock_budget_spent{") and 'scope="org"' in line]
        if matching:
            spent = round(float(matching[0].rpartition(" ")[2]) * 1_000_000)
            self.auditor.follow()
            self.auditor.hear_books(spent)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _until_all_ended(self, client: httpx2.Client, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            for key in [key for key in self.sent if key not in self.jobs]:
                self._submit(client, key)
            self._look(client)
            held = client.get("/v1/exposure").json()["most"]
            if len(self.ended) == len(self.sent) and held == 0:
                return
            time.sleep(0.2)

    def _ask_jobs(self, client: httpx2.Client) -> None:
        for key, job in self.jobs.items():
            answer = client.get(f"/v1/jobs/{job}")
            shown = answer.json()
            wanted = ("succeeded", "cancelled") if key in self.cancelled else ("succeeded",)
            if answer.status_code != 200 or shown["state"] not in wanted:
                self.auditor.finds("lost", f"{key}, {job}: {shown.get('state', shown)}")
            elif shown["state"] == "succeeded" and '"finished"' not in (self.witnesses / key).read_text():
                self.auditor.finds("lost", f"{key}, {job} is said to be done, and did not finish")
        if held := client.get("/v1/exposure").json()["most"]:
            self.auditor.finds("lost", f"{held} is held though all jobs should have ended")

    def _ask_witnesses(self, client: httpx2.Client) -> None:
        for job, attempts in self.auditor.hear_witnesses(self.witnesses, self.jobs).items():
            for attempt, printed in attempts.items():
                log = client.get(f"/v1/jobs/{job}/log", params={"attempt": attempt}).text
                self.auditor.ask_log(attempt, printed, log)

    # --- words -----------------------------------------------------------------------------------------------------

    @property
    def summary(self) -> dict[str, Any]:
        audit = self.auditor
        return {
            "kills": self.kills, "while_starting": self.early, "jobs": len(self.jobs), "cancelled": len(self.cancelled),
            "attempts": len(audit.promised_at), "spot_losses": audit.losses, "renewals": audit.renewals,
            "steps": audit.engine.state.steps, **{name: len(audit.found[name]) for name in COUNTED},
        }  # fmt: skip

    @property
    def words(self) -> list[str]:
        return [f"{name}: {words}" for name in COUNTED for words in self.auditor.found[name]]


def process_ends_in(process: "subprocess.Popen[str]", seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    return timer


if __name__ == "__main__":
    sys.exit(main())
