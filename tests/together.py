"""In a parallel run, tests that share something dear run on one worker, one after the other: it is started once.

Clusters of one's own, a control plane or a browser take longer to start than most tests that use them. Each worker has
one of its own, and a fixture of a module ends with the next test of another module. So all tests of such a file, or
of several files with the same fixture, are handed out together; all others one by one, as soon as a worker is free.
"""

from typing import Final

import pytest

#: Files by what they share; tests/test_together.py knows which must be here.
SHARED: Final = {
    "two clusters that are free, with Penstock in process": (
        "tests/front/test_clusters.py",
        "tests/front/test_commands.py",
        "tests/front/test_habits.py",
    ),
    "two clusters that are free, and what leaves them": (
        "tests/front/test_manifests.py",
        "tests/front/uninstall/test_restore_jobs.py",
    ),
    "one cluster with Kueue": (
        "tests/devcluster/test_kueue.py",
        "tests/drivers/test_kueue.py",
        "tests/front/test_kueue.py",
    ),
    "a checkout that people's own commands have installed Penstock in": (
        "tests/deploy/test_first_burst.py",
        "tests/deploy/test_install_page.py",
    ),
    "two clusters with real pods, whose GPUs each test wants for itself": (
        "tests/deploy/test_installed.py",
        "tests/devcluster/test_kubelet_nodes.py",
        "tests/drivers/test_real_pods.py",
        "tests/e2e/test_leaving.py",
        "tests/e2e/test_pods.py",
    ),
}
#: Files with a fixture of their own for all of their tests.
ALONE: Final = (
    "tests/assess/test_decision.py",
    "tests/bench/test_assess.py",
    "tests/capacity/test_autoscaler.py",
    "tests/cli/test_approvals.py",
    "tests/cli/test_live.py",
    "tests/conformance/test_unequal.py",
    "tests/devcluster/test_cluster.py",
    "tests/e2e/test_page.py",
    "tests/faults/test_outages.py",
    "tests/faults/test_two_planes.py",
    "tests/front/kueue/test_real_kueue.py",
    "tests/hostile/test_connections.py",
    "tests/hostile/test_copies.py",
    "tests/hostile/test_requests.py",
    "tests/journal/test_contents.py",
    "tests/test_compiled.py",
)
TOGETHER: Final = {file: file for file in ALONE} | {file: what for what, files in SHARED.items() for file in files}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    if config.getoption("dist") != "load":  # somebody asked for another way
        return None
    config.option.loadscopereorder = False  # where the first of them stands; all at once would overload the machine
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = handed_out_with
    result: object = scheduler
    return result


def handed_out_with(nodeid: str) -> str:
    """Tests of one name here are handed out together."""
    return TOGETHER.get(nodeid.partition("::")[0], nodeid)
