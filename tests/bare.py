"""`make test-bare`: demo and quick tests in a fresh copy on a machine that has git, make and Python, and nothing else.

    python -m tests.bare [--slow] [--again] [--passed FILE] [--seed N] [-n WORKERS] [TEST ...]

It hides what this machine has besides: the PATH holds links to those three and to a system's everyday commands, home
and cache folders are new, and root becomes `nobody`. There `make demo` installs its own packages and runs, each command
is tried with these alone (`tests.demo_only`), `make venv` installs the others that the lock names, and the tests run.
Each part that should be missing must be missed, so that the proof cannot rot; a skip for anything else is a failure.
This file itself needs no package: CI installs its own ones meanwhile.
"""

import argparse
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.parts import ROOT, Part

NEEDED: Final = ("git", "make", "sh")
#: A system without these is none; whatever is missing of them is left out.
USUAL: Final = (
    "awk", "basename", "bash", "cat", "chmod", "cp", "cut", "date", "dirname", "echo", "env", "expr", "false", "find",
    "grep", "head", "hostname", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mktemp", "mv", "nice", "ps", "pwd",
    "readlink", "rm", "rmdir", "sed", "seq", "setsid", "sleep", "sort", "stat", "stty", "tail", "tee", "test",
    "timeout", "touch", "tr", "true", "uname", "wc", "which", "xargs",
)  # fmt: skip
#: Those of which the quick tests have some; slow ones are left out.
MISSED: Final = (Part.KUBERNETES, Part.POSTGRES, Part.ROOT, Part.S3, Part.TRACES)
#: Kept of the environment: how to reach an index of packages, and the language.
KEPT: Final = ("PIP_", "SSL_", "REQUESTS_", "LANG", "LC_", "HTTP", "http", "NO_PROXY", "no_proxy", "TERM")
PYTHONS: Final = ("python3", *(f"python3.{minor}" for minor in range(11, 15)))
DEMO: Final = (("make", "demo"), (".venv/bin/python", "-m", "tests.demo_only"))
MAKE_VENV: Final = ("make", "venv")
USABLE: Final = "import ensurepip, ssl, sys; sys.exit(sys.version_info < (3, 11))"
NOBODY: Final = "nobody"
PASSED: Final = "passed.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true", help="the slow tests, too: all of `make test`")
    parser.add_argument("--again", action="store_true", help="try what failed again, alone, as `tests.again` does")
    parser.add_argument("--passed", type=Path, help="write the tests that need not run again here (`tests.once`)")
    parser.add_argument("--seed", help="of the tests' order, and of those whose turn it is")
    parser.add_argument("-n", dest="workers", default="auto", help="workers of pytest")
    parser.add_argument(
        "tests", nargs="*", help="these tests only: no demo, and nothing is asked about what is missing"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bare-") as folder:
        bare = Bare(Path(folder))
        bare.prepare()
        for command in [*([] if asked.tests else DEMO), MAKE_VENV]:
            if code := bare.run(*command, *([f"PYTHON={bare.python}"] if command[0] == "make" else [])):
                return code
        chosen = [*([] if asked.slow else ["-m", "not slow"]), *([f"--passed={PASSED}"] if asked.passed else [])]
        chosen += [f"--randomly-seed={asked.seed}"] if asked.seed else []
        code = bare.run(".venv/bin/python", "-m", "pytest", "-n", asked.workers, *chosen, *asked.tests)
        if code == 1 and asked.again:
            code = bare.run(".venv/bin/python", "-m", "tests.again")
        if code == 0 and asked.passed:
            asked.passed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bare.project / PASSED, asked.passed)
        seen = [] if asked.tests else [part for part in MISSED if part not in bare.said]
    for part in seen:
        print(f"Not hidden, or no test needs it any more: {part}", file=sys.stderr)
    return code or len(seen)


class Bare:
    """A copy of the project in a folder of its own, and how commands see the machine from there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project, self.said = folder, folder / "penstock", ""
        self.user = NOBODY if os.geteuid() == 0 else None
        self.python = Path(sys.executable).resolve()
        kept = {name: text for name, text in os.environ.items() if name.startswith(KEPT)}
        self.env = kept | {
            "HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home" / "cache"), "PATH": str(folder / "bin"),
            "TMPDIR": str(folder / "tmp"), "PENSTOCK_TEST_BARE": "1",
        }  # fmt: skip

    def prepare(self) -> None:
        for name in ("home", "tmp", "bin"):
            (self.folder / name).mkdir()
        for name in files():
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.project / name)
        for name in (*NEEDED, *USUAL):
            if program := shutil.which(name):
                (self.folder / "bin" / name).symlink_to(program)
            elif name in NEEDED:
                raise SystemExit(f"There is no {name} on the PATH.")
        self.folder.chmod(0o755)
        if self.user:
            own(self.folder, pwd.getpwnam(self.user))
        self.python = next(filter(self._can_run, pythons()), self.python)
        (self.folder / "bin" / "python3").symlink_to(self.python)

    def run(self, *command: str) -> int:
        """What it prints is shown, and remembered."""
        with subprocess.Popen(
            [self._on_path(command[0]), *command[1:]], cwd=self.project, env=self.env, text=True, user=self.user,
            group=self._group(), extra_groups=[] if self.user else None,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                self.said += line
                print(line, end="", flush=True)
        return process.returncode

    def _can_run(self, python: Path) -> bool:
        """Whether the user may, and can make a venv with it."""
        try:
            done = subprocess.run(
                [str(python), "-c", USABLE], user=self.user, group=self._group(), check=False, capture_output=True
            )
        except OSError:
            return False
        return done.returncode == 0

    def _group(self) -> int | None:
        return pwd.getpwnam(self.user).pw_gid if self.user else None

    def _on_path(self, name: str) -> str:
        return name if "/" in name else str(self.folder / "bin" / name)


def pythons() -> Iterator[Path]:
    """Ours first; the machine's own where ours lies in root's home, which only root may read."""
    yield Path(sys.executable).resolve()
    for folder in os.get_exec_path():
        yield from (path for name in PYTHONS if (path := Path(folder, name)).exists())


def files() -> Iterator[str]:
    """As a commit of all that is here now would have them."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    return (name for name in done.stdout.split("\0") if name and (ROOT / name).is_file())


def own(folder: Path, user: pwd.struct_passwd) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main())
