"""`make explore SEEDS=10000`: random small months with every feature on, through the engine and the simulator.

    python -m tests.explore [--seeds N] [--start S] [--workers N] [--compiled | --both] [--live] [--case FILE]

Each seed is one month. After every step the state's own invariants, what runs where, all money and every cap are
checked from outside; at the end that the record folds to the same state. A month that breaks a rule is made smaller
and written to build/explore; its file moves to tests/explore/kept with the mend. Exit code 1 if one breaks a rule.
"""

import argparse
import hashlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import compiled
from tests.explore.drive import Drive
from tests.explore.months import loaded
from tests.explore.seeds import tried, tried_live

SHOWN_EVERY_S = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, metavar="N")
    parser.add_argument("--start", type=int, default=None, metavar="S", help="the first seed; otherwise any")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--compiled", action="store_true", help="the engine as `make wheel` ships it")
    parser.add_argument("--both", action="store_true", help="plain, then compiled: both must decide the same")
    parser.add_argument("--decided", metavar="DIGEST", help=argparse.SUPPRESS)
    parser.add_argument(
        "--live", action="store_true", help="through the live loop on SQLite, killed four times a month"
    )
    parser.add_argument("--case", type=Path, metavar="FILE", help="this month alone, and where it breaks")
    args = parser.parse_args()
    if args.compiled:
        return compiled.again("tests.explore", sys.argv[1:])
    if args.case:
        Drive(loaded(args.case.read_text("utf-8"))).play()
        print(f"{args.case} breaks no rule.")
        return 0
    start = int.from_bytes(os.urandom(4)) if args.start is None else args.start
    broken, decided = explore(start, args.seeds, args.workers, tried_live if args.live else tried)
    if args.decided and args.decided != decided:
        print(f"The plain engine decided {args.decided}: something else.")
        return 1
    if not args.both or broken:
        return 1 if broken else 0
    same = ["--seeds", str(args.seeds), "--start", str(start), "--workers", str(args.workers), "--decided", decided]
    print("The same with the compiled engine:", flush=True)
    return compiled.again("tests.explore", same)


def explore(
    start: int, seeds: int, workers: int, attempt: Callable[[int], tuple[int, str, str]] = tried
) -> tuple[int, str]:
    """How many months break a rule, and a digest of all that was decided."""
    print(f"{seeds:,} months from seed {start} on, with {count_of(workers)}.", flush=True)
    began, shown, done, broken, all_digests = time.monotonic(), time.monotonic(), 0, 0, hashlib.sha256()
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for seed, digest, words in pool.imap(attempt, range(start, start + seeds), chunksize=8):
            done += 1
            all_digests.update(digest.encode())
            if words:
                broken += 1
                print(f"seed {seed}: {words}", flush=True)
            if time.monotonic() - shown > SHOWN_EVERY_S:
                shown = time.monotonic()
                print(f"{done:,} of {seeds:,}, {done / (shown - began):.1f} a second, {broken} broken", flush=True)
    took_s, same = time.monotonic() - began, all_digests.hexdigest()[:16]
    print(f"{done:,} months in {took_s:.0f} s: {broken} broken. What was decided: {same}.")
    return broken, same


def count_of(workers: int) -> str:
    return "1 process" if workers == 1 else f"{workers} processes"


if __name__ == "__main__":
    sys.exit(main())
