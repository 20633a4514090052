"""The command line that the kill benches of clusters share: one run, or one for each seeded mistake."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from bench.auditor import Auditor


class Told(Protocol):
    """A run that is over."""

    auditor: Auditor
    kills: int
    stops: int

    @property
    def summary(self) -> dict[str, Any]: ...

    @property
    def words(self) -> list[str]: ...

    @property
    def stories(self) -> Iterable[str]: ...


Run = Callable[[int, int, str], Told]  #: kills, seed, mistake


def main(about: str, run: Run, mistakes: Iterable[str], kills: int, with_mistake: int) -> int:
    """`kills` of a run, and the most `with_mistake`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=None, help=f"{kills}, and at most {with_mistake} for each mistake")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutate", action="store_true")
    parser.add_argument("--only", choices=list(mistakes), nargs="+")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever is impatient leaves nothing behind, either
    if args.mutate or args.only:
        return mutated(run, args.only or list(mistakes), args.kills or with_mistake, args.seed)
    series = run(args.kills or kills, args.seed, "")
    print(json.dumps(series.summary), flush=True)
    for words in (*series.words, *series.stories):
        print(words, file=sys.stderr)
    return 0 if series.auditor.clean else 1


def mutated(run: Run, mistakes: list[str], kills: int, seed: int) -> int:
    missed = 0
    for name in mistakes:
        series = run(kills, seed, name)
        missed += series.auditor.clean
        first = "NOT FOUND" if series.auditor.clean else f"found: {series.auditor.first}"
        print(f"{name:30} after {series.kills:3} kills, {series.stops:2} stops  {first[:700]}", flush=True)
    print(json.dumps({"mistakes": len(mistakes), "found": len(mistakes) - missed}), flush=True)
    return 1 if missed else 0
