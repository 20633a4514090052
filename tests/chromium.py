"""Chromium for the tests that look at the page: the machine's own, or, where everything is required, one by apt.

with chromium.browser() as browser: ...
"""

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
NO_BROWSER = "no Chromium on this machine: the page is not looked at; apt-get install chromium"
#: It is to speak to our server and to nobody else.
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")


@contextmanager
def browser() -> Iterator["Browser"]:
    """A running one; a skip where there is none to be had."""
    program = found() or (installed() if os.environ.get("PENSTOCK_REQUIRE_ALL") == "1" else None)
    if program is None:
        pytest.skip(NO_BROWSER)
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'penstock[dev]'")
    root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # its sandbox refuses to run as root
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=program, args=[*QUIET, *root])
        try:
            yield made
        finally:
            made.close()


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def installed() -> str | None:
    """As root, and one at a time: every worker of a run may want it at once."""
    if getpass.getuser() != "root" or shutil.which("apt-get") is None:
        return None
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    script = "apt-get install -qy chromium || (apt-get update -q && apt-get install -qy chromium)"
    done = subprocess.run(
        ["flock", "/var/lock/penstock-chromium", "sh", "-c", script],
        env=quiet, capture_output=True, text=True, check=False, timeout=900, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"Chromium could not be installed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return found()
