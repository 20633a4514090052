"""`penstock shadow`: watches a cluster without writing, and reports what Penstock would have done."""

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.clusters import reaches
from penstock.core import units
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.sim.analysis.shadow import DaySummary, Followed, ObservedJob
    from penstock.sim.scenario import Scenario

SAVE_SECONDS: Final = 30.0


@click.command("shadow")
@click.option("--sites", required=True, metavar="FILE", help="Sites file with prices and maps.")
@click.option("--policy", default="", metavar="FILE", help="Policy file.  [default: as the sites file says]")
@click.option("--keep", metavar="FILE", help="Store what was seen in this file, and continue from it.")
@click.option("--home", metavar="SITE", help="Which site this cluster is.  [default: the front door]")
@click.option("--once", is_flag=True, help="Report the Jobs the cluster still lists, and exit.")
@click.option("--cost-of-delay", metavar="AMOUNT", help="What an hour of delay costs, instead of the file's policy.")
@click.option("--every", default="24h", show_default=True, metavar="TIME", help="How often to report.")
@click.option("--for", "lasts", default="", metavar="TIME", help="Exit after this time.  [default: on ^C]")
@reaches
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    sites: str,
    policy: str,
    keep: str | None,
    home: str | None,
    cost_of_delay: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Show what Penstock would have done with a cluster's Jobs; read only."""
    from penstock.cli.scenario_options import under_policy
    from penstock.config import read_sites
    from penstock.sim.analysis.shadow import Followed

    file = under_policy(read_sites(sites), policy)
    if cost_of_delay is not None:
        file = replace(file, policy=replace(file.policy, cost_of_delay=_amount("--cost-of-delay", cost_of_delay)))
    names = [site.id for site in file.sites]
    if home and home not in names:
        raise BadInput(f"{sites} has no site '{home}'; it has {', '.join(names)}.")
    here = home or next((site.id for site in file.sites if site.front_door), names[0])
    followed = Followed(Path(keep) if keep else None)
    asyncio.run(_follow(followed, how, lambda: _report(followed, file, here, as_json)))


async def _follow(followed: "Followed", how: dict[str, Any], report: Any) -> None:
    """Follows the cluster by two watches and one list of nodes, and asks it nothing else."""
    from penstock.kube.access import Access, connect
    from penstock.kube.client import JOBS, NODES, PODS
    from penstock.kube.informer import Informer

    cluster = connect(Access(how["kubeconfig"], how["context"], allow_exec=tuple(how["allow_exec"])))
    jobs = Informer(cluster, JOBS, followed.see_job, namespace=how["namespace"])
    pods = Informer(cluster, PODS, followed.see_pod, namespace=how["namespace"], labels="batch.kubernetes.io/job-name")
    tasks = [asyncio.create_task(jobs.run())]
    try:
        await _refuse_without_rights(cluster, how["namespace"])
        await _in_step(jobs)
        tasks.append(asyncio.create_task(pods.run()))  # after the Jobs: a pod says when its Job began
        await _in_step(pods)
        followed.see_nodes((await cluster.list(NODES))[0])
        if not how["once"]:
            await _watch_until_told(followed, how, report)
        followed.save()
        report()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await cluster.close()


async def _refuse_without_rights(cluster: Any, namespace: str) -> None:
    """Ask first: a watch that is forbidden is tried again, as the right may come."""
    from penstock.kube.client import JOBS, NODES, PODS
    from penstock.kube.errors import KubeError

    for kind, where in ((JOBS, namespace), (PODS, namespace), (NODES, "")):
        try:
            allowed = await cluster.may("list", kind, where)
        except KubeError:
            return  # whoever lists them says what is wrong
        if not allowed:
            everywhere = f"in namespace {where}" if where else "in all namespaces"
            raise BadInput(
                f"This login may not list {kind.plural} {everywhere}; use the kubeconfig that "
                "'penstock connect --look' wrote, or --namespace."
            )


async def _in_step(informer: Any) -> None:
    try:
        async with asyncio.timeout(30):
            await informer.in_step.wait()
    except TimeoutError:
        raise BadInput(f"The cluster's {informer.kind.plural} cannot be listed: {informer.why}") from None


async def _watch_until_told(followed: "Followed", how: dict[str, Any], report: Any) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    ends = loop.time() + _seconds("--for", how["lasts"]) if how["lasts"] else float("inf")
    every = _seconds("--every", how["every"])
    reports = loop.time() + every
    while not stopped.is_set() and loop.time() < ends:
        try:
            async with asyncio.timeout(max(0.0, min(SAVE_SECONDS, reports - loop.time(), ends - loop.time()))):
                await stopped.wait()
        except TimeoutError:
            followed.save()
        if loop.time() >= reports:
            report()
            reports += every


def _seconds(option: str, text: str) -> float:
    from penstock.config.scalars import SCALARS, Interval

    form, reader = SCALARS[Interval]
    millis = reader(text)
    if not isinstance(millis, int):
        raise BadInput(f"{option} '{text}' is not {form}.")
    return millis / 1000


def _amount(option: str, text: str) -> int:
    amount = units.money(text)
    if amount < 0:
        raise BadInput(f"{option} {text}: an amount cannot be negative.")
    return amount


def _report(followed: "Followed", file: "SitesFile", home: str, as_json: bool) -> None:
    from time import time

    from penstock.live.config_facts import policy_of
    from penstock.sim.analysis.shadow import compare, lives

    jobs = lives(followed, int(time() * 1000))
    try:
        scenario = _scenario(jobs, file)
    except BadInput as none:
        days: list[DaySummary] = []
        nothing_yet = str(none)
    else:
        days, nothing_yet = compare(followed, jobs, scenario, policy_of(file), home), ""
    if as_json:
        _print_json(days, len(followed.jobs), file.currency)
    else:
        _draw(days, len(followed.jobs), file.currency, nothing_yet)


def _scenario(jobs: "dict[str, ObservedJob]", file: "SitesFile") -> "Scenario":
    """Makes a scenario as `penstock simulate` does: Jobs without GPUs are left out."""
    from penstock.cli.scenario_options import jobs_of, scenario_at
    from penstock.sim.engine.simulator import known
    from penstock.sim.scenario import prepare
    from penstock.sim.traces.trace import read_jobs

    seen = jobs_of(read_jobs([job.job for job in jobs.values()], "What was seen so far"))
    return scenario_at(file, prepare(known(seen, "e2", 0), "l1"), {})


def _print_json(days: "list[DaySummary]", jobs: int, currency: str) -> None:
    from dataclasses import asdict

    from penstock.cli.terminal import print_json

    rows = [{**asdict(day), "saved_hours": day.saved_hours} for day in days]
    print_json({"currency": currency, "jobs_seen": jobs, "days": rows})


def _draw(days: "list[DaySummary]", jobs: int, currency: str, nothing_yet: str) -> None:
    from penstock.cli.output import money, table

    rows = [
        [
            *(day.day, day.jobs, day.running, day.waiting, f"{day.gpu_hours:,.1f}", f"{day.waited_hours:,.2f} h"),
            *(f"{day.would_wait_hours:,.2f} h", f"{day.saved_hours:,.2f} h", day.would_burst, day.stays_home),
            money(day.would_cost, currency),
        ]
        for day in days
    ]
    columns = [
        "day",
        "Jobs",
        "run",
        "wait",
        "GPU-h",
        "waited",
        "would wait",
        "saved",
        "would burst",
        "stay home",
        "would pay",
    ]
    table("What Penstock would have done", columns, rows, nothing_yet or "No Job was seen yet.")
    unended = sum(day.running + day.waiting for day in days)
    expected = (
        f" Of {unended:,} that have not ended, the rest of the run is expected, by those that have." if unended else ""
    )
    click.echo(f"{jobs:,} Jobs seen.{expected} Nothing was written to the cluster.")
