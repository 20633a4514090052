"""`penstock portability`: which Jobs of a cluster could burst today, which need a line in the maps, and which never
can.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.clusters import Json, ask, documents, reaches
from penstock.cli.output import table
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.kube.maps import Maps


@dataclass(slots=True)
class There:
    """One Job at one other site."""

    site: str
    goes: bool
    never: bool
    says: list[str]
    lines: list[str]


@dataclass(slots=True)
class Judged:
    job: str
    gpus: int
    sites: list[There]

    @property
    def verdict(self) -> str:
        if any(site.goes for site in self.sites):
            return "could burst to " + ", ".join(site.site for site in self.sites if site.goes)
        return "never" if all(site.never for site in self.sites) else "needs a map"


@click.command("portability")
@click.option("--sites", required=True, metavar="FILE", help="Sites file with the maps.")
@click.option("-f", "--filename", metavar="FILE", help="Read Jobs from a file instead of a cluster.")
@click.option("--home", metavar="SITE", help="Home site of the Jobs.  [default: the front door]")
@reaches
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(sites: str, filename: str | None, home: str | None, as_json: bool, **where: Any) -> None:
    """Show which Jobs of a cluster could burst, and what blocks the others."""
    from penstock.config import read_sites

    others = _others(read_sites(sites), home, sites)
    jobs = _of_file(filename) if filename else ask(where, lambda cluster: _of_cluster(cluster, where["namespace"]))
    judged = [_judge(job, others) for job in jobs]
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


def _others(file: "SitesFile", home: str | None, path: str) -> "Sequence[Maps]":
    annotations = [site.id for site in file.sites]
    if home and home not in annotations:
        raise BadInput(f"{path} has no site '{home}'; it has {', '.join(annotations)}.")
    homes = [home] if home else [site.id for site in file.sites if site.front_door][:1]
    others = [maps for maps in file.maps if maps.site not in homes]
    if not others:
        raise BadInput(f"{path} has no other site with 'driver: kubernetes', so no Job can burst.")
    return others


def _of_file(path: str) -> list[Json]:
    found = [document for document in documents(path) if document.get("kind") == "Job"]
    if not found:
        raise BadInput(f"{path} has no Job of batch/v1.")
    return found


async def _of_cluster(cluster: Any, namespace: str) -> list[Json]:
    from penstock.kube import annotations
    from penstock.kube.client import JOBS

    found, _ = await cluster.list(JOBS, namespace)
    return [job for job in found if annotations.EXECUTION not in (job["metadata"].get("labels") or {})]


def _judge(job: Json, others: "Iterable[Maps]") -> Judged:
    from penstock.front.job_spec import Unfit, gpus_of
    from penstock.kube.references import part

    metadata = part(job, "metadata")
    try:
        gpus = gpus_of(job)[0]
    except Unfit:
        gpus = 0
    name = f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or metadata.get('generateName') or '?'}"
    return Judged(name, gpus, [_there(job, maps) for maps in others])


def _there(job: Json, maps: "Maps") -> There:
    from penstock.kube.portability import STAYS, may_go, verdicts

    judged = verdicts(job, maps)
    stays = [verdict for verdict in judged if verdict.outcome in STAYS]
    never = any(verdict.outcome == "never travels" for verdict in judged)
    return There(
        maps.site, may_go(judged), never, [stay.says for stay in stays], [stay.line for stay in stays if stay.line]
    )


def _draw(judged: list[Judged]) -> None:
    rows = [[verdict.job, verdict.gpus or "-", verdict.verdict, _first_reason(verdict)] for verdict in judged]
    table("Jobs", ["job", "GPUs", "verdict", "because"], rows, "There are no Jobs.")
    lines = Counter(
        (there.site, line) for verdict in judged for there in verdict.sites if not there.never for line in there.lines
    )
    wanted = [[site, line, count] for (site, line), count in lines.most_common()]
    if wanted:
        table("Lines to write in the sites file", ["under site", "line", "Jobs"], wanted, "")


def _first_reason(judged: Judged) -> str:
    if any(there.goes for there in judged.sites):
        return ""
    nearest = min(judged.sites, key=lambda there: (there.never, len(there.says)))
    more = len(nearest.says) - 1
    return nearest.says[0] + (f" And {more} more." if more else "")
