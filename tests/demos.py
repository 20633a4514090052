"""The demos as people run them: a command of its own, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

DEMO = [sys.executable, "-m", "penstock.cli", "demo"]


def play(folder: Path, limit_s: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Until its end, without a terminal."""
    return subprocess.run(
        [*DEMO, *options],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )
