"""`penstock up`: runs the control plane in the foreground. It prints its address, and ends on Ctrl-C or SIGTERM."""

from pathlib import Path

import click

from penstock.cli.client import home as home_folder
from penstock.cli.terminal import print_json

PORT = 7070


@click.command("up")
@click.option("--sites", default="", metavar="FILE", help="Sites file.  [default: this machine is the only site]")
@click.option("--policy", default="", metavar="FILE", help="Policy file.  [default: as the sites file says]")
@click.option(
    "--home", "folder", metavar="FOLDER", help="State folder: journal, tokens, local sites.  [default: $PENSTOCK_HOME]"
)
@click.option(
    "--journal",
    default="",
    envvar="PENSTOCK_JOURNAL",
    metavar="WHERE",
    help="Journal: a file or postgresql://..., also in $PENSTOCK_JOURNAL.  [default: in the state folder]",
)
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes any free one."
)
@click.option("--tls-cert", default="", metavar="FILE", help="Certificate (PEM, with its chain); read again on change.")
@click.option("--tls-key", default="", metavar="FILE", help="Its key (PEM).")
@click.option("--plain-http", is_flag=True, help="Listen beyond this machine without TLS: a proxy encrypts.")
@click.option(
    "--trust-proxy", default="", metavar="ADDRESSES", help="Believe X-Forwarded-For of these addresses, with commas."
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
    "--anchor",
    "anchors",
    multiple=True,
    metavar="FILE",
    help="Append the journal's head here every 10 minutes, to find a rewritten journal; - for standard error.",
)
@click.option("--accept-raised-caps", is_flag=True, help="Let the file raise caps above those in force.")
@click.option("--accept-clock", is_flag=True, help="The wall clock is right, however far it is ahead of the journal.")
@click.option(
    "--trust-teams",
    is_flag=True,
    help="Local sites: all jobs run as this user, and can read each other's files and Penstock's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print address, token file and link as JSON.")
def command(
    sites: str,
    policy: str,
    folder: str | None,
    journal: str,
    listen: str,
    port: int,
    tls_cert: str,
    tls_key: str,
    plain_http: bool,
    trust_proxy: str,
    rehearse: bool,
    speed: int,
    stand_by: bool,
    anchors: tuple[str, ...],
    accept_raised_caps: bool,
    accept_clock: bool,
    trust_teams: bool,
    as_json: bool,
) -> None:
    """Start the Penstock server in the foreground."""
    import asyncio

    from penstock.options import Options
    from penstock.wiring import event_loop, up

    if speed != 1 and not rehearse:
        raise click.UsageError("--speed is of a rehearsal; add --rehearse.")
    home = Path(folder) if folder else home_folder()
    options = Options(
        home,
        sites=sites,
        policy=policy,
        journal=journal,
        listen=listen,
        port=port,
        rehearse=rehearse,
        speed=speed,
        stand_by=stand_by,
        accept_raised_caps=accept_raised_caps,
        accept_clock=accept_clock,
        anchors=anchors,
        trust_teams=trust_teams,
        tls_cert=tls_cert,
        tls_key=tls_key,
        plain_http=plain_http,
        proxies=trust_proxy,
    )

    def started(address: str, token: str, link: str) -> None:
        if as_json:
            print_json({"address": address, "token_file": token, "link": link})
        else:
            click.echo(f"Penstock is up at {address} (token in {token}). Ctrl-C stops it; jobs that run go on.")
            click.echo(f"Look at it: {link} (works once, for ten minutes; another one: penstock open)")

    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(up(options, started))
