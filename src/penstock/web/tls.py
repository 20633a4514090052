"""TLS of the server: a certificate and its key from files, read again when they change. `server` polls it.

A changed pair that does not fit together is not used: a program that renews certificates writes one file after the
other.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from penstock.config.document import read_regular
from penstock.core.errors import BadInput
from penstock.live.mount_calls import MountCalls

LOOK_SECONDS: Final = 1.0
Marks: TypeAlias = tuple[tuple[int, int, int] | None, ...]  #: what tells a changed file from the one before
BLOCK: Final = "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----"


class Certificate:
    """`context` is for new connections, with the newest good pair; it is never changed, only replaced: a handshake
    that met a context between its new certificate and its new key would fail. A copy of the certificate is
    at `shown`, where commands on this machine find whom to trust.
    """

    def __init__(self, certificate: Path, key: Path, shown: Path) -> None:
        self.certificate, self.key, self.shown = certificate, key, shown
        self.calls = MountCalls()
        self.seen: Marks = self._marks()
        self.context = _context(certificate, key)

    def show(self) -> None:
        """Write the copy: only our own certificate. The file may also hold its issuers, and the key."""
        blocks = re.findall(BLOCK, self.certificate.read_text("utf-8", "replace"), re.DOTALL)
        beside = self.shown.with_name(self.shown.name + ".new")
        beside.write_text(f"{blocks[0]}\n", "utf-8")
        beside.replace(self.shown)

    async def follow(self, tell: Callable[[str], None]) -> None:
        """Read changed files; `tell` hears what is wrong with them, and an empty text once nothing is."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                marks = await self.calls.call(self._marks)
                if marks != self.seen:
                    tell(await self.calls.call(self._renew))
                    self.seen = marks
            except TimeoutError:
                tell(f"{self.certificate} or {self.key} cannot be read now. The certificate of before is still used.")
                self.seen = ()  # once they can be, that is told, too

    def _renew(self) -> str:
        try:
            context = _context(self.certificate, self.key)
            self.show()
            self.context = context
        except (BadInput, OSError, ValueError) as error:
            return f"{error} The certificate of before is still used."
        return ""

    def _marks(self) -> Marks:
        return tuple(_mark(path) for path in (self.certificate, self.key))


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        file_stat = path.stat()
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        for path in (certificate, key):
            read_regular(str(path))  # OpenSSL would wait for a pipe, and read a device without end
        # An encrypted key would ask at the terminal, and hold everything up.
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"{certificate} and {key} cannot be used as certificate and key ({reason}); write both as PEM, the key"
            " without a password."
        ) from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")
