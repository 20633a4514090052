"""The engine as `make wheel` ships it, for tests that run it in a process of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from bench import compiled
from tests import debian
from tests.conftest import REQUIRE_ALL, ROOT


def package(folder: Path) -> Path | None:
    """A folder for PYTHONPATH, in `folder`; None: nothing can be compiled here."""
    if not _can_compile() and not (REQUIRE_ALL and debian.install("gcc", "python3-dev") and _can_compile()):
        return None
    return compiled.package(folder)


def python(package: Path | None, *arguments: str) -> str:
    """What it prints, with the compiled engine or the plain one."""
    environ = os.environ | ({"PYTHONPATH": str(package)} if package else {}) | {"PENSTOCK_FROZEN": "0"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _can_compile() -> bool:
    return shutil.which("gcc") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()
