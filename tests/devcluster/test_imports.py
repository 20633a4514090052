"""What `make demo` needs installed: nothing of Kubernetes."""

import subprocess
import sys


def test_the_demo_runs_without_the_packages_for_kubernetes() -> None:
    """It asked for aiohttp, which only tests and clusters have."""
    without = "import sys; sys.modules.update(aiohttp=None); import penstock.demo.machine"
    assert subprocess.run([sys.executable, "-c", without], check=False).returncode == 0
