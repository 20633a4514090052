"""`python -m bench.kube_outage`: an API server stands still for minutes and comes back. Who is told, what goes on?

    python -m bench.kube_outage [--seconds 180] [--cluster east] [--json]

A `penstock up` as it is shipped, in front of two clusters of the test bed (docs/dev-cluster.md), `lab` owned and `east`
rented. One Job runs in the rented cluster and ends while its API server is stopped (SIGSTOP: connections stand, and
nobody answers); another that fits only there comes meanwhile. Measured is how long it takes until the API says which
cluster is out of reach, and from the return until the second Job is made there, until the first is shown to be done,
until the second is, and until no alarm is left; and when the cluster's own programs, which were cut off as well, had
got so far. Each Job must have had one attempt, and nothing may be lost.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.live import up
from bench.pair import PLANS, SCALE, SITES, Ground, home_job, rows
from penstock.core.model import events as e
from penstock.devcluster import ClusterGroup
from penstock.journal.redecide import redecide
from penstock.kube import annotations

BIG: Final = 4  #: GPUs that only the rented cluster has
RUNS_S: Final = 20
LIMIT_S: Final = 600
Json = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--cluster", choices=[plan.name for plan in PLANS], default="east")
    parser.add_argument("--json", action="store_true", dest="as_json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-outage-") as name:
        folder = Path(name)
        with ClusterGroup(folder / "bed", PLANS) as bed:
            figures = measure(Ground(bed, folder), folder / "journal.db", args.cluster, args.seconds)
    figures["load"] = round(os.getloadavg()[0], 1)
    if args.as_json:
        print(json.dumps(figures))
    else:
        for what, measured in figures.items():
            print(f"{what.replace('_', ' '):<36} {measured}")
    return 0 if figures["attempts"] == 2 and not figures["lost"] and not figures["decided_otherwise"] else 1


def measure(ground: Ground, journal: Path, name: str, seconds: int) -> Json:
    cluster = ground.lab if name == "lab" else ground.east
    sites = SITES.format(
        lab=ground.lab.kubeconfig,
        east=ground.east.kubeconfig,
        people=ground.people,
        ours=ground.ours,
        shared="false",
        scale=SCALE,
    )
    with up(str(journal), sites) as (client, _):
        ground.apply(home_job("first", BIG, runs=f"{RUNS_S}s"))
        took(lambda: (ground.home("first").get("status") or {}).get("ready"), "the first Job runs")
        say(f"the API server of {name} stops for {seconds} s")
        cluster.pause_api()
        stopped = time.monotonic()
        try:
            told_s = took(
                lambda: any(f"{name} is out of reach" in alarm for alarm in alarms(client)), "somebody says so"
            )
            if name != "lab":
                ground.apply(home_job("second", BIG))
            time.sleep(max(0.0, stopped + seconds - time.monotonic()))
        finally:
            cluster.resume_api()
        say("it goes on")
        back = time.monotonic()
        if name == "lab":
            ground.apply(home_job("second", BIG))
        times = Times(back)
        marks: dict[str, Callable[[], object]] = {
            "second_made_there": lambda: len(ground.executions()) == 2,
            "first_ended_there": lambda: any(
                is_complete(execution) for execution in ground.executions() if attempt(execution) == "j0.1"
            ),
            "first_shown_done": lambda: is_complete(ground.home("first")),
            "second_shown_done": lambda: is_complete(ground.home("second")),
            "no_alarm_left": lambda: not alarms(client),
        }
        times.note_all(marks)
    events = [event for row in rows(str(journal)) for event in (*row.inputs, *row.outputs)]
    return {
        "stopped_s": seconds,
        "said_after_s": round(told_s, 1),
        **{f"{what}_s_after_its_return": round(at, 1) for what, at in times.items()},
        "attempts": sum(isinstance(event, e.StartPromised) for event in events),
        "lost": sum(isinstance(event, e.AttemptLost) for event in events),
        "decided_otherwise": redecide(rows(str(journal)), 1).different,
    }


def alarms(client: httpx2.Client) -> list[str]:
    return [str(alarm["text"]) for alarm in client.get("/v1/status").json()["alarms"]]


class Times(dict[str, float]):
    """When each thing was first so, in seconds since `zero`."""

    def __init__(self, zero: float) -> None:
        super().__init__()
        self.zero = zero

    def note_all(self, marks: Mapping[str, Callable[[], object]]) -> None:
        while left := [what for what in marks if what not in self]:
            for what in left:
                if marks[what]():
                    self[what] = time.monotonic() - self.zero
                    say(what.replace("_", " "))
            if time.monotonic() > self.zero + LIMIT_S:
                raise SystemExit(f"Not within {LIMIT_S} s: {', '.join(left)}.")
            time.sleep(0.1)


def attempt(execution: Json) -> str:
    return str(execution["metadata"]["annotations"][annotations.ATTEMPT])


def is_complete(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Complete" and condition["status"] == "True" for condition in conditions)


def took(true: Callable[[], object], what: str) -> float:
    """Seconds until it was so."""
    began = time.monotonic()
    while not true():
        if time.monotonic() > began + LIMIT_S:
            raise SystemExit(f"Not within {LIMIT_S} s: {what}.")
        time.sleep(0.1)
    say(what)
    return time.monotonic() - began


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
