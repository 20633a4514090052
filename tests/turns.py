"""Tests take turns: a run of all tests takes one in so many of them, and its seed says which.

`@pytest.mark.turns(4)` takes one in four of a test's parameters. `SLOW` names files with clusters and control planes
of their own, whose slow tests take turns by the group. Other seeds take others (`--randomly-seed`, printed at the top),
so that a few runs take all, and a run can be repeated. `--every` takes all, and so does whoever names a test or a file.
"""

from collections import Counter
from typing import Final
from zlib import crc32

import pytest

#: Groups of slow tests by what they have in common: one in how many, and their files.
SLOW: Final = {
    "whole stories on clusters": (
        3,
        ("tests/conformance/test_conformance.py", "tests/e2e/test_clouds.py", "tests/e2e/test_clusters.py"),
    ),
    "installed and named": (
        2,
        ("tests/deploy/test_first_burst.py", "tests/deploy/test_installed.py", "tests/e2e/test_host_names.py"),
    ),
    "front doors of a cluster": (
        2,
        (
            "tests/front/test_apply.py",
            "tests/front/test_clusters.py",
            "tests/front/test_manifests.py",
            "tests/front/uninstall/test_restore_jobs.py",
        ),
    ),
    "queues of others": (
        2,
        (
            "tests/devcluster/test_kueue.py",
            "tests/drivers/test_kueue.py",
            "tests/front/kueue/test_real_kueue.py",
            "tests/front/test_jobset.py",
            "tests/front/test_kueue.py",
        ),
    ),
    "real pods": (2, ("tests/devcluster/test_kubelet_nodes.py", "tests/drivers/test_real_pods.py")),
    "killed on clusters": (2, ("tests/faults/test_kill_clouds.py", "tests/faults/test_kill_kube.py")),
    "a machine in trouble": (2, ("tests/faults/test_machine.py",)),
    "outages": (2, ("tests/faults/test_outages.py", "tests/faults/test_two_planes.py")),
    "copies and failovers": (2, ("tests/hostile/test_copies.py", "tests/hostile/test_tokens.py")),
    "every way to rent": (4, ("tests/contract/test_capacity.py",)),
    "traps of renting": (
        3,
        (
            "tests/capacity/test_cluster_api.py",
            "tests/capacity/test_cluster_class.py",
            "tests/capacity/test_karpenter.py",
            "tests/capacity/test_pools.py",
            "tests/devcluster/test_cluster_api.py",
            "tests/devcluster/test_karpenter.py",
        ),
    ),
}
LEFT = "left_for_other_runs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", action="store_true", help="run all of the tests that take turns")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("every") or any("::" in name or name.endswith(".py") for name in config.args):
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
    for item in sorted(items, key=lambda item: (crc32(item.nodeid.encode()), item.nodeid)):  # mixed, and always alike
        one_in, family = _family(item)
        if one_in > 1:
            if (before[family] + crc32(family.encode()) + seed) % one_in:
                left.append(item)
            before[family] += 1
    return left


def _family(item: pytest.Item) -> tuple[int, str]:
    """One in how many of whom."""
    if marker := item.get_closest_marker("turns"):
        return marker.args[0], item.nodeid.partition("[")[0]
    return GROUPS.get(item.nodeid.partition("::")[0], ALWAYS) if item.get_closest_marker("slow") else ALWAYS


ALWAYS: Final = (1, "")
GROUPS: Final = {file: (one_in, group) for group, (one_in, files) in SLOW.items() for file in files}


# Workers of a parallel run choose alike, and each tells the run; the last one's word counts.
COUNT = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[LEFT] = session.config.stash.get(COUNT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    output = getattr(node, "workeroutput", None) or {}
    config: pytest.Config = getattr(node, "config")  # noqa: B009 - a type of xdist's, which need not be there
    config.stash[COUNT] = max(config.stash.get(COUNT, 0), output.get(LEFT, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(COUNT, 0):
        terminalreporter.section("taking turns")
        terminalreporter.write_line(f"{count:5} tests were left to runs with other seeds; --every runs them, too")
