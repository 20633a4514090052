"""Debian packages that tests need, installed under PENSTOCK_REQUIRE_ALL=1 where they are missing."""

import getpass
import os
import shutil
import subprocess
from pathlib import Path


def install(*packages: str) -> bool:
    """As root on a machine that has them, and one at a time: every worker of a run may want them at once."""
    if getpass.getuser() != "root" or shutil.which("apt-get") is None:
        return False
    get = f"apt-get install -qy {' '.join(packages)}"
    done = subprocess.run(
        ["flock", "/var/lock/penstock-packages", "sh", "-c", f"{get} || (apt-get update -q && {get})"],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True, text=True, check=False, timeout=900, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' and '.join(packages)} could not be installed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return True


def unpack(package: str, folder: Path) -> bool:
    """Only unpacks a package, so that no service starts and nothing is installed; what it needs must be there."""
    if getpass.getuser() != "root" or shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    get = f"apt-get -q -o APT::Sandbox::User=root download {package}"
    script = f"(({get} || (apt-get update -q && {get})) && dpkg-deb -x {package}_*.deb .)"
    done = subprocess.run(
        ["flock", "/var/lock/penstock-packages", "sh", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(f"{package} could not be unpacked: {done.stdout[-500:]}{done.stderr[-500:]}")
    return True
