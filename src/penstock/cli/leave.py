"""`penstock leave`: give every Job back, and wait until nothing of ours is left in the clusters."""

import time
from typing import Any, Final

import click

from penstock.cli.client import Client, talks
from penstock.core.errors import BadInput

LOOK_SECONDS: Final = 1.0


@click.command("leave")
@click.option("--cluster", "clusters", multiple=True, metavar="SITE", help="This home cluster; all if left out.")
@click.option("--detach", is_flag=True, help="Do not wait for what still runs.")
@talks
def command(client: Client, clusters: tuple[str, ...], detach: bool, as_json: bool) -> None:
    """Give every Kubernetes Job back, and leave no mark on the clusters."""
    sites = _sites(client, clusters)
    for site in sites:
        client.post(f"/v1/doors/{site}/leave")
    found = _doors(client, sites) if detach else _wait(client, sites)
    if as_json:
        from penstock.cli.show import print_json

        print_json(found)
        return
    for door in found:
        click.echo(_says(door))


def _sites(client: Client, wanted: tuple[str, ...]) -> list[str]:
    known = [door["site"] for door in client.get("/v1/doors")["doors"]]
    if not known:
        raise BadInput("There is no front door here: no site has 'driver: kubernetes' and 'front_door: true'.")
    for site in wanted:
        if site not in known:
            raise BadInput(f"'{site}' is no home cluster; there are {', '.join(known)}.")
    return list(wanted) or known


def _doors(client: Client, sites: list[str]) -> list[dict[str, Any]]:
    return [door for door in client.get("/v1/doors")["doors"] if door["site"] in sites]


def _wait(client: Client, sites: list[str]) -> list[dict[str, Any]]:
    told: dict[str, int] = {}
    while True:
        found = _doors(client, sites)
        for door in found:
            if not door["left"] and told.get(door["site"]) != door["jobs"]:
                told[door["site"]] = door["jobs"]
                click.echo(_says(door), err=True)
        if all(door["left"] for door in found):
            return found
        time.sleep(LOOK_SECONDS)


def _says(door: dict[str, Any]) -> str:
    if door["left"]:
        return f"{door['site']}: nothing of Penstock is left there. Take it out of the sites file."
    return f"{door['site']}: {door['jobs']} Jobs are still to be given back; what runs is shown to its end."
