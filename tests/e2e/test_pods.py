"""Pods in a cluster as if they were here: `penstock exec` and `penstock logs`, as people type them, on real pods."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from penstock.devcluster import ClusterGroup
from penstock.devcluster.images import PYTHON
from penstock.kube import manifests

pytestmark = pytest.mark.slow
LIMIT_S = 120
TRAINS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('rank', os.environ.get('PENSTOCK_RANK', '0'), flush=True)
time.sleep(600)
"""
Types = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(params=[True])
def commands(request: pytest.FixtureRequest) -> bool:
    """Whether the platform engineer lets commands run there."""
    return bool(request.param)


@pytest.fixture
def types(real_bed: ClusterGroup, tmp_path: Path, commands: bool) -> Iterator[Types]:
    """Commands of a Penstock whose one site is a real cluster, with the rights that we ask for and no others."""
    east = real_bed.cluster("east")
    namespace = east.new_namespace()
    account = f"penstock-{namespace}"
    kubeconfig = east.token_for(account, [], namespace)
    east.apply(*manifests.rbac("act", account, namespace, commands=commands))
    cluster = {"kubeconfig": str(kubeconfig), "namespace": namespace, "shared": True}
    offer = {"name": "a100", "term": "owned", "gpu": "A100", "gpus_per_node": 4}
    sites = {
        "currency": "EUR",
        "sites": [{"name": "east", "driver": "kubernetes", "kubernetes": cluster, "offers": [offer]}],
    }
    (tmp_path / "sites.yaml").write_text(yaml.safe_dump(sites))
    env = os.environ | {"PENSTOCK_HOME": str(tmp_path / "home")}
    up = [sys.executable, "-m", "penstock.cli", "up", "--port", "0", "--json", "--sites", str(tmp_path / "sites.yaml")]
    with subprocess.Popen(up, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if line.rstrip() == "}":
                break

        def typed(*args: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            command = [sys.executable, "-m", "penstock.cli", *args]
            return subprocess.run(command, input=text, capture_output=True, timeout=LIMIT_S, env=env, check=False)

        try:
            yield typed
            for job in json.loads(typed("jobs", "--json").stdout)["jobs"]:
                typed("cancel", job["id"])
                typed("logs", "-f", job["id"])
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(LIMIT_S)
    east.drop_namespace(namespace)


def running(types: Types, ranks: int) -> str:
    """So many pods on as many nodes, all of which run."""
    job = (
        types("run", "--detach", "--gpus", f"{4 * ranks}", "--image", PYTHON, "--", "python3", "-c", TRAINS)
        .stdout.decode()
        .strip()
    )
    with_each_rank = {f"rank {number}".encode() for number in range(ranks)}
    while not with_each_rank <= set(types("logs", job).stdout.replace(b"] ", b"\n").split(b"\n")):
        types("events", "--limit", "1")
    return job


def test_a_command_runs_in_the_pod_of_its_rank_and_what_each_pod_printed_is_kept_and_told_apart(
    types: Types, tmp_path: Path
) -> None:
    """One story, because a gang's pods take ten seconds to meet."""
    job = running(types, ranks=2)
    for rank in ("0", "1"):
        done = types("exec", job, "--rank", rank, "--", "sh", "-c", "echo I am $PENSTOCK_RANK; echo oh >&2; exit 7")
        assert (done.returncode, done.stdout, done.stderr) == (7, f"I am {rank}\n".encode(), b"oh\n")
    text = os.urandom(500_000)
    done = types("exec", job, "--", "cat", text=text)
    assert (done.returncode, done.stdout == text) == (0, True)
    done = types("exec", job, "--rank", "2", "--", "true")
    assert (done.returncode, b"rank 2 of" in done.stderr) == (2, True)
    done = types("exec", job, "--", "no-such-program")
    assert (done.returncode, b"no-such-program" in done.stderr) == (2, True)
    _terminal(tmp_path / "home", job)

    assert types("logs", job, "--rank", "1").stdout == b"rank 1\n"
    types("cancel", job)
    assert sorted(types("logs", "-f", job).stdout.splitlines()) == [b"[0] rank 0", b"[1] rank 1"]
    assert types("logs", job, "--rank", "0").stdout == b"rank 0\n"
    done = types("logs", job, "--rank", "2")
    assert (done.returncode, b"has no rank 2; 0 to 1" in done.stderr) == (2, True)


def _terminal(home: Path, job: str) -> None:
    program = "import os, sys\nprint(sys.stdin.isatty(), os.get_terminal_size())\ninput()"
    pid, terminal = pty.fork()
    if not pid:
        os.environ["PENSTOCK_HOME"] = str(home)
        os.execv(sys.executable, [sys.executable, "-m", "penstock.cli", "exec", job, "--", "python3", "-c", program])
    seen = b""
    while b"lines=" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert (b"True" in seen, os.waitstatus_to_exitcode(status)) == (True, 128 + signal.SIGINT)


@pytest.mark.parametrize("commands", [False], indirect=True)
def test_without_that_right_it_is_said_who_can_grant_it(types: Types) -> None:
    job = running(types, ranks=1)
    done = types("exec", job, "--", "true")
    assert (done.returncode, b"penstock manifests rbac --exec" in done.stderr) == (2, True), done.stderr
