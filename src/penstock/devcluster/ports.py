"""Free ports on loopback, below the ephemeral range: a port must still be free when a killed API server comes back to
it.
"""

import random
import socket
from typing import Final

LOWEST: Final = 20_000
HIGHEST: Final = 31_999


def free_port() -> int:
    while True:
        port = random.randint(LOWEST, HIGHEST)
        if _binds(port):
            return port


def _binds(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
