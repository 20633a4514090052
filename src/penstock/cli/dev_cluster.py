"""`penstock dev-cluster`: Kubernetes clusters on this machine, to try Penstock on (docs/dev-cluster.md)."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import print_json
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.devcluster import ClusterGroup, ClusterPlan

at_home = click.option("--home", metavar="DIR", help="Folder of the clusters.  [default: beside Penstock's own files]")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("dev-cluster")
def command() -> None:
    """Start Kubernetes clusters on this machine, for tests."""


@command.command("build")
@click.option("--kueue", is_flag=True, help="Also install Kueue.")
@click.option("--jobset", is_flag=True, help="Also install JobSet.")
@click.option("--karpenter", is_flag=True, help="Also install Karpenter.")
@click.option("--cluster-api", is_flag=True, help="Also install Cluster API.")
@click.option("--dns", is_flag=True, help="Also install CoreDNS.")
@click.option("--autoscaler", is_flag=True, help="Also install cluster-autoscaler.")
@click.option("--s3-only", is_flag=True, help="Only build the S3 server for checkpoints, in about two minutes.")
@as_json
def build(
    kueue: bool,
    jobset: bool,
    karpenter: bool,
    cluster_api: bool,
    dns: bool,
    autoscaler: bool,
    s3_only: bool,
    as_json: bool,
) -> None:
    """Build the Kubernetes programs and an S3 server once; as root, also prepare real pods."""
    from penstock.devcluster import kubelet_nodes, programs, s3_server

    if s3_only:
        programs.build_s3(programs.say_to_stderr)
        print_json({"s3": str(s3_server.program_path())}) if as_json else click.echo(
            f"The S3 server is {s3_server.program_path()}"
        )
        return
    also = {"kueue": kueue, "jobset": jobset, "karpenter": karpenter, "cluster_api": cluster_api, "dns": dns}
    also["autoscaler"] = autoscaler
    where = programs.build(programs.say_to_stderr, **also)
    kubelet_nodes.prepare(programs.say_to_stderr)
    print_json({"programs": str(where)}) if as_json else click.echo(f"The Kubernetes programs are in {where}")


@command.command("up")
@click.option("--real-pods", is_flag=True, help="Run real kubelets and containers in lab and east; needs root.")
@at_home
@as_json
def up(real_pods: bool, home: str | None, as_json: bool) -> None:
    """Start the clusters lab, east and west in the background."""
    from penstock.devcluster import ClusterGroup

    group = ClusterGroup(_folder(home), _plans(real_pods))
    if (other := group.what_runs()) and other != group.plans:
        raise BadInput(f"Clusters of another kind run there already; first: penstock dev-cluster down{_again(home)}")
    with group:
        group.keep()
    if as_json:
        print_json(_said_of(group))
        return
    click.echo(
        f"Clusters {', '.join(plan.name for plan in group.plans)} run. Try next:\n"
        f"  export KUBECONFIG={group.kubeconfig}\n"
        f"  {_kubectl()} --context lab get nodes\n"
        f"  penstock dev-cluster status{_again(home)}\n"
        f"  penstock dev-cluster down{_again(home)}"
    )


@command.command("status")
@at_home
@as_json
def status(home: str | None, as_json: bool) -> int:
    """Show the clusters; exit code 1 if one is not healthy."""
    from penstock.cli.output import table
    from penstock.devcluster import ClusterGroup

    group = ClusterGroup.at(_folder(home))
    state = _said_of(group)
    if as_json:
        print_json(state)
    else:
        rows = [
            [cluster["name"], cluster["url"], "runs" if cluster["runs"] else "broken"] for cluster in state["clusters"]
        ]
        table(f"kubeconfig: {group.kubeconfig}", ["cluster", "address", "now"], rows, "No clusters.")
    return 0 if state["runs"] else 1


@command.command("down")
@at_home
@as_json
def down(home: str | None, as_json: bool) -> None:
    """Stop the clusters and delete all they hold."""
    from penstock.devcluster.testbed import end_abandoned, stop

    ended = int(stop(_folder(home))) + len(end_abandoned())
    print_json({"ended": ended}) if as_json else click.echo("Stopped." if ended else "There was nothing to stop.")


def _folder(home: str | None) -> Path:
    from penstock.cli.client import home as penstock_home

    return Path(home) if home else penstock_home() / "dev-cluster"


def _plans(real: bool) -> "list[ClusterPlan]":
    from penstock.devcluster import ClusterPlan, NodePlan

    a100, h100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
    return [
        ClusterPlan("lab", (NodePlan(1 if real else 2, 4 if real else 8, a100),), real=real),
        ClusterPlan("east", (NodePlan(2, 4 if real else 8, a100),), real=real),
        ClusterPlan("west", (NodePlan(4, 8, h100),)),
    ]


def _said_of(group: "ClusterGroup") -> dict[str, Any]:
    clusters = [
        {
            "name": cluster.name,
            "url": cluster.url,
            "real": cluster.plan.real,
            "runs": all(part.pid for part in cluster.processes()),
        }
        for cluster in group.clusters()
    ]
    runs = all(part.pid for part in group.processes())
    return {"kubeconfig": str(group.kubeconfig), "runs": runs, "clusters": clusters}


def _kubectl() -> str:
    """The kubectl on PATH, or ours."""
    from penstock.devcluster.programs import program

    return "kubectl" if shutil.which("kubectl") else str(program("kubectl"))


def _again(home: str | None) -> str:
    return f" --home {home}" if home else ""
