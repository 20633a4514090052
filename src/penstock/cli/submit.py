"""`penstock submit`, `run` and `plan`: from a job file or a command line to a job. It is checked before it is sent, so
that a typing error needs no server; its keys are sent as JSON.
"""

import os
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from penstock.cli.client import Client, job_path, talks
from penstock.cli.clusters import ask as ask_cluster
from penstock.cli.clusters import is_manifest, manifest_from, reaches
from penstock.cli.output import answer, examples, listed, moment, money, print_json, safe, span, table
from penstock.core.errors import BadInput
from penstock.core.units import MOST_COPIES, MOST_GPUS_ASKED

F = TypeVar("F", bound=Callable[..., Any])
#: How `penstock run` ends: as its job did.
OUTCOMES: Final = {"succeeded": 0, "failed": 1, "refused": 6, "cancelled": 7}


def asks_for(command: F) -> F:
    """The options that say what a job needs; each is a key of the job file."""
    options = [
        click.option("--name", help="A name for the job."),
        click.option("--team", help="Team whose budget pays.  [default: your token's team]"),
        click.option("--project", help="Project whose budget pays, too."),
        click.option("--gpus", type=click.IntRange(1, MOST_GPUS_ASKED), help="Number of GPUs."),
        click.option("--gpu", multiple=True, help="A GPU model the job can use; repeatable."),
        click.option("--image", help="Container image, for Kubernetes sites."),
        click.option(
            "--class", "job_class", help="Job class, such as training or experiment; a policy may name others."
        ),
        click.option("--run-time", help="Expected run time, like 90m."),
        click.option("--checkpoint-every", help="Checkpoint interval, like 15m."),
        click.option("--cap", help="The most the job may cost."),
        click.option("--data", multiple=True, help="A data set the job reads; repeatable."),
        click.option("--env", multiple=True, metavar="NAME=TEXT", help="An environment variable; repeatable."),
        click.option("--count", type=click.IntRange(1, MOST_COPIES), help="Number of copies: a job array."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("submit", epilog=examples("submit train.yaml", "submit train.yaml --team vision"))
@click.argument("file", required=False)
@click.option("-f", "--filename", "other", metavar="FILE", help="The file, as with kubectl.")
@click.option("--key", default="", help="Idempotency key: the same key submits one job.  [default: a new key]")
@click.option("--team", default="", help="Team whose budget pays, instead of the file's.")
@reaches
@click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def submit(
    file: str | None, other: str | None, key: str, team: str, url: str | None, as_json: bool, **where: Any
) -> None:
    """Submit a job from a YAML file, or a Kubernetes Job to its cluster."""
    path = file or other
    if not path or (file and other):
        raise BadInput("Name one file: penstock submit job.yaml")
    if is_manifest(path):
        _submit_home_job(path, team, where, as_json)
        return
    from penstock.config.jobs import check_body, job_body

    body = job_body(path)
    if team:
        body = check_body({**body, "team": team}, "--team")
    reply = _send(Client(url), body, key)
    if as_json:
        print_json(reply)
    else:
        click.echo(reply["job"])
        click.echo(f"Follow it: penstock logs -f {reply['job']}", err=True)


def _submit_home_job(path: str, team: str, where: dict[str, Any], as_json: bool) -> None:
    from penstock.front.applying import Applier

    job = manifest_from(path)
    applied = ask_cluster(where, lambda cluster: Applier(cluster, team, where["namespace"]).apply(job))
    name = applied.manifest["metadata"]["name"]
    print_json(applied.manifest) if as_json else click.echo(name)
    click.echo(applied.note or f"Follow it: kubectl penstock why {name}", err=True)


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False},
    epilog=examples(
        "run --gpus 8 --run-time 6h --checkpoint-every 15m -- python train.py",
        "run --image python:3.12 --gpus 1 --detach -- python -c 'print(1)'",
    ),
)
@asks_for
@click.option("--detach", is_flag=True, help="Do not follow the job; print its id.")
@click.argument("command", nargs=-1, required=True)
@talks
def run(client: Client, command: tuple[str, ...], detach: bool, as_json: bool, **asked: Any) -> int:
    """Run a command as a job, print its output, and exit as it exits."""
    from penstock.cli.logs import follow

    reply = _send(client, job_from_options(command, asked), "")
    job = reply["job"]
    if detach:
        print_json(reply) if as_json else click.echo(job)
        return 0
    said = _why(client, job)
    click.echo(f"{job}: {said}", err=True)
    try:
        follow(client, job)
    except KeyboardInterrupt:
        click.echo(f"\n{job} goes on. Follow it: penstock logs -f {job}  End it: penstock cancel {job}", err=True)
        raise
    ended = client.get(job_path(job))
    if as_json:
        print_json(ended)
    else:
        last = _last_line(client, job)
        click.echo(f"{job} {_how_it_ended(ended['state'], '' if last == said else last)}", err=True)
    return OUTCOMES.get(ended["state"], 1)


@click.command("plan", epilog=examples("plan train.yaml", "plan --gpus 8 --run-time 6h"))
@asks_for
@click.argument("file", required=False)
@listed
@talks
def plan(client: Client, file: str | None, as_json: bool, output: str, **asked: Any) -> None:
    """Show where a job would run and what it would cost; starts nothing."""
    from penstock.config.jobs import job_body

    body = job_body(file) if file else job_from_options(("true",), asked)
    planned = client.post("/v1/plan", body)
    answer(planned, "json" if as_json else output, lambda _: draw_plan(planned))


# --- from what was typed to a job ------------------------------------------------------------------------------------


def job_from_options(command: tuple[str, ...], asked: dict[str, Any]) -> dict[str, Any]:
    """Makes a job of a command line; it runs in the current folder."""
    from penstock.config.jobs import check_body

    env = [text.partition("=") for text in asked.pop("env")]
    if wrong := next((name for name, equals, _ in env if not equals), None):
        raise BadInput(f"--env is NAME=TEXT, like LR=0.1, not '{wrong}'.")
    job: dict[str, Any] = {"command": list(command), "gpus": str(asked.pop("gpus") or 1), "folder": os.getcwd()}
    job["class"] = asked.pop("job_class")
    job |= {key: str(given) if isinstance(given, int) else given for key, given in asked.items()}
    job = {key: list(given) if isinstance(given, tuple) else given for key, given in job.items() if given}
    if env:
        job["env"] = {name: text for name, _, text in env}
    return check_body(job, "The job")


def _send(client: Client, job: dict[str, Any], key: str) -> dict[str, Any]:
    """Submits with an idempotency key, so that it can be repeated if the answer is lost."""
    headers = {"Idempotency-Key": key or secrets.token_hex(16)}
    reply: dict[str, Any] = client.post("/v1/jobs", job, **headers)
    return reply


# --- what is shown ---------------------------------------------------------------------------------------------------


def _how_it_ended(state: str, line: str) -> str:
    """`failed: exit code 7.`; a last line that tells of something else comes after the state."""
    tells = line.lower().startswith(state)
    return f"{line[0].lower()}{line[1:]}" if tells else f"{state}. {line}".rstrip()


def _why(client: Client, job: str) -> str:
    """The latest line of the job's story; for an array, of its first job."""
    from penstock.cli.client import Failed

    try:
        return _last_line(client, job)
    except Failed as failed:
        if failed.status != 404:
            raise
        return "submitted"


def _last_line(client: Client, job: str) -> str:
    lines = client.get(job_path(job, "/story"))["lines"]
    return str(lines[-1]["text"]) if lines else ""


def draw_plan(planned: dict[str, Any]) -> None:
    """The first line is the decision, in the words `penstock why` would use once the job is submitted."""
    currency = planned["currency"]
    learned = "from what such jobs took before" if planned["jobs_ended"] else "a guess until jobs have ended"
    known = "stated" if planned["stated"] else learned
    click.echo(safe(f"If submitted now: {_shared_out(planned['tally'])}{planned['says']}"))
    for effect in planned["effects"]:
        job, then = effect["job"] or "A job of another team", effect["to"]
        then = f"move to {then}" if then else "be queued again"
        click.echo(safe(f"{job} would stop and {then}. {effect['reason']['says']}"))
    click.echo(f"Run time {span(planned['expected_run_ms'])}, {known}.")
    due = planned["deadline_at"] is not None
    if due and planned["choices"] and all(choice["late_ms"] for choice in planned["choices"]):
        click.echo(f"Its deadline, {moment(planned['deadline_at'])}, is not expected to be met anywhere.")
    columns = ["offer", "term", "GPU", "GPUs", "wait", "start", "run", *(["deadline"] if due else []), "cost"]
    columns += ["with delay", "held at first", "preemptions", "caps", "now"]
    rows = [_choice(choice, currency, due) for choice in planned["choices"]]
    table("Offers", columns, rows, "No offer may run it.")
    if planned["excluded"]:
        excluded = [[row["offer"], row["rule"], row["where"]] for row in planned["excluded"]]
        table("Excluded", ["offer", "because", "rule"], excluded, "")


ANSWERS: Final = {
    "start": "start",
    "wait": "wait",
    "burst": "burst",
    "refuse": "are refused",
    "short of money": "wait for money",
    "no room": "wait for room",
    "paused": "wait: Penstock is paused",
    "needs approval": "wait for approval",
}


def _shared_out(tally: list[dict[str, Any]]) -> str:
    """For an array: how many jobs get which answer."""
    jobs = sum(row["jobs"] for row in tally)
    if jobs == 1:
        return ""
    parts = [f"{row['jobs']} {ANSWERS[row['answer']]}" + (row["offer"] and f" on {row['offer']}") for row in tally]
    return f"of {jobs} jobs, {', '.join(parts)}. The first: "


def _choice(choice: dict[str, Any], currency: str, due: bool) -> list[object]:
    now = _denied(choice["denied"]) if choice["denied"] else "fits" if choice["fits_now"] else "full"
    spans = [span(choice[key]) for key in ("wait_ms", "start_ms", "run_ms")]
    costs = [money(choice[key], currency) for key in ("cost", "total", "held")]
    losses = f"{choice['losses_ppm'] / 1e6:.2f}"
    offer = f"{choice['offer']}, joins {choice['node']}" if choice["node"] else choice["offer"]
    ends = [_ends(choice, currency)] if due else []
    about = [offer, choice["term"], choice["gpu_model"], choice["width"], *spans, *ends]
    return [*about, *costs, losses, choice["guarantee"], now]


def _denied(denied: dict[str, Any]) -> str:
    """Which limit it is: the month's money may be there, and the hour's not."""
    scope = denied["numbers"].get("scope", "")
    return f"hourly limit of {scope}" if denied["kind"] == "RateBinds" else f"no money in {scope}"


def _ends(choice: dict[str, Any], currency: str) -> str:
    if not choice["late_ms"]:
        return "met"
    penalty = f", {money(choice['penalty'], currency)}" if choice["penalty"] else ""
    return f"{span(choice['late_ms'])} late{penalty}"
