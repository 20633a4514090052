"""What people type from a page, typed: the shell blocks below `<!-- typed: NAME -->`, each in a terminal of its own.

A terminal is a shell in a fresh checkout of this tree (`Checkout`), with an empty home folder and nothing of Penstock's
on its PATH: the page's own commands must install it, from the index of packages that this machine uses. So nothing
here may set PYTHONPATH or PIP_NO_INDEX.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from penstock.devcluster.external import ExternalCluster
from tests import bare
from tests.conftest import ROOT

LIMIT_S: Final = 420  #: for one block: packages are fetched
BLOCK: Final = re.compile(r"<!-- typed: ([\w ]+) -->\n```sh\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
FILE: Final = re.compile(r"<!-- file: ([\w.-]+) -->\n```\w*\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> dict[str, str]:
    """The page's shell blocks, by name, in the page's order."""
    return dict(BLOCK.findall(page.read_text("utf-8")))


def files(page: Path) -> dict[str, str]:
    """What the page says to save."""
    return dict(FILE.findall(page.read_text("utf-8")))


class Checkout:
    """A copy of this tree as git has it. What one test's terminals wrote there is gone before the next."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.bin = folder / "penstock", folder / "home", folder / "bin"
        self.bin.mkdir(parents=True)
        (self.bin / "python3").symlink_to(Path(sys.executable).resolve())
        for name in bare.files():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        self._own = {path.name for path in self.folder.iterdir()}

    def clear(self) -> None:
        """Of everything but what is installed."""
        for path in self.folder.iterdir():
            if path.name not in self._own and not path.is_dir():
                path.unlink()
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()

    def type(self, block: str, *programs: Path, env: Mapping[str, str] | None = None) -> str:
        """Until it ends; a command that fails ends the block. Returns what it printed."""
        with self._shell(block, programs, env) as shell:
            try:
                output, _ = shell.communicate(timeout=LIMIT_S)
            finally:
                stop(shell)
        assert shell.returncode == 0, f"{block}\n{output}"
        return output

    @contextlib.contextmanager
    def typing(self, block: str, until: str, *programs: Path) -> Iterator[None]:
        """One whose last command stays in the foreground: goes on once it says so, and ends it by ^C."""
        with self._shell(block, programs, None) as shell:
            assert shell.stdout is not None
            said = []
            try:
                for line in shell.stdout:
                    said.append(line)
                    if line.startswith(until):
                        break
                else:
                    raise AssertionError(f"{block}\n{''.join(said)}")
                drain = threading.Thread(target=shell.stdout.read, daemon=True)
                drain.start()
                yield
            finally:
                stop(shell)

    def _shell(self, block: str, programs: tuple[Path, ...], env: Mapping[str, str] | None) -> "subprocess.Popen[str]":
        kept = {name: text for name, text in os.environ.items() if name.startswith(bare.KEPT)}
        path = [str(self.bin), *map(str, programs), *_usual()]
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", block], cwd=self.folder, text=True, start_new_session=True,
            env={**kept, "HOME": str(self.home), "PATH": os.pathsep.join(path), **(env or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


def stop(shell: "subprocess.Popen[str]") -> None:
    """The shell and what runs in its foreground, as ^C does."""
    if shell.poll() is None:
        os.killpg(shell.pid, signal.SIGINT)
        shell.wait(60)


def _usual() -> list[str]:
    """The PATH without folders of a virtual environment: no Penstock of ours is found there."""
    mine = Path(sys.prefix)
    return [folder for folder in os.get_exec_path() if folder and not Path(folder).is_relative_to(mine)]


#: What comes and goes by itself.
FLEETING: Final = ("events", "leases.coordination.k8s.io", "pods.metrics.k8s.io", "componentstatuses")


def everything_in(cluster: ExternalCluster) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of every object, but for pods' own traces."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    asked = ",".join(kind for kind in kinds if not kind.startswith(FLEETING))
    items = cluster.get(asked, "--all-namespaces")["items"]
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items}


def default_in(namespace: str) -> tuple[str, str, str]:
    """What each namespace has."""
    return ("ServiceAccount", namespace, "default")
