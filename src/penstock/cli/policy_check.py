"""`penstock policy check`: what is wrong with a policy file, and what is probably not meant."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.policy.file import PolicyFile


@click.command("check")
@click.argument("file", default="policy.yaml")
@click.option("--sites", default="", metavar="FILE", help="Also check against this sites file: its sites and offers.")
@click.option("--journal", default="", metavar="WHERE", help="Also check against what a journal says was spent.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(file: str, sites: str, journal: str, as_json: bool) -> None:
    """Check a policy file: errors and warnings, each with its line.

    FILE is the policy file, by default policy.yaml. Exit code 2 if it has errors; warnings alone are no failure.
    """
    from penstock.cli.output import safe
    from penstock.cli.terminal import print_json
    from penstock.live.config_facts import policy_of
    from penstock.policy.check import warnings

    policy, merged = policy_and_sites(file, sites)
    spent, teams = _from_journal(journal) if journal else ({}, [])
    warned = warnings(policy, policy_of(merged), merged if sites else None, spent, teams)
    if as_json:
        print_json({"file": file, "errors": [], "warnings": [warning._asdict() for warning in warned]})
        return
    for warning in warned:
        click.echo(safe(f"Warning: {warning}"))
    count = f"{len(warned)} warning{'' if len(warned) == 1 else 's'}" if warned else "no warnings"
    beside = f", with the sites of {sites}" if sites else "; --sites FILE checks it against your sites, too"
    click.echo(f"{file}: no errors, {count}{beside}.")


def policy_and_sites(file: str, sites: str) -> "tuple[PolicyFile, SitesFile]":
    """The policy file, and the sites with what it says of them; without a sites file there are none."""
    from penstock.config import SitesFile, read_sites
    from penstock.policy.file import governed, read_policy

    known = read_sites(sites) if sites else None
    policy = read_policy(file, known)
    return policy, governed(known or SitesFile("USD", ()), policy)


def _from_journal(journal: str) -> tuple[dict[str, int], list[str]]:
    """What each scope has spent and holds in the month that runs, and the teams that have had jobs."""
    from penstock.journal.cap_check import last_state
    from penstock.journal.open import read

    state = last_state(read(journal), journal)
    now = [name for start, end, name in state.ledger.periods if start <= state.at < end]
    spent = {scope: a.spent for (scope, period), a in state.ledger.accounts.items() if period in now}
    teams = [scope.removeprefix("team:") for scope in spent if scope.startswith("team:")]
    return spent, teams
