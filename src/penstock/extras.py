"""Packages that only some commands need, the extra of ours that has each, and the command that installs them here.

Whoever finds one missing prints `install`. It names the packages themselves and the Python that runs us, never our own
name: that works from a checkout, a wheel and an image, and on the public index our name is another project's.
"""

import shlex
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Final

from penstock.core.errors import BadInput

#: A module's first name, and where packages share that, as Google's do, its second -> the extra (pyproject.toml).
EXTRAS: Final = {
    "aiohttp": "kubernetes",
    "azure": "aks",
    "boto3": "eks",
    "botocore": "eks",
    "cel_expr_python": "policy",
    "google.auth": "gke",
    "lightkube": "kubernetes",
    "numpy": "compare",
    "obstore": "s3",
    "psycopg": "postgres",
    "pynvml": "gpu",
    "requests": "gke",
    "resvg_py": "plots",
    "rich": "terminal",
}
NOT_INSTALLED: Final = "`make install` in Penstock's repository"


def not_installed(error: ModuleNotFoundError) -> BadInput | None:
    """What a person should install; None where a module of ours or of no extra is missing, which is a bug."""
    parts = (error.name or "").split(".")
    extra = EXTRAS.get(parts[0]) or EXTRAS.get(".".join(parts[:2]))
    if extra is None:
        return None
    return BadInput(f"This command needs the package {parts[0]}, which is not installed: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs the packages of an extra beside us: `PYTHON -m pip install 'lightkube>=1.0' ...`."""
    try:
        lines = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:  # run from its source folder
        return NOT_INSTALLED
    wanted = packages(lines, extra)
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted]) if wanted else NOT_INSTALLED


def packages(requires: Iterable[str], extra: str) -> list[str]:
    """Of a distribution's requirements those of one extra, as pip takes them."""
    halves = (line.partition(";") for line in requires)
    return sorted(name.strip() for name, _, marker in halves if f"extra == '{extra}'" in marker.replace('"', "'"))
