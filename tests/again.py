"""`make test AGAIN=1`, as CI runs it: a test that failed beside all others runs three times more, alone.

    python -m tests.again          # after a run of pytest in this folder

One that fails again is broken, and so is a run with more than a few failures. One that passes each time is unsteady: it
depends on how busy the machine is. It is named at the end, for somebody to mend, and does not fail the run.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")  #: where pytest remembers them
MOST: Final = 5
TIMES: Final = 3


def main() -> int:
    tests = failed()
    if not 0 < len(tests) <= MOST:
        print(f"{len(tests)} tests failed; at most {MOST} are tried again.", file=sys.stderr)
        return 1
    broken = [test for test in tests if not all(passes(test) for _ in range(TIMES))]
    for test in tests:
        word = "broken: failed again, alone" if test in broken else f"unsteady: passed {TIMES} times alone"
        print(f"{word}: {test}", file=sys.stderr)
    return 1 if broken else 0


def failed() -> list[str]:
    """Node ids of the last run's failures; a file's name if it could not even be imported."""
    return sorted(json.loads(FAILED.read_text("utf-8"))) if FAILED.exists() else []


def passes(test: str) -> bool:
    # Without the cache: this run's failures stay on record until all of them were tried.
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
