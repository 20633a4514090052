"""Self-signed certificates for tests of TLS."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY: Final = timedelta(days=1)


def make(folder: Path, name: str, password: bytes = b"") -> tuple[Path, Path]:
    """A self-signed certificate for loopback and its key, in files of this test."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    lasting = builder.not_valid_before(now - DAY).not_valid_after(now + DAY)
    made = lasting.add_extension(hosts, critical=False).sign(key, hashes.SHA256())
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    certificate, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
    return certificate, key_file
