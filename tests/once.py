"""CI runs a quick test once: what passed in the bare copy (`tests.bare`) is left out of the run of all tests.

    pytest --passed FILE            # write the tests that passed and would do the same on a fuller machine
    pytest --not-again FILE         # leave them out

A test runs again if a fuller machine could change what it does: it started a process, looked for a program that is not
there, asked which user runs it, or drew examples, of which the bare copy draws few. What a fixture of several tests did
counts for each of them.
"""

import os
import shutil
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis.internal.conjecture.engine import ConjectureRunner

ROOT: Final = str(Path(__file__).resolve().parent.parent)
STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"})
SAME: Final = "same_everywhere"  #: a property of a test's report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", metavar="FILE", help="write the tests that passed and need not run again here")
    parser.addoption("--not-again", metavar="FILE", help="leave out the tests that such a file names")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("passed"):
        config.pluginmanager.register(Recorder(Path(config.getoption("passed"))))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = _listed(config)
    if left := [item for item in items if item.nodeid in passed]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item.nodeid not in passed]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if passed := _listed(config):
        terminalreporter.section("not run again")
        terminalreporter.write_line(f"{len(passed):5} tests passed in the bare copy and are not run again")


def _listed(config: pytest.Config) -> frozenset[str]:
    name = config.getoption("not_again")
    return frozenset(Path(name).read_text("utf-8").splitlines()) if name else frozenset()


class Recorder:
    """In each worker it watches what tests do; in the run itself it collects their reports and writes the file."""

    def __init__(self, file: Path) -> None:
        self.file, self.passed, self.others = file, set[str](), set[str]()
        self.asked = 0  #: how often something was done that depends on the machine
        self.fixtures = set[str]()  #: of several tests, in which that happened
        sys.addaudithook(self._hear)
        for owner, name in ((os, "getuid"), (os, "geteuid"), (shutil, "which"), (ConjectureRunner, "run")):
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _hear(self, event: str, _: object) -> None:
        self.asked += event in STARTS

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            found = call(*args, **kwargs)
            # Pytest asks for the user, too, and `which` makes a difference only where nothing is found.
            ours = sys._getframe(1).f_code.co_filename.startswith((f"{ROOT}/src", f"{ROOT}/tests", f"{ROOT}/bench"))
            self.asked += found is None or (ours and isinstance(found, int))
            return found

        return counted

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
        if call.when == "teardown" and self.asked == item.stash[BEFORE] and self.fixtures.isdisjoint(names):
            report.user_properties.append((SAME, True))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" or hasattr(report, "wasxfail"):
            self.others.add(report.nodeid)
        elif (SAME, True) in [tuple(named) for named in report.user_properties]:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            self.file.write_text("".join(f"{name}\n" for name in sorted(self.passed - self.others)), "utf-8")


BEFORE = pytest.StashKey[int]()
