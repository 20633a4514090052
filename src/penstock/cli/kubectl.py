"""`kubectl penstock`: Penstock's commands for people who use kubectl. The console script `kubectl-penstock`.

`apply` needs only the cluster. `why` asks Penstock if one is known here, otherwise it reads Events. `plan`, `logs`
and `exec` ask Penstock.
"""

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.apply import command as apply
from penstock.cli.client import Client, Failed, job_path
from penstock.cli.clusters import Json, ask, manifest_from, reaches
from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.kube.client import Cluster

known_as_penstock = click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")


def main() -> int:
    """As `penstock` ends: what a person can cause is one sentence and exit code 2."""
    from penstock.cli.main import main as run

    return run(["kubectl", *sys.argv[1:]])


@click.group("kubectl", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Work with Kubernetes Jobs; also runs as `kubectl penstock`."""


command.add_command(apply)


@command.command("why")
@click.argument("job")
@reaches
@known_as_penstock
def why(job: str, url: str | None, **where: Any) -> None:
    """Explain where a Job runs or why it is queued, one line per decision."""
    from penstock.cli.output import moment, safe

    home_job, events = ask(where, lambda cluster: _job_and_events(cluster, job, where["namespace"]))
    for at, text in _story(home_job, url) or events:
        click.echo(f"{moment(at):>14}  {safe(text)}")


def _story(home_job: Json, url: str | None) -> list[tuple[int, str]]:
    try:
        lines = Client(url).get(job_path(_number(home_job), "/story"))["lines"]
    except (Failed, BadInput):
        return []
    return [(int(line["at"]), str(line["text"])) for line in lines]


async def _job_and_events(cluster: "Cluster", job: str, namespace: str) -> tuple[Json, list[tuple[int, str]]]:
    from penstock.kube.client import EVENTS

    home_job = await _find(cluster, job, namespace)
    about = f"involvedObject.uid={home_job['metadata']['uid']}"
    events, _ = await cluster.list(EVENTS, home_job["metadata"]["namespace"], fields=about)
    messages = sorted((_instant(event), str(event.get("message", ""))) for event in events if _is_ours(event))
    return home_job, messages or [(0, "Penstock has not reported anything about it yet.")]


def _is_ours(event: Json) -> bool:
    return (event.get("source") or {}).get("component") == "penstock"


def _instant(event: Json) -> int:
    from datetime import datetime

    text = event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
    return int(datetime.fromisoformat(str(text)).timestamp() * 1000)


@command.command("plan")
@click.option("-f", "--filename", required=True, metavar="FILE", help="A Kubernetes Job as YAML or JSON.")
@click.option("--team", default="", help="Team whose budget pays.  [default: the Job's label]")
@click.option("--namespace", "-n", default="", help="Namespace of the Job.")
@known_as_penstock
def plan(filename: str, team: str, namespace: str, url: str | None) -> None:
    """Show where a Job would run and what it would cost; starts nothing."""
    from penstock.cli.submit import draw_plan
    from penstock.front import defaulting

    job = manifest_from(filename, templates=True)
    draw_plan(Client(url).post("/v1/plan", defaulting.as_home_job(job, team, namespace)))


@command.command("logs")
@click.argument("job")
@click.option("-f", "--follow", "go_on", is_flag=True, help="Follow until the Job has ended.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this pod.  [default: all]")
@reaches
@known_as_penstock
def logs(job: str, go_on: bool, rank: int | None, url: str | None, **where: Any) -> None:
    """Print a Job's output, wherever it ran."""
    from penstock.cli import logs as printing

    number = _number(ask(where, lambda cluster: _find(cluster, job, where["namespace"])))
    if go_on:
        printing.follow(Client(url), number, rank=rank)
    else:
        printing.copy(Client(url), number, "", rank)


@command.command("exec")
@click.argument("job")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--rank", default=0, type=click.IntRange(0), metavar="N", help="Pod of a gang.  [default: the first]")
@reaches
@known_as_penstock
def exec_(job: str, words: tuple[str, ...], rank: int, url: str | None, **where: Any) -> int:
    """Run a command inside a running Job, wherever it runs."""
    from penstock.cli import exec as running

    number = _number(ask(where, lambda cluster: _find(cluster, job, where["namespace"])))
    return running.run(Client(url), number, words, rank)


async def _find(cluster: "Cluster", job: str, namespace: str) -> Json:
    from penstock.kube.client import JOBS
    from penstock.kube.errors import NotFound

    namespace = namespace or cluster.namespace or "default"
    try:
        return await cluster.get(JOBS, job.removeprefix("job.batch/").removeprefix("job/"), namespace)
    except NotFound:
        raise BadInput(f"There is no Job '{job}' in namespace {namespace}.") from None


def _number(home_job: Json) -> str:
    from penstock.kube import annotations

    number = (home_job["metadata"].get("annotations") or {}).get(annotations.JOB)
    if not number:
        raise BadInput(f"Penstock does not manage the Job {home_job['metadata']['name']} yet; see its Events.")
    return str(number)
