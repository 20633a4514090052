"""The tale on real clusters, the very same that `make demo-kube` shows: real pods, and figures that are counted."""

import json
from pathlib import Path

import pytest

from penstock.demo.clusters import CLAIMS, TRAVELLER, short, untrue
from penstock.demo.observer import Observer
from penstock.devcluster import kubelet_nodes, programs, s3_server
from tests.conftest import Part
from tests.demos import play

LIMIT_S = 500  #: it takes about two minutes on two idle cores; a busy machine is not a broken tale


@pytest.mark.slow
def test_a_job_bursts_loses_its_spot_node_resumes_elsewhere_comes_home_and_ends_as_if_nothing_had_been(
    tmp_path: Path,
) -> None:
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    if kubelet_nodes.lacks():
        pytest.skip(Part.REAL_PODS)
    if s3_server.program_path() is None:
        pytest.skip(Part.S3)
    done = play(tmp_path, LIMIT_S, "--kube")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert untrue(figures) == []

    seen = Observer(tmp_path / "penstock-demo" / "demo.journal")
    seen.look()
    tale = next(job for job in seen.jobs.values() if short(job.spec.name) == TRAVELLER)
    # East has no node left, and says so when it is asked again.
    ran = [attempt for attempt in tale.tries if attempt.started_at]
    assert [attempt.promise.offer for attempt in ran] == ["east/spot", "west/on-demand", "lab/owned"]
    assert [attempt.how for attempt in ran] == ["lost", "stopped", "done"]
    # kubectl and Penstock tell the same: each place is named in both.
    described, why = done.stdout.partition("$ kubectl describe")[2].split("$ penstock why")
    for place in ("east/spot", "west/on-demand", "lab/owned"):
        assert place in described, described
        assert place in why, why


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_is_not_true_is_found(claim: str) -> None:
    figures = {**CLAIMS, "resumed_from_step": 7}
    assert untrue(figures) == []
    assert untrue({**figures, claim: "otherwise"}) == [claim]
    assert untrue({**figures, "resumed_from_step": 0}) == ["resumed_from_step"]
