"""`python -m bench.assess_prometheus`: a month of samples in a real Prometheus, read as `penstock assess` reads it.

    python -m bench.assess_prometheus [--jobs 600] [--days 30] [--scrape 4] [--seed 3]

A generated month is written as kube-state-metrics and the DCGM exporter would have shown it, and put into a Prometheus
server of this machine: the one on the PATH, or Debian's package, which only root can unpack. Prints how large it was,
how long reading took, and how far waits, demand and use are from the truth.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.assess.demo_month import GeneratedMonth, generated_month
from penstock.assess.history import MonthHistory
from penstock.assess.join import join
from penstock.assess.report import assess
from penstock.assess.sources.prometheus import read_prometheus
from penstock.assess.sources.promql import Prometheus
from penstock.assess.waits import quantile
from penstock.core.units import DAY, HOUR, MINUTE
from tests import debian
from tests.assess.months import gpu_hours, open_metrics
from tests.assess.prometheus_server import prometheus


def main(words: Sequence[str] | None = None) -> int:
    args = parsed(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = found(folder / "deb")
        if programs is None:
            print("There is no promtool on the PATH, and Debian's package cannot be unpacked here.", file=sys.stderr)
            return 2
        measured(generated_month(args.seed, args.jobs, days=args.days), args.scrape * MINUTE, programs, folder)
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.assess_prometheus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--scrape", type=int, default=4, help="minutes between two samples")
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args(words)


def found(folder: Path) -> Path | None:
    """Where `prometheus` and `promtool` are."""
    if on_path := shutil.which("promtool"):
        return Path(on_path).parent
    return folder / "usr/bin" if debian.unpack("prometheus", folder) else None


def measured(month: GeneratedMonth, every_ms: int, programs: Path, folder: Path) -> None:
    from_at = month.jobs[0].submitted_at // HOUR * HOUR
    to_at = max(job.ended_at for job in month.jobs) + HOUR
    metrics = open_metrics(month, every_ms, from_at, to_at)
    days = (to_at - from_at) / DAY
    print(f"{len(month.jobs):,} jobs on {month.owned_gpus} GPUs, {days:.1f} days, {metrics.count(chr(10)):,} samples")
    with prometheus(programs, folder, metrics) as url:
        server = Prometheus(url)
        began, cpu = time.monotonic(), time.process_time()
        reading = read_prometheus(server, from_at, to_at)
        took, used = time.monotonic() - began, time.process_time() - cpu
        server.close()
    print(f"read in {took:.1f} s, {used:.1f} s of our own CPU; {len(server.missing)} metrics with missing hours")
    compared(join([reading]), month)


def compared(history: MonthHistory, month: GeneratedMonth) -> None:
    report = assess(history, gpu_hour=None, currency="USD")
    waits, use = report.waits.all, report.use.total
    used = sum(job.job.spec.gpus * job.job.run_ms * job.used_permille for job in month.jobs) / 1000 / HOUR
    rows = [
        ("jobs", len(history.jobs), len(month.jobs)),
        ("sum of waits, h", waits.sum_ms / HOUR, sum(month.waits_ms) / HOUR),
        ("p95 of waits, h", waits.p95_ms / HOUR, quantile(month.waits_ms, 950) / HOUR),
        ("demand, GPU-h", report.waits.demand.gpu_hours, gpu_hours(month)),
        ("used, GPU-h", use.used, used),
        ("owned GPUs", report.waits.demand.owned_gpus, month.owned_gpus),
    ]
    print(f"{'':<18}{'read':>12}{'truth':>12}{'off by':>9}")
    for name, read, truth in rows:
        print(f"{name:<18}{read:>12,.1f}{truth:>12,.1f}{abs(read - truth) / max(truth, 1e-9):>9.1%}")


if __name__ == "__main__":
    sys.exit(main())
