"""Writes the control plane's image as an OCI archive, where no registry can be reached: `make image`, and tests of the
chart. It holds what deploy/Containerfile installs and runs as it does: the wheel, and the packages of
requirements/image.txt, on Debian's Python from its packages.

The packages are those of this environment, which must be the locked versions; their compiled parts fit only the same
Python, so the two must be alike.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from penstock import __version__
from penstock.core.errors import BadInput
from penstock.devcluster import images

NAME: Final = f"penstock.dev/penstock:{__version__}"
PREFIX: Final = "opt/penstock"
USER: Final = "10001:10001"
RUNS: Final = {
    "User": USER,
    "Env": [
        f"PATH=/{PREFIX}/bin:/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH=/{PREFIX}/lib", "PENSTOCK_HOME=/data/home",
        "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
    ],
    "Entrypoint": ["penstock"],
    "ExposedPorts": {"7070/tcp": {}},
}  # fmt: skip
STARTER: Final = "#!/usr/bin/python3\nimport sys\nfrom penstock.cli.main import main\nsys.exit(main())\n"


def build_wheel(root: Path, folder: Path) -> Path:
    """This tree's wheel, in plain Python."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    env = {key: text for key, text in os.environ.items() if key != "PENSTOCK_COMPILE"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"The wheel could not be built: {done.stderr.strip()[-300:]}")
    return newest_wheel(folder)


def newest_wheel(folder: Path) -> Path:
    """An earlier build may have left others."""
    return max(folder.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime)


def archive(target: Path, wheel: Path, lock: Path) -> Path:
    """For `ctr images import`, or to push with skopeo."""
    base, python = images.layers()
    _check_python(python)

    def put(root: Path) -> None:
        _put_packages(root / PREFIX / "lib", lock)
        _put_wheel(root / PREFIX, wheel)

    ours = images.tarred(target.with_suffix(".layer"), put)
    try:
        images.write_archive(target, {NAME: [base, python, ours]}, RUNS)
    finally:
        ours.unlink()
    return target


def _check_python(layer: Path) -> None:
    own = f"usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with tarfile.open(layer) as held:
        if own not in held.getnames():
            raise BadInput(f"Debian's Python is another than this one ({own}); run this with the same version.")


def _put_packages(site: Path, lock: Path) -> None:
    for name, version in pinned(lock.read_text()):
        try:
            there = distribution(name)
        except PackageNotFoundError:
            raise BadInput(f"{name} {version} of {lock} is not installed here; run `make venv`.") from None
        if there.version != version:
            raise BadInput(f"{name} is {there.version} here, and {lock} says {version}; run `make venv`.")
        for file in there.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), site / file)


def pinned(lock: str) -> Iterator[tuple[str, str]]:
    """Names and versions that Linux gets."""
    for name, version, marker in re.findall(r"^([a-z0-9-]+)==([\w.]+)(?: ; (.*?))? \\$", lock, re.MULTILINE):
        if "sys_platform ==" not in marker or "linux" in marker:
            yield name, version


def _put_wheel(prefix: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as held:
        held.extractall(prefix / "lib")
    starter = prefix / "bin" / "penstock"
    starter.parent.mkdir(parents=True)
    starter.write_text(STARTER)
    starter.chmod(0o755)


if __name__ == "__main__":
    made = archive(Path(sys.argv[2]), newest_wheel(Path(sys.argv[1])), Path("requirements/image.txt"))
    print(f"{made}: {NAME}, {made.stat().st_size / 1e6:.0f} MB")  # the program's answer
