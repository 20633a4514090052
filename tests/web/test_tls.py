"""A certificate that is renewed under load: every handshake meets a certificate with its own key."""

import ssl
import threading
from pathlib import Path

from penstock.web.tls import Certificate
from tests.web.certificates import make


def handshake(context: ssl.SSLContext) -> bytes:
    """The certificate that a client of this server context gets, without a socket."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_no_handshake_meets_a_certificate_without_its_key(tmp_path: Path) -> None:
    pairs = [make(tmp_path, name) for name in ("first", "second")]
    used, key = make(tmp_path, "used")
    whole = {ssl.PEM_cert_to_DER_cert(path.read_text()) for path in (pairs[0][0], pairs[1][0], used)}
    certificate = Certificate(used, key, tmp_path / "shown.pem")
    complaints: list[str] = []

    def renew() -> None:
        for turn in range(200):
            used.write_bytes(pairs[turn % 2][0].read_bytes())
            key.write_bytes(pairs[turn % 2][1].read_bytes())
            complaints.append(certificate._renew())

    renewing = threading.Thread(target=renew)
    renewing.start()
    seen = set()
    while renewing.is_alive():
        seen.add(handshake(certificate.context))
    assert complaints == [""] * 200
    assert seen <= whole
    assert len(seen) > 1


def test_a_context_in_use_keeps_its_pair(tmp_path: Path) -> None:
    used, key = make(tmp_path, "used")
    first = ssl.PEM_cert_to_DER_cert(used.read_text())
    certificate = Certificate(used, key, tmp_path / "shown.pem")
    handed_out = certificate.context
    another, its_key = make(tmp_path, "another")
    used.write_bytes(another.read_bytes())
    key.write_bytes(its_key.read_bytes())
    assert certificate._renew() == ""
    assert handshake(handed_out) == first
    assert handshake(certificate.context) == ssl.PEM_cert_to_DER_cert(another.read_text())
