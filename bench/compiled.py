"""The package as `make wheel` ships it, for benches and tests: our sources with the libraries out of a wheel.

The libraries are kept beside the other things that are built once, and built anew when a source of theirs changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from penstock.devcluster.programs import cache

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ("core/**/*.py", "sim/engine/simulator.py", "sim/engine/world.py")
FORGET_AFTER_S = 7 * 24 * 3600


def package(folder: Path) -> Path:
    """A folder for PYTHONPATH."""
    shutil.copytree(libraries(), folder, dirs_exist_ok=True)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "penstock", folder / "penstock", ignore=ignore, dirs_exist_ok=True)
    return folder


def again(module: str, words: Sequence[str]) -> int:
    """The same command in a process whose engine is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join((str(package(Path(folder))), str(ROOT)))
        command = [sys.executable, "-m", module, *(word for word in words if word != "--compiled")]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, check=False).returncode


def libraries() -> Path:
    """Two that ask at once build them once."""
    kind = f"compiled-{sys.implementation.cache_tag}"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while not (kept := cache() / f"{kind}-{fingerprint()}").exists():
            _build(kept)
        kept.touch()
        for other in cache().glob(f"{kind}-*"):
            if other.stat().st_mtime < time.time() - FORGET_AFTER_S:
                shutil.rmtree(other)
    return kept


def wheel(folder: str) -> Path:
    """`make wheel` into `folder`; says what is missing where that fails."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    environ = os.environ | {"PENSTOCK_COMPILE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The wheel was not built. Is there gcc, with Python's headers?\n{done.stderr[-3000:]}")
    return next(Path(folder).glob("penstock-*.whl"))


def _build(kept: Path) -> None:
    """Keeps nothing if a source was changed meanwhile: nobody knows which of the two was compiled."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        with zipfile.ZipFile(wheel(folder)) as packed:
            packed.extractall(f"{folder}/so", [name for name in packed.namelist() if name.endswith(".so")])
        if kept.name.endswith(fingerprint()):
            Path(folder, "so").rename(kept)


def fingerprint() -> str:
    sources = [file for pattern in COMPILED for file in (ROOT / "src" / "penstock").glob(pattern)]
    sha = hashlib.sha256()
    for file in sorted([ROOT / "hatch_build.py", *sources]):
        sha.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return sha.hexdigest()[:12]
