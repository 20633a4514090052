"""`make conformance`: every manifest plain and through the front door, compared field by field.

    python -m tests.conformance [--only NAME ...] [--json] [--quick] [--real | --kwok]

Exit code 1 if a difference is not in `allowed.yaml`, or an entry there no longer occurs.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from penstock.devcluster import ClusterGroup
from tests.conformance import cases, comparing, report
from tests.conformance.ground import Ground, plans
from tests.conformance.running import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these manifests, by their files' names")
    parser.add_argument("--quick", action="store_true", help="the few that CI runs")
    parser.add_argument("--json", action="store_true", help="every difference, as JSON")
    parser.add_argument("--keep", type=Path, help="write Penstock's own log and home there")
    args = parser.parse_args()
    chosen = [one for one in cases.read() if one.name in (args.only or [one.name]) and (one.quick or not args.quick)]
    allowed = comparing.read()
    outcomes = play(chosen, allowed, args.keep)
    rotten = [] if args.only or args.quick else comparing.rotten([x for one in outcomes for x in one.found()], allowed)
    print(report.as_json(outcomes, allowed, rotten) if args.json else report.table(outcomes, allowed, rotten))
    return 1 if rotten or any(report.wrong(one, allowed) for one in outcomes) else 0


def play(chosen: list[cases.Case], allowed: list[comparing.Allowed], keep: Path | None) -> list[Outcome]:
    """On kwok."""

    async def tell(bed: ClusterGroup, folder: Path) -> list[Outcome]:
        async with Ground(bed, folder) as ground:
            return await run(ground, chosen, allowed, say)

    with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as work:
        folder = keep or Path(work)
        folder.mkdir(parents=True, exist_ok=True)
        with ClusterGroup(Path(work) / "bed", plans()) as bed:
            return asyncio.run(tell(bed, folder))


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
