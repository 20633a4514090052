"""`penstock apply`: a sites file to a running Penstock."""

import click

from penstock.cli.client import Client, talks
from penstock.cli.policy_apply import applied, text_of


@click.command("apply")
@click.option("-f", "--filename", "file", required=True, metavar="FILE", help="The sites file.")
@click.option("--reason", default="", help="Why; recorded with the change.")
@click.option("--yes", is_flag=True, help="Also if running jobs would not be allowed where they are.")
@talks
def command(client: Client, file: str, reason: str, yes: bool, as_json: bool) -> None:
    """Apply a sites file to the running Penstock: all of it, or nothing."""
    reply = applied(client, "/v1/sites", {"text": text_of(file), "name": file, "reason": reason}, yes)
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(reply)
        return
    click.echo(reply["says"])
    for words in reply["changes"]:
        click.echo(words)
    for words in reply["raised"]:
        click.echo(f"Notice: {words}", err=True)
