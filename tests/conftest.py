"""What all tests share: Hypothesis profiles, no silent skips in CI, and the way to real traces where there are any.

Values are frozen for real here (`penstock.core.values`): set before anything imports penstock, in every worker.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ["PENSTOCK_FROZEN"] = "1"

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = os.environ.get("PENSTOCK_REQUIRE_ALL") == "1"
NO_SHARED_DATA = "no folder 'shared' beside the project, and PENSTOCK_SHARED names none: only generated load is tested"

# Deadlines and speed checks are off: how fast a shared machine is today is not what these tests are about.
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# For a long look with new examples each time: pytest --hypothesis-profile=explore
settings.register_profile("explore", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


def shared_data() -> Path:
    """The folder of recorded traces, or a skip: most people have none, so this one skip is never a failure."""
    folder = Path(os.environ.get("PENSTOCK_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(NO_SHARED_DATA)
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


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With PENSTOCK_REQUIRE_ALL=1 a test that did not run has failed: a green run then means that all of it ran."""
    if REQUIRE_ALL and report.outcome == "skipped" and NO_SHARED_DATA not in str(report.longrepr):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"PENSTOCK_REQUIRE_ALL=1 allows no skips: {reason}"
