"""`penstock manifests`: prints RBAC and admission policies for a cluster, with exactly the rights Penstock needs."""

import re
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from penstock.kube.access import Access
    from penstock.kube.manifests import Role

MOST_LETTERS: Final = 1_000  #: of a user's or group's name

named = click.option("--account", default="penstock", show_default=True, help="The service account's name.")
placed = click.option(
    "-n", "--namespace", "own", default="penstock", show_default=True, help="The service account's namespace."
)
as_user = click.option(
    "--as",
    "users",
    multiple=True,
    metavar="USER",
    help="A user that Penstock logs in as, as `kubectl auth whoami` names it; repeatable.",
)
as_group = click.option(
    "--as-group", "groups", multiple=True, metavar="GROUP", help="A group whose members are all Penstock; repeatable."
)


@click.group("manifests")
def command() -> None:
    """Print RBAC and admission policies for a cluster, to apply with kubectl."""


@command.command("rbac")
@click.option(
    "--role",
    type=click.Choice(["look", "act", "home"]),
    default="home",
    show_default=True,
    help="look: read only, for shadow. act: jobs run here. home: users create Jobs here, too.",
)
@click.option("--also", multiple=True, metavar="NAMESPACE", help="Another namespace to run jobs in; repeatable.")
@click.option("--exec", "commands", is_flag=True, help="Also allow `penstock exec` in pods.")
@click.option("--rent", is_flag=True, help="Also allow renting nodes, by Karpenter or Cluster API.")
@click.option("--kueue", is_flag=True, help="Also allow governing the Workloads of Kueue.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="A Secret with another cluster's kubeconfig, to read; repeatable.",
)
@click.option(
    "--policy-config-map", "policy", default="", metavar="NAME", help="The ConfigMap with the policy file, to watch."
)
@as_user
@as_group
@named
@placed
def rbac(
    role: "Role",
    also: tuple[str, ...],
    commands: bool,
    rent: bool,
    kueue: bool,
    secrets: tuple[str, ...],
    policy: str,
    users: tuple[str, ...],
    groups: tuple[str, ...],
    account: str,
    own: str,
) -> None:
    """Print a service account and its RBAC rights."""
    from penstock.kube import manifests

    if commands and role == "look":
        raise click.UsageError("--exec is not for looking; say --role act or home.")
    if rent and role == "look":
        raise click.UsageError("--rent is not for looking; say --role act or home.")
    logins = manifests.Logins(_names(users), _names(groups))
    more: dict[str, Any] = {"commands": commands, "secrets": secrets, "policy": policy, "rent": rent, "logins": logins}
    more["kueue"] = kueue
    _print(manifests.rbac(role, account, own, also, **more))


@command.command("kueue")
@click.option("--check", default="penstock", show_default=True, help="The AdmissionCheck's name.")
def kueue(check: str) -> None:
    """Print the AdmissionCheck that a ClusterQueue names to be governed."""
    from penstock.kube import manifests

    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", check):
        raise click.UsageError(f"--check {check[:60]!r}: small letters, digits, '-' and '.'.")
    _print([manifests.admission_check(check)])


@command.command("watchman")
@click.option("--image", required=True, metavar="IMAGE", help="The image of Penstock, in your registry.")
@click.option("-n", "--namespace", "own", default="penstock", show_default=True, help="Where it runs.")
def watchman(image: str, own: str) -> None:
    """Print what ends rented machines while Penstock may be dead: account, rights and a small pod."""
    from penstock.kube import manifests

    _print(manifests.watchman(image, own))


@command.command("admission")
@click.option("--mutating", is_flag=True, help="Also complete Jobs that have only the label (MutatingAdmissionPolicy).")
@click.option("--beta", is_flag=True, help="With --mutating: the beta API of Kubernetes 1.34 and 1.35.")
@as_user
@as_group
@click.option("--sites", metavar="FILE", help="A sites file: asks each of its clusters who Penstock is there.")
@click.option("--site", "only", multiple=True, metavar="NAME", help="With --sites: ask this site only; repeatable.")
@named
@placed
def admission(
    mutating: bool,
    beta: bool,
    users: tuple[str, ...],
    groups: tuple[str, ...],
    sites: str | None,
    only: tuple[str, ...],
    account: str,
    own: str,
) -> None:
    """Print policies: home Jobs are complete, only Penstock binds them, governed GPUs are accounted for."""
    from penstock.kube import manifests

    if only and not sites:
        raise click.UsageError("--site names a site of a sites file; give --sites, too.")
    of_sites = _users_at(sites, only) if sites else ()
    logins = manifests.Logins(_names((*users, *of_sites)), _names(groups))
    if beta and not mutating:
        raise click.UsageError("--beta says how --mutating is served; give both, or neither.")
    _print([*manifests.admission(account, own, logins), *(manifests.mutation(beta=beta) if mutating else ())])


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not name.strip() or len(name) > MOST_LETTERS:
            raise click.UsageError(f"{name[:40]!r} is not the name of a user or group; 'kubectl auth whoami' shows it.")
    return tuple(dict.fromkeys(names))


def _users_at(path: str, only: tuple[str, ...]) -> tuple[str, ...]:
    """The users that Penstock is at the clusters of a sites file, by these clusters' own words. A site that uses the
    account of Penstock's pod is not asked from here: that is the service account."""
    from penstock.config.sites import read_sites
    from penstock.core.errors import BadInput

    clusters = dict(read_sites(path).kubernetes)
    if unknown := [name for name in only if name not in clusters]:
        raise BadInput(f"{path} has no cluster '{unknown[0]}'; it has {', '.join(clusters) or 'none'}.")
    asked = {name: site.access for name, site in clusters.items() if not only or name in only}
    return tuple(_whoami(name, access) for name, access in asked.items() if not access.in_cluster)


def _whoami(site: str, access: "Access") -> str:
    import asyncio

    from penstock.core.errors import BadInput
    from penstock.kube.access import connect
    from penstock.kube.client import SELF_REVIEWS
    from penstock.kube.errors import KubeError
    from penstock.kube.references import part

    async def asked() -> str:
        cluster = connect(access)
        try:
            review = await cluster.create(SELF_REVIEWS, {"metadata": {}})
        finally:
            await cluster.close()
        return str(part(part(review, "status"), "userInfo").get("username") or "")

    try:
        return asyncio.run(asked())
    except (KubeError, BadInput) as error:
        hint = "give its login with --as, and the others with --site"
        raise BadInput(f"Site {site} does not say who Penstock is there ({error}); {hint}.") from None


def _print(objects: list[dict[str, Any]]) -> None:
    import yaml

    click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=120), nl=False)
