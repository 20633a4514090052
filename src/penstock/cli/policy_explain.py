"""`penstock policy explain`: where a job may run under a policy, and which rules stand against each offer.

With a sites file it judges by the files; without one it asks a running Penstock, by the policy in force there.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import FORMS, answer, safe, table

if TYPE_CHECKING:
    from penstock.core.model.types import JobSpec


@click.command("explain")
@click.option("--job", required=True, metavar="ID|FILE", help="The id of a job; with --sites also a job file.")
@click.option("--policy", "file", default="", metavar="FILE", help="Policy file, with --sites.  [default: policy.yaml]")
@click.option(
    "--sites", default="", metavar="FILE", help="Sites file: the offers to judge, instead of a running Penstock's."
)
@click.option("--team", default="", metavar="TEAM", help="Whose job it is, with --sites.  [default: as the job says]")
@click.option(
    "--journal",
    default="",
    envvar="PENSTOCK_JOURNAL",
    metavar="WHERE",
    help="Journal of the job, with --sites, also in $PENSTOCK_JOURNAL.  [default: in the state folder]",
)
@click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-o", "--output", type=click.Choice(("text", *FORMS)), default="text", help="Output format.")
def explain(
    job: str, file: str, sites: str, team: str, journal: str, url: str | None, as_json: bool, output: str
) -> None:
    """Explain where a job may run: every offer, and all that stands against it, with file and line.

    A job that a running Penstock knows is judged by the policy in force there. With --sites the files alone are asked.
    """
    verdicts = _by_files(job, file, sites, team, journal, url) if sites else _by_api(job, file, team, url)
    answer(verdicts, "json" if as_json else output, lambda _: _text(verdicts) if output == "text" else _table(verdicts))


def _by_api(job: str, file: str, team: str, url: str | None) -> Any:
    from penstock.cli.client import Client, job_path
    from penstock.core.errors import BadInput

    if _is_file(job) or file or team:
        option = f"The job file {job}" if _is_file(job) else "--policy" if file else "--team"
        raise BadInput(
            f"{option} needs --sites FILE, the offers to judge; a running Penstock is asked about a job's id."
        )
    return Client(url).get(job_path(job, "/verdicts"))


def _by_files(job: str, file: str, sites: str, team: str, journal: str, url: str | None) -> dict[str, Any]:
    from dataclasses import replace

    from penstock.cli.policy_check import policy_and_sites
    from penstock.core.errors import BadInput
    from penstock.live.config_facts import policy_of
    from penstock.policy.judge import judged, verdicts_record

    if url:
        raise BadInput("--url asks a running Penstock, and --sites asks the files; leave one of them out.")
    _, merged = policy_and_sites(file or "policy.yaml", sites)
    spec = _spec(job, journal)
    spec = replace(spec, team=team or spec.team)
    return verdicts_record(job, spec, judged(spec, merged.sites, merged.data, policy_of(merged)))


def _spec(job: str, journal: str) -> "JobSpec":
    """A file where there is one of this name, else a job of the journal."""
    from penstock.core.errors import BadInput

    if _is_file(job):
        return _from_file(job)
    from penstock.cli.client import home
    from penstock.journal.open import open_reader

    where = journal or str(home() / "journal.db")
    if "://" not in where and not Path(where).exists():
        raise BadInput(f"'{job}' is no file, and there is no journal {where} that could know a job of this id.")
    reader = open_reader(where)
    try:
        spec = reader.spec(job)
    finally:
        reader.close()
    if spec is None:
        raise BadInput(f"'{job}' is no file, and {where} knows no job of this id.")
    return spec


def _is_file(job: str) -> bool:
    return os.path.exists(job) or job.endswith((".yaml", ".yml", ".json"))


def _from_file(path: str) -> "JobSpec":
    from dataclasses import replace

    from penstock.config.document import read_bytes
    from penstock.config.jobs import parse_job

    job = parse_job(read_bytes(path), path)
    return replace(job.spec, team=job.team or job.spec.team, deadline_at=job.deadline_ms)


def _text(judged: dict[str, Any]) -> None:
    gpus = judged["gpus"]
    click.echo(
        safe(f"{judged['job']}: class {judged['class']}, team {judged['team']}, {gpus} GPU{'' if gpus == 1 else 's'}")
    )
    for offer in judged["offers"]:
        if offer["allowed"]:
            click.echo(safe(f"  {offer['offer']}: allowed"))
            continue
        first, *others = [f"{verdict['rule']} ({verdict['where']})" for verdict in offer["against"]]
        click.echo(safe(f"  {offer['offer']}: denied: {first}"))
        for other in others:
            click.echo(safe(f"    also: {other}"))
    allowed = sum(offer["allowed"] for offer in judged["offers"])
    click.echo(
        f"{allowed:,} of {len(judged['offers']):,} offers allowed. Prices, caps and the moment are weighed when it is "
        "placed."
    )


def _table(judged: dict[str, Any]) -> None:
    """A line for each rule against an offer."""
    rows: list[list[str]] = []
    for offer in judged["offers"]:
        verdicts = [(verdict["rule"], verdict["where"]) for verdict in offer["against"]] or [("", "")]
        allowed = "yes" if offer["allowed"] else "no"
        rows += [[offer["offer"] if k == 0 else "", allowed if k == 0 else "", *row] for k, row in enumerate(verdicts)]
    table(
        f"Where {judged['job']} may run",
        ["offer", "allowed", "rule against it", "file and line"],
        rows,
        "No offers.",
    )
