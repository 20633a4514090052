"""Chromium for the tests that look at the page: the machine's own, or, where everything is required, one by apt.

with chromium.browser() as browser: ...
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests import debian
from tests.conftest import REQUIRE_ALL, Part

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
#: It is to speak to our server and to nobody else.
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")


@contextmanager
def browser() -> Iterator["Browser"]:
    """A running one; a skip where there is none to be had."""
    program = found() or (installed() if REQUIRE_ALL else None)
    if program is None:
        pytest.skip(Part.CHROMIUM)
    from playwright.sync_api import sync_playwright

    root = ("--no-sandbox",) if os.geteuid() == 0 else ()  # its sandbox refuses to run as root
    with sync_playwright() as started:
        made = started.chromium.launch(executable_path=program, args=[*QUIET, *root])
        try:
            yield made
        finally:
            made.close()


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def installed() -> str | None:
    return found() if debian.install("chromium") else None
