"""What all tests share: Hypothesis profiles, the optional parts that a test may need, and the way to real traces.

A test is left out only for an optional part (`Part`), and the run's summary has one line for each that is missing. With
PENSTOCK_REQUIRE_ALL=1, as in CI, none may be missing but the traces.

Values are frozen for real here (`penstock.core.values`): set before anything imports penstock, in every worker.
"""

import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.parts import ROOT, Part

__all__ = ["REQUIRE_ALL", "ROOT", "Part", "shared_data"]

os.environ["PENSTOCK_FROZEN"] = "1"

REQUIRE_ALL = os.environ.get("PENSTOCK_REQUIRE_ALL") == "1"
LONGEST_S = 900  #: of one test, with whatever it builds first; nothing takes half of it, unless others want the machine
pytest_plugins = ["tests.kueue_cluster", "tests.once", "tests.together", "tests.turns"]

# Deadlines and speed checks are off: how fast a shared machine is today is not what these tests are about.
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# `make test-bare` hides programs, and examples need none: `make test` runs all of these very examples.
settings.register_profile("bare", settings.get_profile("ci"), max_examples=10)
# For a long look with new examples each time: pytest --hypothesis-profile=explore
settings.register_profile("explore", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bare" if os.environ.get("PENSTOCK_TEST_BARE") == "1" else "ci")


def shared_data() -> Path:
    """The folder of recorded traces, or a skip: most people have none, so this skip is never a failure."""
    folder = Path(os.environ.get("PENSTOCK_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(Part.TRACES)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):  # an expected failure is reported as a skip, and is none
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that waits for ever fails, and the run goes on."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"{item.nodeid} takes longer than {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each optional part that is missing here: how many tests it leaves out, and how to get it."""
    skipped: list[pytest.TestReport | pytest.CollectReport] = terminalreporter.stats.get("skipped", [])
    left_out = Counter(_part(report) for report in skipped)
    if left_out:
        terminalreporter.section("left out, for what this machine does not have")
    for part, tests in left_out.most_common():
        terminalreporter.write_line(f"{tests:5} {'test ' if tests == 1 else 'tests'}  {part}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a parallel run, spread the slow tests evenly over the first three quarters: a worker that begins one last
    keeps the others waiting, and all of them at once would overload the machine.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    every = len(items) * 3 // 4
    place = {item: (k + 1) * every / (len(slow) + 1) for k, item in enumerate(slow)}
    place |= {item: float(k) for k, item in enumerate(quick)}
    items.sort(key=place.__getitem__)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A skip for no optional part is a failure, and with PENSTOCK_REQUIRE_ALL=1 any is: then a green run ran it all."""
    if report.outcome != "skipped":
        return
    part = _part(report)
    if part is None:
        report.outcome, why = "failed", "A test is left out only for a Part of tests/parts.py"
    elif REQUIRE_ALL and part is not Part.TRACES:
        report.outcome, why = "failed", "PENSTOCK_REQUIRE_ALL=1 allows no skips"
    else:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.longrepr = f"{why}: {reason}"


def _part(report: pytest.TestReport | pytest.CollectReport) -> Part | None:
    return next((part for part in Part if part in str(report.longrepr)), None)
