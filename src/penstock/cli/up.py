"""`penstock up`: runs the control plane in the foreground. It prints its address, and ends on Ctrl-C or SIGTERM."""

from pathlib import Path

import click

from penstock.cli.client import home as home_folder
from penstock.cli.terminal import print_json

PORT = 7070


@click.command("up")
@click.option("--sites", default="", metavar="FILE", help="Sites file.  [default: this machine is the only site]")
@click.option(
    "--home", "folder", metavar="FOLDER", help="State folder: journal, tokens, local sites.  [default: $PENSTOCK_HOME]"
)
@click.option(
    "--journal", default="", metavar="WHERE", help="Journal: a file or postgresql://...  [default: in the state folder]"
)
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes any free one."
)
@click.option("--rehearse", is_flag=True, help="Simulate all sites; nothing real runs or costs money.")
@click.option(
    "--speed",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="With --rehearse: how many times faster time passes.",
)
@click.option("--stand-by", is_flag=True, help="Wait while another process leads, and take over when it is gone.")
@click.option(
    "--trust-teams",
    is_flag=True,
    help="Local sites: all jobs run as this user, and can read each other's files and Penstock's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print address, token file and link as JSON.")
def command(
    sites: str,
    folder: str | None,
    journal: str,
    listen: str,
    port: int,
    rehearse: bool,
    speed: int,
    stand_by: bool,
    trust_teams: bool,
    as_json: bool,
) -> None:
    """Start the Penstock server in the foreground."""
    import asyncio

    from penstock.wiring import Options, event_loop, up

    if speed != 1 and not rehearse:
        raise click.UsageError("--speed is of a rehearsal; add --rehearse.")
    home = Path(folder) if folder else home_folder()
    options = Options(home, sites, journal, listen, port, rehearse, speed, stand_by, trust_teams)

    def started(address: str, token: str, link: str) -> None:
        if as_json:
            print_json({"address": address, "token_file": token, "link": link})
        else:
            click.echo(f"Penstock is up at {address} (token in {token}). Stop it with Ctrl-C; what runs goes on.")
            click.echo(f"Look at it: {link} (works once, for ten minutes; another one: penstock open)")

    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(up(options, started))
