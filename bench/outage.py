"""`python -m bench.outage`: an API server stands still for minutes, and comes back. Who is told when, and what goes on?

    python -m bench.outage [--seconds 180] [--cluster east] [--json]

A `penstock up` as it is shipped, in front of two clusters of the test bed (docs/dev-cluster.md), `lab` owned and `east`
rented. One Job runs in the rented cluster and ends while its API server is stopped (SIGSTOP: connections stand, and
nobody answers); another that fits only there comes meanwhile. Measured is how long it takes until the API says which
cluster is out of reach, and from the return until the first Job is shown to be done, until the second is, and until no
alarm is left. Each must have had one attempt, and nothing may be lost.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.live import up
from bench.pair import PLANS, SITES, Ground, home_job, rows
from penstock.core import events as e
from penstock.devcluster import Bed
from penstock.journal.redecide import redecide

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
        with Bed(folder / "bed", PLANS) as bed:
            found = measure(Ground(bed, folder), folder / "journal.db", args.cluster, args.seconds)
    found["load"] = round(os.getloadavg()[0], 1)
    if args.as_json:
        print(json.dumps(found))
    else:
        for what, measured in found.items():
            print(f"{what.replace('_', ' '):<36} {measured}")
    return 0 if found["attempts"] == 2 and not found["lost"] and not found["decided_otherwise"] else 1


def measure(ground: Ground, journal: Path, name: str, seconds: int) -> Json:
    cluster = ground.lab if name == "lab" else ground.east
    said = SITES.format(
        lab=ground.lab.kubeconfig, east=ground.east.kubeconfig, people=ground.people, ours=ground.ours, shared="false"
    )
    with up(str(journal), said) as (client, _):
        ground.apply(home_job("first", BIG, runs=f"{RUNS_S}s"))
        took(lambda: (ground.home("first").get("status") or {}).get("ready"), "the first Job runs")
        say(f"the API server of {name} stops for {seconds} s")
        cluster.pause_api()
        stopped = time.monotonic()
        try:
            told_s = took(lambda: any(f"{name} is out of reach" in one for one in alarms(client)), "somebody says so")
            if name != "lab":
                ground.apply(home_job("second", BIG))
            time.sleep(max(0.0, stopped + seconds - time.monotonic()))
        finally:
            cluster.resume_api()
        say("it goes on")
        back = time.monotonic()
        if name == "lab":
            ground.apply(home_job("second", BIG))
        took(lambda: complete(ground, "first"), "the first Job is done")
        first_s = time.monotonic() - back
        took(lambda: complete(ground, "second"), "the second Job is done")
        second_s = time.monotonic() - back
        took(lambda: not alarms(client), "no alarm is left")
        well_s = time.monotonic() - back
    events = [event for row in rows(str(journal)) for event in (*row.inputs, *row.outputs)]
    return {
        "stopped_s": seconds,
        "said_after_s": round(told_s, 1),
        "first_shown_done_s_after_its_return": round(first_s, 1),
        "second_done_s_after_its_return": round(second_s, 1),
        "no_alarm_s_after_its_return": round(well_s, 1),
        "attempts": sum(isinstance(one, e.StartPromised) for one in events),
        "lost": sum(isinstance(one, e.AttemptLost) for one in events),
        "decided_otherwise": redecide(rows(str(journal)), 1).different,
    }


def alarms(client: httpx2.Client) -> list[str]:
    return [str(one["text"]) for one in client.get("/v1/status").json()["alarms"]]


def complete(ground: Ground, name: str) -> bool:
    conditions = (ground.home(name).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)


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
