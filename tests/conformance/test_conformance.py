"""A few manifests of `make conformance`, in all modes: a home Job looks to its user as a plain Job does."""

import asyncio
import sys
from pathlib import Path

import pytest

from penstock.devcluster import ClusterGroup, programs
from tests.conformance import cases, comparing
from tests.conformance.ground import Ground, plans
from tests.conformance.report import table, wrong
from tests.conformance.running import Outcome, run
from tests.conftest import Part

pytestmark = pytest.mark.slow


def test_home_jobs_look_like_plain_jobs_at_home_burst_and_moved(tmp_path: Path) -> None:
    """One story, because the manifests of a mode run at the same time."""
    if not programs.are_available():
        pytest.skip(Part.KUBERNETES)
    quick = [case for case in cases.read() if case.quick]
    allowed = comparing.read()

    async def tell(bed: ClusterGroup) -> list[Outcome]:
        async with Ground(bed, tmp_path) as ground:
            return await run(ground, quick, allowed, lambda line: print(line, file=sys.stderr))

    with ClusterGroup(tmp_path / "bed", plans()) as bed:
        outcomes = asyncio.run(tell(bed))
    assert not any(wrong(outcome, allowed) for outcome in outcomes), table(outcomes, allowed, [])
