"""`penstock manifests`: prints RBAC and admission policies for a cluster, with exactly the rights Penstock needs."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penstock.kube.manifests import Role

named = click.option("--account", default="penstock", show_default=True, help="The service account's name.")
placed = click.option(
    "-n", "--namespace", "own", default="penstock", show_default=True, help="The service account's namespace."
)


@click.group("manifests")
def command() -> None:
    """Print RBAC and admission policies for a cluster, to apply with kubectl."""


@command.command("rbac")
@click.option("--role", type=click.Choice(["look", "act", "home"]), default="home", show_default=True,
              help="look: read only, for shadow. act: jobs run here. home: users create Jobs here, too.")  # fmt: skip
@click.option("--also", multiple=True, metavar="NAMESPACE", help="Another namespace to run jobs in; repeatable.")
@click.option("--exec", "commands", is_flag=True, help="Also allow `penstock exec` in pods.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME",
              help="A Secret with another cluster's kubeconfig, to read; repeatable.")  # fmt: skip
@named
@placed
def rbac(role: "Role", also: tuple[str, ...], commands: bool, secrets: tuple[str, ...], account: str, own: str) -> None:
    """Print a service account and its RBAC rights."""
    from penstock.kube import manifests

    if commands and role == "look":
        raise click.UsageError("--exec is not for looking; say --role act or home.")
    _print(manifests.rbac(role, account, own, also, commands=commands, secrets=secrets))


@command.command("admission")
@click.option("--mutating", is_flag=True, help="Also complete Jobs that have only the label (MutatingAdmissionPolicy).")
@click.option("--beta", is_flag=True, help="With --mutating: the beta API of Kubernetes 1.34 and 1.35.")
@named
@placed
def admission(mutating: bool, beta: bool, account: str, own: str) -> None:
    """Print policies: home Jobs are complete, only Penstock binds them, governed GPUs are accounted for."""
    from penstock.kube import manifests

    if beta and not mutating:
        raise click.UsageError("--beta says how --mutating is served; give both, or neither.")
    _print([*manifests.admission(account, own), *(manifests.mutation(beta=beta) if mutating else ())])


def _print(objects: list[dict[str, Any]]) -> None:
    import yaml

    click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=120), nl=False)
