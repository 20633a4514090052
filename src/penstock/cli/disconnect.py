"""`penstock disconnect`: undoes `penstock connect` in a cluster, after `penstock leave` has given its Jobs back."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.core.errors import BadInput
from penstock.formatting import count

if TYPE_CHECKING:
    from penstock.kube.access import Access
    from penstock.kube.connect.removal import OldAccount, Removed

SHOWN = 3  #: of Jobs that are still held


@click.command("disconnect")
@click.argument("kubeconfig", metavar="KUBECONFIG")
@click.option("--context", default="", help="As for kubectl.  [default: the current one]")
@click.option("-n", "--namespace", "own", default="penstock", show_default=True, help="Where its account lives.")
@click.option("--account", default="penstock", show_default=True, help="The service account's name.")
@click.option(
    "--allow-exec", multiple=True, metavar="NAME", help="A login program the kubeconfig may run, like aws; repeatable."
)
@click.option("--anyway", is_flag=True, help="Although Jobs there still wait for Penstock.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    kubeconfig: str, context: str, own: str, account: str, allow_exec: tuple[str, ...], anyway: bool, as_json: bool
) -> None:
    """Undo connect: remove account, rights and admission policies."""
    from penstock.kube.access import Access
    from penstock.kube.connect.removal import OldAccount
    from penstock.kube.errors import KubeError

    given = Access(str(Path(kubeconfig).expanduser()), context, allow_exec=allow_exec)
    try:
        done = asyncio.run(_removed(given, OldAccount(account, own), anyway))
    except KubeError as error:
        raise BadInput(f"The cluster says: {error}") from None
    if as_json:
        from penstock.cli.terminal import print_json

        print_json({"deleted": done.deleted, "kept": done.kept})
        return
    _tell(done, own, account)


async def _removed(given: "Access", account: "OldAccount", anyway: bool) -> "Removed":
    from penstock.kube.access import connect
    from penstock.kube.connect import removal

    cluster = connect(given)
    try:
        held = [] if anyway else await removal.held_jobs(cluster, account)
        if held:
            raise BadInput(_still_held(held))
        return await removal.remove(cluster, account)
    finally:
        await cluster.close()


def _still_held(jobs: list[str]) -> str:
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    wait = "waits" if len(jobs) == 1 else "wait"
    return (
        f"{count(len(jobs), 'Job')} there still {wait} for Penstock ({', '.join(jobs[:SHOWN])}{more}): `penstock leave`"
        " gives them back first. If that Penstock is no more, --anyway goes on; then remove these Jobs' finalizers."
    )


def _tell(done: "Removed", own: str, account: str) -> None:
    for what in done.deleted:
        click.echo(f"deleted {what}")
    for sentence in done.kept:
        click.echo(sentence)
    if not done.deleted and not done.kept:
        click.echo(f"Nothing of account {own}/{account} is there.")
    click.echo("Namespaces stay, with all that is in them. Take the site out of the sites file, too.")
