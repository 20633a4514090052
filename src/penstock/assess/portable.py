"""The report's fifth part: which of the jobs seen could run elsewhere, as `penstock portability` judges them.

Without a sites file they are judged against a cluster that has nothing of one's own but the same namespaces, so that
what is named is what somebody has to bring there.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.assess.history import MonthHistory
from penstock.assess.replay import LAB
from penstock.config import SitesFile
from penstock.core.model.types import NodeShape, Offer, Policy, Site
from penstock.core.units import HOUR
from penstock.core.values import value
from penstock.front.burst_report import BurstReport, Judged
from penstock.kube.maps import Maps, has

ELSEWHERE: Final = "cloud"
MOST_NAMED: Final = 20


@value
class PortableRow:
    """Jobs of one template, as far as a manifest was read."""

    key: str
    gpus: int
    runs: int
    gpu_hours: float
    verdict: str  # goes, needs a map, never
    because: str


@value
class Portability:
    rows: tuple[PortableRow, ...]  # the most GPU-hours first
    templates: int
    goes: int
    maps: int
    never: int
    unread_runs: int  # runs whose manifest nobody read
    gpu_hours_that_go: float
    gpu_hours_read: float
    lines: tuple[tuple[str, int], ...]  # what to write in the sites file, and for how many templates

    @property
    def tied(self) -> frozenset[str]:
        """Keys of jobs that cannot leave before somebody does something."""
        return frozenset(row.key for row in self.rows if row.verdict != "goes")


def portability_of(history: MonthHistory, report: BurstReport | None = None) -> Portability | None:
    """None: no manifest was read."""
    if not history.manifests:
        return None
    judge = report or bare_report(history.manifests)
    runs, hours = _work(history)
    judged = {key: judge.judge(job) for key, job in history.manifests}
    rows = [
        PortableRow(key, template.gpus, runs[key], hours[key], _verdict(template), _because(template))
        for key, template in judged.items()
    ]
    rows.sort(key=lambda row: (-row.gpu_hours, row.key))
    lines = Counter(line for template in judged.values() for line in _lines(template))
    verdicts = Counter(row.verdict for row in rows)
    return Portability(
        rows=tuple(rows),
        templates=len(rows),
        goes=verdicts["goes"],
        maps=verdicts["needs a map"],
        never=verdicts["never"],
        unread_runs=sum(job.key not in judged for job in history.jobs),
        gpu_hours_that_go=sum(row.gpu_hours for row in rows if row.verdict == "goes"),
        gpu_hours_read=sum(row.gpu_hours for row in rows),
        lines=tuple(lines.most_common(MOST_NAMED)),
    )


def burst_report_of(file: SitesFile) -> BurstReport | None:
    """By the sites file's own maps. None: it has no other cluster, so nothing can be judged by it."""
    home = next((site.id for site in file.sites if site.front_door), "")
    report = BurstReport(file.sites, file.maps, home, file.data, Policy("portability", data_rules=file.data_rules))
    return report if report.others else None


def bare_report(manifests: Sequence[tuple[str, Any]]) -> BurstReport:
    """A cluster that has the Jobs' namespaces, and nothing else of theirs."""
    spaces = sorted({str((job.get("metadata") or {}).get("namespace") or "default") for _, job in manifests})
    maps = Maps(ELSEWHERE, namespaces=tuple((name, name) for name in spaces), copy_config_maps=True)
    shapes = (NodeShape(8, list_per_hour=1),)
    home = Site(LAB, (Offer(f"{LAB}/nodes", LAB, "owned", (NodeShape(8, 1),)),), front_door=True)
    elsewhere = Site(ELSEWHERE, (Offer(f"{ELSEWHERE}/on-demand", ELSEWHERE, "on_demand", shapes),), has=has(maps))
    return BurstReport((home, elsewhere), (maps,), LAB)


def _work(history: MonthHistory) -> tuple[Counter[str], Mapping[str, float]]:
    runs: Counter[str] = Counter()
    hours: dict[str, float] = defaultdict(float)
    for job in history.jobs:
        runs[job.key] += 1
        hours[job.key] += job.gpus * (job.run_ms or 0) / HOUR
    return runs, hours


def _verdict(template: Judged) -> str:
    if any(site.goes for site in template.sites):
        return "goes"
    return "never" if all(site.never for site in template.sites) else "needs a map"


def _because(template: Judged) -> str:
    if any(site.goes for site in template.sites) or not template.sites:
        return ""
    nearest = min(template.sites, key=lambda site: (site.never, len(site.says)))
    more = len(nearest.says) - 1
    return (nearest.says[0] if nearest.says else "") + (f" And {more} more." if more > 0 else "")


def _lines(template: Judged) -> set[str]:
    return {line for site in template.sites if not site.never for line in site.lines}
