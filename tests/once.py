"""CI runs a quick test once: what passed in the bare copy (`tests.bare`) is left out of the run of all tests.

    pytest --passed=FILE            # write the tests that passed and would do the same on a fuller machine
    pytest --not-again=FILE         # leave them out

With `=`: before this plug-in is read, pytest takes a file that stands alone for the tests to run, and then does not
read this plug-in.

A test runs again if a fuller machine could change what it does: it started a program that is not ours, looked for one
that is not there, asked which user runs it, or drew as few examples as the bare copy's profile says. What a fixture of
several tests did counts for each of them. A Penstock of root gives each job a user of its own: tests in which that
matters run again, too. Of a file whose tests all passed so, the name alone stands there, and it is not even read.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture.engine import ConjectureRunner

ROOT: Final = str(Path(__file__).resolve().parent.parent)
STARTS: Final = frozenset({"os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"})
AS_ROOT: Final = (
    "tests/cli/test_live.py", "tests/contract/test_drivers.py", "tests/drivers/", "tests/hostile/test_local_jobs.py",
    "tests/web/routes/test_job_exec.py",
)  # fmt: skip
SAME: Final = "same_everywhere"  #: a property of a test's report
IN_FILES: Final = "tests_in_files"  #: what a worker tells at its end


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", metavar="FILE", help="write the tests that passed and need not run again here")
    parser.addoption("--not-again", metavar="FILE", help="leave out the tests that such a file names")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("passed"):
        config.pluginmanager.register(Recorder(Path(config.getoption("passed"))))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(config.rootpath):
        return None
    return str(collection_path.relative_to(config.rootpath)) in _listed(config) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After `tests.turns`, which counts all that there are: with the same seed it takes the same in both runs."""
    passed = _listed(config)
    if left := [item for item in items if item.nodeid in passed]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item.nodeid not in passed]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if passed := [name for name in _listed(config) if "::" in name]:
        terminalreporter.section("not run again")
        terminalreporter.write_line(f"{len(passed):5} tests passed in the bare copy and are not run again")


def _listed(config: pytest.Config) -> frozenset[str]:
    if LISTED not in config.stash:
        name = config.getoption("not_again")
        config.stash[LISTED] = frozenset(Path(name).read_text("utf-8").splitlines() if name else ())
    return config.stash[LISTED]


class Recorder:
    """In each worker it watches what tests do; in the run itself it collects their reports and writes the file."""

    def __init__(self, file: Path) -> None:
        self.file, self.passed, self.others = file, set[str](), set[str]()
        self.in_files = dict[str, int]()  #: how many tests there are in each
        self.asked = 0  #: how often something was done that depends on the machine
        self.fixtures = set[str]()  #: of several tests, in which that happened
        sys.addaudithook(self._hear)
        self._count(shutil, "which", lambda result, *_: result is None)
        self._count(os, "getuid", lambda *_: _asked_by_us())
        self._count(os, "geteuid", lambda *_: _asked_by_us())
        few = settings().max_examples  # here, because while examples are drawn this is what their test says
        self._count(ConjectureRunner, "run", lambda _, run: run.settings.max_examples == few)

    def _hear(self, event: str, about: tuple[Any, ...]) -> None:
        self.asked += event in STARTS or (event == "subprocess.Popen" and about[0] != sys.executable)

    def _count(self, owner: object, name: str, matters: Callable[..., bool]) -> None:
        call = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            self.asked += matters(result, *args)
            return result

        setattr(owner, name, counted)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        before = self.asked
        try:
            return (yield)
        finally:
            if self.asked > before and fixturedef.scope != "function":
                self.fixtures.add(fixturedef.argname)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[BEFORE] = self.asked
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        names: list[str] = getattr(item, "fixturenames", [])
        same = self.asked == item.stash[BEFORE] and self.fixtures.isdisjoint(names)
        if call.when == "teardown" and same and not item.nodeid.startswith(AS_ROOT):
            report.user_properties.append((SAME, True))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" or hasattr(report, "wasxfail"):
            self.others.add(report.nodeid)
        elif (SAME, True) in [tuple(named) for named in report.user_properties]:
            self.passed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """All of them, before options leave some out."""
        self.in_files = _by_file(item.nodeid for item in items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            session.config.workeroutput[IN_FILES] = self.in_files  # type: ignore[attr-defined]  # of xdist
        else:
            once = self.passed - self.others
            whole = [file for file, tests in _by_file(once).items() if tests == self.in_files.get(file)]
            self.file.write_text("".join(f"{name}\n" for name in sorted([*once, *whole])), "utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Workers read the same files; the last one's count will do."""
        output = getattr(node, "workeroutput", None) or {}
        self.in_files = output.get(IN_FILES, self.in_files)


def _by_file(tests: Iterable[str]) -> dict[str, int]:
    return dict(Counter(test.partition("::")[0] for test in tests))


def _asked_by_us() -> bool:
    """Pytest asks, too, and does the same whatever it hears."""
    return sys._getframe(3).f_code.co_filename.startswith((f"{ROOT}/src", f"{ROOT}/tests", f"{ROOT}/bench"))


BEFORE = pytest.StashKey[int]()
LISTED = pytest.StashKey[frozenset[str]]()
