"""`penstock policy explain`: where a job may run under a policy, and which rules stand against each offer."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from penstock.core.model.types import JobSpec
    from penstock.policy.judge import OfferVerdicts


@click.command("explain")
@click.option("--job", required=True, metavar="ID|FILE", help="A job file, or the id of a job in the journal.")
@click.option("--policy", "file", default="policy.yaml", show_default=True, metavar="FILE", help="Policy file.")
@click.option("--sites", required=True, metavar="FILE", help="Sites file: the offers to judge.")
@click.option("--team", default="", metavar="TEAM", help="Whose job it is.  [default: as the job says]")
@click.option(
    "--journal",
    default="",
    envvar="PENSTOCK_JOURNAL",
    metavar="WHERE",
    help="Journal of the job, also in $PENSTOCK_JOURNAL.  [default: in the state folder]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(job: str, file: str, sites: str, team: str, journal: str, as_json: bool) -> None:
    """Explain where a job may run: every offer, and all that stands against it, with file and line."""
    from dataclasses import replace

    from penstock.cli.policy_check import policy_and_sites
    from penstock.cli.terminal import print_json
    from penstock.live.config_facts import policy_of
    from penstock.policy.judge import judged

    _, merged = policy_and_sites(file, sites)
    spec = _spec(job, journal)
    spec = replace(spec, team=team or spec.team)
    found = judged(spec, merged.sites, merged.data, policy_of(merged))
    if as_json:
        print_json({"job": job, "class": spec.job_class, "team": spec.team, "offers": [_record(one) for one in found]})
    else:
        _draw(job, spec, found)


def _spec(job: str, journal: str) -> "JobSpec":
    """A file where there is one of this name, else a job of the journal."""
    from penstock.core.errors import BadInput

    if os.path.exists(job) or job.endswith((".yaml", ".yml", ".json")):
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


def _from_file(path: str) -> "JobSpec":
    from dataclasses import replace

    from penstock.config.document import read_bytes
    from penstock.config.jobs import parse_job

    found = parse_job(read_bytes(path), path)
    return replace(found.spec, team=found.team or found.spec.team, deadline_at=found.deadline_ms)


def _record(found: "OfferVerdicts") -> dict[str, object]:
    against = [{"rule": verdict.rule, "where": verdict.where} for verdict in found.against]
    return {"offer": found.offer, "allowed": found.allowed, "against": against}


def _draw(job: str, spec: "JobSpec", found: "tuple[OfferVerdicts, ...]") -> None:
    from penstock.cli.output import safe
    from penstock.policy.judge import in_words

    click.echo(safe(f"{job}: class {spec.job_class}, team {spec.team}, {spec.gpus} GPU{'' if spec.gpus == 1 else 's'}"))
    for one in found:
        if one.allowed:
            click.echo(safe(f"  {one.offer}: allowed"))
            continue
        first, *others = [in_words(verdict) for verdict in one.against]
        click.echo(safe(f"  {one.offer}: denied: {first}"))
        for other in others:
            click.echo(safe(f"    also: {other}"))
    allowed = sum(one.allowed for one in found)
    click.echo(
        f"{allowed:,} of {len(found):,} offers allowed. Prices, caps and the moment are weighed when it is placed."
    )
