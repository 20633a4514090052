"""PostgreSQL goes away for a minute under a running Penstock: a clear message, nothing lost, back by itself.

    python -m bench.outage [--seconds 60]

A real `penstock up` on this machine, with a real job that ends while nobody can write it down. Prints one line, and
exits with 1 if a submission was not refused in a sentence, the job was lost or began twice, or it took longer than a
minute after the fault's end to take submissions again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.journal import running
from bench.live import announcement
from penstock.journal.open import open_journal
from penstock.journal.redecide import redecide
from tests.postgres import Server
from tests.postgres import found as postgres_programs

BACK_WITHIN: Final = 60  #: seconds after the fault's end
JOB: Final = {"gpus": 1, "command": ["sleep", "5"], "name": "through the outage"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with running(programs) as server, tempfile.TemporaryDirectory(prefix="penstock-outage-") as home:
        where = server.new_database()
        figures = through(server, where, Path(home), seconds)
        with closing(open_journal(where)) as journal:
            figures["redecide"] = "equal" if redecide(journal.read(), 1).different == 0 else "different"
    print(json.dumps(figures))
    good = (
        figures["refused"]
        and figures["back_s"] <= BACK_WITHIN
        and figures["state"] == "succeeded"
        and figures["attempts"] == 1
    )
    return 0 if good and figures["redecide"] == "equal" else 1


def through(server: Server, where: str, home: Path, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock.cli", "up", "--home", str(home), "--port", "0", "--json"]
    process = subprocess.Popen([*command, "--journal", where], stdout=subprocess.PIPE, text=True)
    try:
        ready = announcement(process)
        headers = {"Authorization": f"Bearer {Path(ready['token_file']).read_text().strip()}"}
        with httpx2.Client(base_url=ready["address"], headers=headers, timeout=60, trust_env=False) as client:
            return _told(server, client, seconds)
    finally:
        process.terminate()
        process.wait(60)


def _told(server: Server, client: httpx2.Client, seconds: float) -> dict[str, Any]:
    job = client.post("/v1/jobs", json=JOB).json()["job"]
    server.stop()
    gone = time.monotonic()
    answer = client.post("/v1/jobs", json=JOB)
    clear = answer.status_code == 503 and "bring its database back" in answer.json()["detail"]
    healthy = client.get("/healthz").status_code == 200
    time.sleep(max(0.0, seconds - (time.monotonic() - gone)))
    server.start()
    back = time.monotonic()
    _until(lambda: client.get("/readyz").status_code == 200)
    ready = time.monotonic() - back
    _until(lambda: client.get(f"/v1/jobs/{job}").json()["state"] == "succeeded")
    ended = client.get(f"/v1/jobs/{job}").json()
    return {
        "gone_s": round(back - gone, 1),
        "refused": clear and healthy,
        "back_s": round(ready, 1),
        "state": ended["state"],
        "attempts": ended["attempts"],
    }


def _until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 2 * BACK_WITHIN
    while not true():
        if time.monotonic() > limit:
            return
        time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main())
