"""`penstock policy export`: a policy file as Terraform, for the cloud's own controls."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.policy.file import PolicyFile


@click.command("export")
@click.argument("file")
@click.option(
    "--terraform", "cloud", type=click.Choice(["aws", "azure", "gcp"]), required=True, help="For which cloud."
)
@click.option("--sites", metavar="FILE", help="Sites file: machine types and regions of its offers there.")
@click.option("--out", metavar="FILE", help="Write to this file, like penstock.tf.json.  [default: standard output]")
def command(file: str, cloud: Any, sites: str | None, out: str | None) -> None:
    """Print a policy file as Terraform for a cloud's own controls.

    A second line of defence: a budget that acts, and the regions and machine types that may be rented there. What the
    cloud cannot hold is said on stderr.
    """
    from penstock.cli.terminal import print_json
    from penstock.config import read_sites
    from penstock.policy.file import read_policy
    from penstock.policy.terraform import export

    known = read_sites(sites) if sites else None
    policy = read_policy(file, known)
    exported = export(
        cloud,
        policy.governance,
        policy.caps,
        currency=_currency(policy, known),
        name=Path(file).name,
        sites=known.sites if known else (),
    )
    for note in exported.notes:
        click.echo(f"Note: {note}", err=True)
    if out is None:
        print_json(exported.config)
    else:
        _write(Path(out), exported.config)


def _currency(policy: "PolicyFile", sites: "SitesFile | None") -> str:
    from penstock.core.errors import BadInput

    currency = sites.currency if sites is not None else policy.currency
    if not currency and policy.caps:
        raise BadInput(f"{policy.name} does not say its currency; write 'currency: EUR' into it, or give --sites FILE.")
    return currency


def _write(path: Path, config: dict[str, Any]) -> None:
    import json

    from penstock.core.errors import BadInput

    try:
        path.write_text(json.dumps(config, indent=2) + "\n")
    except OSError as error:
        raise BadInput(f"Cannot write to {path}: {error.strerror}.") from None
