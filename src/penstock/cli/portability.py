"""`penstock portability`: which Jobs of a cluster could burst today, which need a line in the maps, and which never
can.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.clusters import Json, ask, documents, reaches
from penstock.cli.output import table
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.front.burst_report import BurstReport, Judged


@click.command("portability")
@click.option("--sites", required=True, metavar="FILE", help="Sites file with the maps.")
@click.option("-f", "--filename", metavar="FILE", help="Read Jobs from a file instead of a cluster.")
@click.option("--home", metavar="SITE", help="Home site of the Jobs.  [default: the front door]")
@reaches
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(sites: str, filename: str | None, home: str | None, as_json: bool, **where: Any) -> None:
    """Show which Jobs of a cluster could burst, and what blocks the others."""
    from penstock.config import read_sites

    report = _report(read_sites(sites), home, sites)
    jobs = _of_file(filename) if filename else ask(where, lambda cluster: _of_cluster(cluster, where["namespace"]))
    judged = [report.judge(job) for job in jobs]
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(
            [
                {"job": verdict.job, "gpus": verdict.gpus, "verdict": verdict.verdict, "sites": verdict.sites}
                for verdict in judged
            ]
        )
    else:
        _draw(judged)


def _report(file: "SitesFile", home: str | None, path: str) -> "BurstReport":
    from penstock.core.model.types import Policy
    from penstock.front.burst_report import BurstReport

    sites = [site.id for site in file.sites]
    if home and home not in sites:
        raise BadInput(f"{path} has no site '{home}'; it has {', '.join(sites)}.")
    homes = [home] if home else [site.id for site in file.sites if site.front_door]
    policy = Policy("portability", data_rules=file.data_rules)
    report = BurstReport(file.sites, file.maps, next(iter(homes), ""), file.data, policy)
    if not report.others:
        raise BadInput(f"{path} has no other site with 'driver: kubernetes', so no Job can burst.")
    return report


def _of_file(path: str) -> list[Json]:
    from penstock.front.home_kinds import jobs_in

    jobs = [job for document in documents(path) for job in jobs_in(document)]
    if not jobs:
        raise BadInput(f"{path} has no Job, CronJob or JobSet.")
    return jobs


async def _of_cluster(cluster: Any, namespace: str) -> list[Json]:
    """Jobs that people created, and the templates of CronJobs. Jobs that a CronJob created are left out: they repeat
    its template."""
    from penstock.front.home_kinds import CRON_JOB, jobs_in
    from penstock.kube import annotations
    from penstock.kube.client import CRON_JOBS, JOBS
    from penstock.kube.errors import Forbidden

    items, _ = await cluster.list(JOBS, namespace)
    jobs = [job for job in items if annotations.EXECUTION not in (job["metadata"].get("labels") or {})]
    try:
        crons, _ = await cluster.list(CRON_JOBS, namespace)
    except Forbidden:
        return jobs
    made = [{"apiVersion": CRON_JOB[0], "kind": CRON_JOB[1], **cron} for cron in crons]
    own = [job for job in jobs if not any(_is_of(job, "CronJob", cron) for cron in crons)]
    return [*own, *(job for cron in made for job in jobs_in(cron))]


def _is_of(job: Json, kind: str, owner: Json) -> bool:
    owners = job["metadata"].get("ownerReferences") or ()
    return any(
        reference.get("kind") == kind and reference.get("uid") == owner["metadata"]["uid"] for reference in owners
    )


def _draw(judged: "list[Judged]") -> None:
    rows = [[verdict.job, verdict.gpus or "-", verdict.verdict, _first_reason(verdict)] for verdict in judged]
    table("Jobs", ["job", "GPUs", "verdict", "because"], rows, "There are no Jobs.")
    lines = Counter(
        (site.site, line) for verdict in judged for site in verdict.sites if not site.never for line in site.lines
    )
    wanted = [[site, line, count] for (site, line), count in lines.most_common()]
    if wanted:
        table("Lines to write in the sites file", ["under site", "line", "Jobs"], wanted, "")


def _first_reason(judged: "Judged") -> str:
    if any(site.goes for site in judged.sites):
        return ""
    nearest = min(judged.sites, key=lambda site: (site.never, len(site.says)))
    more = len(nearest.says) - 1
    return nearest.says[0] + (f" And {more} more." if more else "")
