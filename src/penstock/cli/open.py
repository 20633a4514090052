"""`penstock open`: prints a link that signs one browser in."""

import click

from penstock.cli.client import Client, talks
from penstock.cli.terminal import print_json


@click.command("open")
@click.option("--browser", is_flag=True, help="Also open the link in this machine's browser.")
@talks
def command(client: Client, browser: bool, as_json: bool) -> None:
    """Print a one-time login link for the browser."""
    made = client.post("/v1/logins")
    link = f"{client.url}{made['path']}"
    if as_json:
        print_json({"link": link, "seconds": made["seconds"]})
    else:
        click.echo(link)
    if browser:
        import webbrowser

        webbrowser.open(link)
