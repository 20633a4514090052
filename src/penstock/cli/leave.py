"""`penstock leave`: restores every home Job, and waits until nothing of ours remains in the clusters."""

import time
from typing import Any, Final

import click

from penstock.cli.client import Client, talks
from penstock.core.errors import BadInput
from penstock.formatting import count

LOOK_SECONDS: Final = 1.0
LOST_SECONDS: Final = 60.0  #: a cluster that does not answer is waited for so long
SHOWN: Final = 3  #: of what is still there


@click.command("leave")
@click.option(
    "--cluster", "clusters", multiple=True, metavar="SITE", help="Only this home cluster; repeatable.  [default: all]"
)
@click.option("--bring-home", is_flag=True, help="First move jobs with checkpoints back to their home cluster.")
@click.option("--detach", is_flag=True, help="Do not wait for running jobs.")
@talks
def command(client: Client, clusters: tuple[str, ...], bring_home: bool, detach: bool, as_json: bool) -> int:
    """Uninstall from clusters: return every Job to Kubernetes and remove all traces."""
    sites = _sites(client, clusters)
    for site in sites:
        client.post(f"/v1/doors/{site}/leave" + ("?bring_home=true" if bring_home else ""))
    places = _places(client, sites) if detach else _wait(client, sites)
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(places)
    else:
        for place in places:
            click.echo(_says(place))
    return 0 if detach or all(place["left"] for place in places) else 1


def _sites(client: Client, wanted: tuple[str, ...]) -> list[str]:
    known = [door["site"] for door in client.get("/v1/doors")["doors"]]
    if not known:
        raise BadInput("There is no front door here: no site has 'driver: kubernetes' and 'front_door: true'.")
    for site in wanted:
        if site not in known:
            raise BadInput(f"'{site}' is not a home cluster; home clusters are {', '.join(known)}.")
    return list(wanted) or known


def _places(client: Client, sites: list[str]) -> list[dict[str, Any]]:
    """The homes that we leave; and if no other is left, all other clusters."""
    doors = client.get("/v1/doors")
    others = doors["clusters"] if all(door["leaving"] for door in doors["doors"]) else []
    return [*(door for door in doors["doors"] if door["site"] in sites), *others]


def _wait(client: Client, sites: list[str]) -> list[dict[str, Any]]:
    """Until each is left, or does not answer for a minute while nothing else remains to be done."""
    shown, lost_since = dict[str, str](), dict[str, float]()
    while True:
        places, now = _places(client, sites), time.monotonic()
        for place in places:
            site = place["site"]
            if not place["left"] and shown.get(site) != _says(place):
                shown[site] = _says(place)
                click.echo(_says(place), err=True)
            if place["unreached"]:
                lost_since.setdefault(site, now)
            else:
                lost_since.pop(site, None)
        if all(place["left"] or now - lost_since.get(place["site"], now) >= LOST_SECONDS for place in places):
            return places
        time.sleep(LOOK_SECONDS)


def _says(place: dict[str, Any]) -> str:
    site = place["site"]
    if place["left"]:
        return (
            f"{site}: no Job, pod, ConfigMap, Lease or rented node of Penstock is left there. Take it out of the sites"
            " file; then `penstock disconnect KUBECONFIG` removes its account, rights and admission policies."
        )
    if place["unreached"]:
        return (
            f"{site}: cannot be left yet, because it does not answer: {place['unreached']}. Penstock goes on as soon as"
            " it answers; if it is gone for good, take it out of the sites file."
        )
    if place.get("jobs"):
        jobs = count(place["jobs"], "Job")
        return f"{site}: {jobs} still to return to Kubernetes; running ones are followed to their end."
    if remains := place["remains"]:
        more = f" and {len(remains) - SHOWN} more" if len(remains) > SHOWN else ""
        return f"{site}: still there: {', '.join(remains[:SHOWN])}{more}."
    return f"{site}: Penstock removes what it created there once no home Job needs it."
