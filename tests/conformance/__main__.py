"""`make conformance`: every manifest plain and through the front door, compared field by field.

    python -m tests.conformance [--only NAME ...] [--json] [--quick] [--real | --kwok]

Exit code 1 if a difference is not in `allowed.yaml`, or an entry there no longer occurs.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

from penstock.devcluster import ClusterGroup, kubelet_nodes
from tests.conformance import cases, comparing, report
from tests.conformance.ground import Ground, plans
from tests.conformance.running import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these manifests, by their files' names")
    parser.add_argument("--quick", action="store_true", help="those that CI runs, on kwok's nodes")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--kwok", action="store_true", help="on kwok's nodes only")
    where.add_argument("--real", action="store_true", help="on real pods only")
    parser.add_argument("--json", action="store_true", help="every difference that is not allowed, as JSON")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave Penstock's home and log there")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever is impatient leaves nothing behind, either
    chosen = [case for case in cases.read() if case.name in (args.only or [case.name])]
    allowed = comparing.read()
    outcomes: list[Outcome] = []
    if not args.real:
        outcomes += play([case for case in chosen if case.quick or not args.quick], allowed, args.keep)
    if args.real or not (args.kwok or args.quick or (missing := kubelet_nodes.lacks())):
        outcomes += play([case for case in chosen if case.real], allowed, args.keep, real=True)
    elif not (args.kwok or args.quick):
        say(f"not on real pods: here {missing}")
    partly = args.only or args.quick or args.kwok or args.real
    rotten = (
        []
        if partly
        else comparing.rotten([difference for outcome in outcomes for difference in outcome.found()], allowed)
    )
    print(report.as_json(outcomes, allowed, rotten) if args.json else report.table(outcomes, allowed, rotten))
    return 1 if rotten or any(report.wrong(outcome, allowed) for outcome in outcomes) else 0


def play(
    chosen: list[cases.Case], allowed: list[comparing.Allowed], keep: Path | None, *, real: bool = False
) -> list[Outcome]:
    """On clusters of its own, which are gone afterwards."""
    if not chosen:
        return []

    async def tell(bed: ClusterGroup, folder: Path) -> list[Outcome]:
        async with Ground(bed, folder, real=real) as ground:
            return await run(ground, chosen, allowed, say)

    with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as work:
        folder = (keep or Path(work)) / ("real" if real else "kwok")
        folder.mkdir(parents=True, exist_ok=True)
        with ClusterGroup(Path(work) / "bed", plans(real=real)) as bed:
            return asyncio.run(tell(bed, folder))


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
