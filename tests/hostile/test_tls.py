"""TLS: a stranger on the network reads nothing, and a renewed certificate is served without a restart."""

import os
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.hostile.control_plane import ControlPlane, until
from tests.hostile.raw import connect
from tests.web.certificates import make


def served(plane: ControlPlane) -> bytes:
    """The certificate of a handshake now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connect(plane) as sock, context.wrap_socket(sock) as talk:
        certificate = talk.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


def der(certificate: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def penstock(plane: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PENSTOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words],
        env=environment | {"PENSTOCK_HOME": str(plane.home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_renewed_certificate_is_served_and_a_bad_one_is_not(tmp_path: Path) -> None:
    first, key = make(tmp_path, "first")
    second, second_key = make(tmp_path, "second")
    with ControlPlane(tmp_path / "home", "--tls-cert", str(first), "--tls-key", str(key)) as plane:
        assert plane.address.startswith("https://127.0.0.1:")
        assert served(plane) == der(first)
        before = der(first)
        assert penstock(plane, "jobs").stdout == "No jobs.\n"  # which trusts this very certificate

        first.write_text(second.read_text())  # without its key: not used
        until(lambda: "certificate" in penstock(plane, "doctor", "--json").stdout)
        assert served(plane) == before
        key.write_text(second_key.read_text())
        until(lambda: served(plane) == der(second))
        assert penstock(plane, "jobs").stdout == "No jobs.\n"
        until(lambda: "still used" not in penstock(plane, "doctor", "--json").stdout)
        assert "Traceback" not in plane.words


def test_a_command_trusts_no_other_certificate(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "first")
    another, _ = make(tmp_path, "second")
    with ControlPlane(tmp_path / "home", "--tls-cert", str(certificate), "--tls-key", str(key)) as plane:
        (plane.home / "certificate.pem").write_text(another.read_text())
        result = penstock(plane, "jobs")
        assert (result.returncode, result.stdout) == (3, "")
        assert "certificate" in result.stderr.lower()


@pytest.mark.slow
def test_handshakes_that_never_end_keep_nobody_out(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "first")
    with ControlPlane(tmp_path / "home", "--tls-cert", str(certificate), "--tls-key", str(key)) as plane:
        where = urlsplit(plane.address)
        socks = [socket.create_connection((str(where.hostname), where.port or 0), 60) for _ in range(2_100)]
        for sock in socks[::2]:
            with suppress(ConnectionError):  # closed for a newer one
                sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a hello
        assert served(plane) == der(certificate)
        for sock in socks:
            sock.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--listen", "0.0.0.0"], "Others could read tokens on their way to 0.0.0.0"),
        (["--listen", "::"], "Others could read tokens"),
        (["--tls-cert", "a.pem"], "TLS needs both a certificate and its key"),
        (["--tls-cert", "none.pem", "--tls-key", "none.key"], "cannot be used as certificate and key"),
    ],
)
def test_what_would_be_readable_is_refused(tmp_path: Path, options: list[str], sentence: str) -> None:
    plane = ControlPlane(tmp_path / "home", *options)
    with pytest.raises(AssertionError, match="ended with 2"):
        plane.start()
    plane.stop()
    assert sentence in plane.words
    assert "Traceback" not in plane.words


def test_plain_http_beyond_this_machine_is_served_if_told(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home", "--listen", "0.0.0.0", "--plain-http") as plane:
        assert plane.address.startswith("http://127.0.0.1:")
        assert plane.client().get("/v1/status").status_code == 200


def test_a_key_with_a_password_is_one_sentence(tmp_path: Path) -> None:
    certificate, locked = make(tmp_path, "first", b"secret")
    plane = ControlPlane(tmp_path / "home", "--tls-cert", str(certificate), "--tls-key", str(locked))
    with pytest.raises(AssertionError, match="ended with 2"):
        plane.start()
    plane.stop()
    assert "without a password" in plane.words
