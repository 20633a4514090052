"""Tests of one kind take turns: `@pytest.mark.turns(4)` lets a run of all tests take one in four of its parameters.

Which ones, the run's seed says (`--randomly-seed`, printed at the top): other seeds take others, and a run can
be repeated. `--every` takes all, and so does whoever names a test.
"""

from collections import Counter

import pytest

LEFT = "left_for_other_runs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", action="store_true", help="run all of the tests that take turns")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("every") or any("::" in name for name in config.args):
        return
    seed = config.getoption("randomly_seed", 0)
    left = waiting(items, seed if isinstance(seed, int) else 0)
    if left:
        config.stash[COUNT] = len(left)
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def waiting(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Those whose turn it is not."""
    left, before = [], Counter[str]()
    for item in sorted(items, key=lambda item: item.nodeid):
        if marker := item.get_closest_marker("turns"):
            family = item.nodeid.partition("[")[0]
            if (before[family] + seed) % marker.args[0]:
                left.append(item)
            before[family] += 1
    return left


# Workers of a parallel run choose alike, and each tells the run; the last one's word counts.
COUNT = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[LEFT] = session.config.stash.get(COUNT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    told = getattr(node, "workeroutput", None) or {}
    config: pytest.Config = getattr(node, "config")  # noqa: B009 - a type of xdist's, which need not be there
    config.stash[COUNT] = max(config.stash.get(COUNT, 0), told.get(LEFT, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(COUNT, 0):
        terminalreporter.section("taking turns")
        terminalreporter.write_line(f"{count:5} tests were left to runs with other seeds; --every runs them, too")
