"""A job listens on the control plane's port while it is down, and waits for the administrator's next command.

Where jobs have users of their own: a job that runs as our own user reads the token from its file.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.control_plane import LIMIT_S, ControlPlane, until
from tests.hostile.test_local_jobs import log_of, prints, site

#: Takes the port once it is free, and prints all that it is told. Perl: root's Python may lie where no job may go.
TAKES = """
use Socket; $| = 1;
socket(S, PF_INET, SOCK_STREAM, 0); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1);
print "waits\\n";
select(undef, undef, undef, 0.02) until bind(S, sockaddr_in($ARGV[0], INADDR_LOOPBACK));
listen(S, 9); print "listens\\n";
while (accept(C, S)) {
    sysread(C, $told, 4096); print "told: $told\\n";
    syswrite(C, "HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n[]"); close(C);
}
"""


def penstock(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    here = os.environ | {"PENSTOCK_HOME": str(home)} | env
    return subprocess.run(command, env=here, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def test_who_takes_the_port_of_a_control_plane_that_is_down_is_sent_no_token(tmp_path: Path, jobs_folder: Path) -> None:
    """A member's job that waited for a restart was sent the administrator's token by the next `penstock jobs`."""
    with ControlPlane(tmp_path / "home", sites=site(folder=str(jobs_folder)), trust_teams=False) as plane:
        port, secret = plane.address.rpartition(":")[2], Path(plane.token_file).read_text().strip()
        assert penstock(plane.home, "jobs").returncode == 0
        job = plane.submit("perl", "-e", TAKES, port, client=plane.client(plane.token()))
        prints(plane, job, "waits")
        address = plane.address
        plane.stop(signal.SIGKILL)
        log = plane.home / "sites" / "here" / "attempts" / f"{job}.1" / "log"
        until(lambda: "listens" in log.read_text())
        for words in (("jobs",), ("logs", job), ("exec", job, "--", "true")):
            done = penstock(plane.home, *words)
            assert (done.returncode, done.stdout) == (3, ""), done.stderr
            assert "of a job (uid 19" in done.stderr
            assert "was sent no token" in done.stderr
        named = penstock(tmp_path, "jobs", PENSTOCK_URL=address, PENSTOCK_TOKEN=secret)  # from anywhere on this machine
        assert (named.returncode, "was sent no token" in named.stderr) == (3, True)
        with pytest.raises(AssertionError, match=f"port {port} .process [0-9]+ .perl -e .* of a job .uid 19.* listens"):
            plane.start("--port", port)
        assert plane.stop() == 2
        plane.start()  # at another port
        assert set(log_of(plane, job).split()) == {"waits", "listens", "told:"}  # and no word of a request
        plane.client().post(f"/v1/jobs/{job}/cancel").raise_for_status()
        plane.ended(job)
