"""Who is at the other end of a connection within this machine, as the kernel says."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from penstock.drivers.local import isolation, listeners
from penstock.drivers.local.listeners import accepted_by, listener_on


def listening(family: socket.AddressFamily, host: str) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind((host, 0))
    sock.listen()
    return sock


@pytest.mark.parametrize(
    ("family", "host", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_connection_is_accepted_by_us(family: socket.AddressFamily, host: str, asked: str) -> None:
    with listening(family, host) as server:
        port = server.getsockname()[1]
        with socket.create_connection((asked, port)) as client, server.accept()[0]:
            owner = accepted_by(client)
            assert owner is not None
            assert (owner.uid, owner.pid) == (os.geteuid(), os.getpid())
        taken = listener_on(asked, port)
        assert taken is not None
        assert taken.pid == os.getpid()
    assert listener_on(asked, port) is None


def test_a_connection_that_nobody_accepts_is_nobodys_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the kernel says uid 0, whoever listens: to believe that would be to trust anybody as root."""
    monkeypatch.setattr(listeners, "PATIENCE_S", 0.05)
    with (
        listening(socket.AF_INET, "127.0.0.1") as server,
        socket.create_connection(server.getsockname()) as client,
        pytest.raises(TimeoutError),
    ):
        accepted_by(client)


def test_a_jobs_listener_is_known_by_its_user(jobs_folder: Path) -> None:
    uid = isolation.uid_of("test", f"listens {os.getpid()}")
    program = "use Socket; $|=1; socket(S,PF_INET,SOCK_STREAM,0); bind(S,sockaddr_in(0,INADDR_LOOPBACK)); listen(S,9);"
    program += "print((sockaddr_in(getsockname(S)))[0], qq(\\n)); accept(C,S); sleep 600"
    command = ["perl", "-e", program]
    with subprocess.Popen(
        command, user=uid, group=uid, extra_groups=[], cwd=jobs_folder, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        with socket.create_connection(("127.0.0.1", int(job.stdout.readline()))) as client:
            owner = accepted_by(client)
        assert isolation.kill_user(uid)
    assert owner is not None
    assert (owner.uid, owner.is_job, owner.pid) == (uid, True, job.pid)
    assert owner.words.startswith(f"process {job.pid} (perl -e")
    assert owner.words.endswith(f" of a job (uid {uid})")
