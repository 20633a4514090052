"""`penstock connect`: from an administrator's kubeconfig to a site: account, rights, kubeconfig, offers, and what is
missing.
"""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.kube.connect.account import Wanted
    from penstock.kube.connect.gpu_survey import GpuNodes
    from penstock.kube.connect.steps import Connected


@click.command("connect")
@click.argument("kubeconfig", metavar="KUBECONFIG")
@click.option("--look", "role", flag_value="look", help="Read only: enough for `penstock shadow`.")
@click.option("--act", "role", flag_value="act", default=True, help="Jobs run there.  [default]")
@click.option("--home", "role", flag_value="home", help="Jobs run there, and people apply theirs there.")
@click.option("--context", default="", help="As for kubectl.  [default: the current one]")
@click.option("--name", default="", metavar="SITE", help="The site's name.  [default: the context's]")
@click.option("-n", "--namespace", "own", default="penstock", show_default=True, help="Where its account lives.")
@click.option("--account", default="penstock", show_default=True, help="The service account's name.")
@click.option(
    "--also",
    multiple=True,
    metavar="NAMESPACE",
    help="Another namespace to run jobs in, made if it is not there; repeatable.",
)
@click.option("--price", default="", metavar="AMOUNT", help="What a GPU costs there in an hour: its nodes are rented.")
@click.option("--owned", is_flag=True, help="Its GPUs are yours.  [default with --home and --look]")
@click.option("--rent", is_flag=True, help="Also rent nodes there, by Karpenter or Cluster API; --price is of theirs.")
@click.option("--kueue", is_flag=True, help="Also govern the Workloads of its Kueue.")
@click.option("--exec", "commands", is_flag=True, help="Also allow `penstock exec` in pods.")
@click.option(
    "--allow-exec", multiple=True, metavar="NAME", help="A login program the kubeconfig may run, like aws; repeatable."
)
@click.option("--sites", default="", metavar="FILE", help="Add the site to this sites file.  [default: print it]")
@click.option("--print", "only_print", is_flag=True, help="Print what would be applied, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kubeconfig: str, role: Any, own: str, sites: str, only_print: bool, as_json: bool, **how: Any) -> None:
    """Connect a cluster: make Penstock's account there and write the site."""
    from penstock.kube import access
    from penstock.kube.connect import account

    given = access.Access(str(Path(kubeconfig).expanduser()), how["context"], allow_exec=how["allow_exec"])
    also = tuple(dict.fromkeys(how["also"]))
    wanted = account.Wanted(role, how["account"], own, also, how["commands"], how["rent"], how["kueue"])
    _check(wanted, how, sites)
    if only_print:
        _print(account.objects(wanted), as_json)
        return
    if how["rent"] and not how["price"]:
        raise click.UsageError("Say what a GPU of a rented node costs in an hour: --price 2.10.")
    name = how["name"] or re.sub("[^A-Za-z0-9._-]+", "-", access.endpoint(given).context).strip("-") or "cluster"
    owned = how["rent"] and (how["owned"] or role == "home")
    _connect(given, wanted, name, how["price"], owned, sites, as_json)


def _check(wanted: "Wanted", how: dict[str, Any], sites: str) -> None:
    from penstock.config.clusters import A_NAMESPACE

    if how["commands"] and wanted.role == "look":
        raise click.UsageError("--exec is not for looking; say --act or --home.")
    if how["rent"] and wanted.role == "look":
        raise click.UsageError("--rent is not for looking; say --act or --home.")
    if how["price"] and how["owned"] and not how["rent"]:
        raise click.UsageError("--price is of rented GPUs; leave out --owned.")
    if how["price"] and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", how["price"], re.ASCII):
        raise click.UsageError(f"--price {how['price']}: an amount like 2.10.")
    if sites and wanted.role == "act" and not how["price"] and not how["owned"]:
        raise click.UsageError("Say what a GPU costs there in an hour, --price 2.10, or --owned if they are yours.")
    if how["name"] and not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,62}", how["name"]):
        raise click.UsageError(f"--name {how['name']}: letters, digits, '-', '_' and '.'.")
    for name in (wanted.own, wanted.account, *wanted.namespaces):
        if not A_NAMESPACE.fullmatch(name):
            raise click.UsageError(f"'{name}' is no name for Kubernetes: small letters, digits and '-'.")


def _connect(given: Any, wanted: "Wanted", name: str, price: str, owned: bool, sites: str, as_json: bool) -> None:
    from penstock.kube.connect.sites_block import SiteBlock
    from penstock.kube.connect.steps import connect_cluster
    from penstock.kube.errors import KubeError

    folder = Path(sites).expanduser().parent if sites else Path()
    block = SiteBlock(name, wanted.role, "", wanted.own, wanted.namespaces, price, owned=owned)
    try:
        done = asyncio.run(connect_cluster(given, wanted, block, folder / f"penstock-{name}.kubeconfig"))
    except KubeError as error:
        raise BadInput(f"The cluster says: {error}") from None
    written = _merge(Path(sites).expanduser(), done.block, name) if sites and done.block else ""
    missing = list(done.missing)
    if wanted.role == "act" and done.block and not price and not wanted.rent:
        missing.append("These GPUs count as owned: if you rent them, run this again with --price AMOUNT.")
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(_plain(done, wanted, name, written, missing))
    else:
        _tell(done, name, written, missing)


def _merge(file: Path, block: str, name: str) -> str:
    """`added`, or `left` if the file has a site of this name. The file is checked before it is replaced."""
    from penstock.config.document import read_regular
    from penstock.config.sites import parse_sites
    from penstock.data.plain_files import replace_with
    from penstock.kube.connect.sites_block import added

    try:
        text = read_regular(str(file)).decode("utf-8") if file.exists() else ""
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text; save it as UTF-8.") from None
    new = added(text, block, name)
    if new is None:
        return "left"
    parse_sites(new.encode(), str(file))
    try:
        replace_with(file, new)
    except OSError as error:
        raise BadInput(f"{file} cannot be written ({error.strerror}).") from None
    return "added"


def _print(objects: list[dict[str, Any]], as_json: bool) -> None:
    """No namespaces: people pipe this to `kubectl delete`, too, and their Jobs are in them."""
    import yaml

    for space in [item for item in objects if item["kind"] == "Namespace"]:
        name = space["metadata"]["name"]
        click.echo(f"Namespace {name} must be there, and is not printed: kubectl create namespace {name}", err=True)
    objects = [item for item in objects if item["kind"] != "Namespace"]
    if as_json:
        from penstock.cli.terminal import print_json

        print_json({"apiVersion": "v1", "kind": "List", "items": objects})
        return
    click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=120), nl=False)


# --- the report -------------------------------------------------------------------------------------------------------


def _tell(done: "Connected", name: str, written: str, missing: list[str]) -> None:
    survey = done.survey
    click.echo(f"{name}: Kubernetes {survey.version} at {done.server}, answers in {done.path.answer_ms} ms.")
    for kind in survey.gpus:
        click.echo(f"  {_gpus(kind)}")
    helpers = [
        *(["cluster autoscaler"] if survey.autoscaler else []),
        *([f"Karpenter ({', '.join(survey.node_pools)})"] if survey.node_pools else []),
        *([f"Kueue ({', '.join(survey.kueue) or 'no queues'})"] if survey.has_kueue else []),
        *(["ProvisioningRequests (an offer may name their class)"] if survey.provisioning else []),
    ]
    if helpers:
        click.echo(f"  {', '.join(helpers)}")
    for pool in done.rent.pools if done.rent else ():
        click.echo(f"  to rent: {', '.join(pool.instance_types)}, as NodePool {pool.name} does")
    for machines in done.rent.cluster_api.machines if done.rent else ():
        click.echo(f"  to rent: machines like those of MachineDeployment {machines.namespace}/{machines.name}")
    for line in done.changed:
        click.echo(f"  {line}")
    if not done.changed:
        click.echo("  account and rights: as they should be" if done.token_ends else "  nothing was changed there")
    if done.token_ends:
        click.echo(f"{done.kubeconfig} is its kubeconfig; Penstock renews its token before it ends ({_day(done)}).")
    if written == "added":
        click.echo(f"The sites file has the site '{name}' now.")
    elif written == "left":
        click.echo(f"The sites file has a site '{name}' already, which was left as it is.")
    elif not done.block:
        click.echo("No site was written: there is nothing to offer yet.")
    else:
        click.echo(f"\nFor the sites file, under `sites`:\n\n{done.block}")
    if done.manager:
        click.echo(f"\nFor the sites file, under `kueue`:\n\n{done.manager}")
    if missing:
        click.echo("To look at:")
        for line in missing:
            click.echo(f"- {line}")


def _gpus(kind: "GpuNodes") -> str:
    model = f"{kind.model or 'GPUs'}{f' MIG {kind.mig}' if kind.mig else ''}{', spot' if kind.spot else ''}"
    if not kind.nodes:
        return f"{model}: no nodes now, made when they are needed"
    return f"{model}: {kind.nodes} {'node' if kind.nodes == 1 else 'nodes'} of {kind.gpus_per_node}"


def _day(done: "Connected") -> str:
    return f"{datetime.fromtimestamp(done.token_ends, UTC):%Y-%m-%d %H:%M} UTC"


def _plain(done: "Connected", wanted: "Wanted", name: str, written: str, missing: list[str]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "site": name,
        "role": wanted.role,
        "server": done.server,
        "network": asdict(done.path),
        "cluster": asdict(done.survey),
        **({"rent": asdict(done.rent)} if done.rent is not None else {}),
        "changed": list(done.changed),
        "kubeconfig": done.kubeconfig,
        "token_ends": _day(done) if done.token_ends else None,
        "sites_file": written or None,
        "block": done.block,
        **({"kueue": done.manager} if done.manager else {}),
        "missing": missing,
    }
