"""What text must look like, in words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.web.patterns import MEANINGS
from tests.awaiting import story
from tests.web.kit import running


@story
async def test_nobody_reads_a_regular_expression(tmp_path: Path) -> None:
    """`penstock budget --set vision=0.50` ended in "String should match pattern '^(org|(team|project):..."."""
    async with running(tmp_path) as penstock:
        wish = await penstock.admin.put("/v1/budget", json={"scope": "vision", "per_month": 500_000})
        assert (
            wish.json()["detail"] == "body.scope: A budget is 'org', 'team:NAME' or 'project:NAME', like team:vision."
        )
        described = (await penstock.admin.get("/v1/openapi.json")).json()
        for path in ("/v1/jobs", "/v1/plan"):  # job files have their own words
            del described["paths"][path]["post"]
        patterns = set(_patterns(described))
        assert patterns
        assert patterns - set(MEANINGS) == set()


def _patterns(described: Any) -> Iterator[str]:
    if isinstance(described, list):
        for inner in described:
            yield from _patterns(inner)
    elif isinstance(described, dict):
        if isinstance(described.get("pattern"), str):
            yield described["pattern"]
        for inner in described.values():
            yield from _patterns(inner)
