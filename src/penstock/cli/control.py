"""`penstock cancel`, `retry`, `move`, `pause` and `resume`: requests about a job, or about Penstock as a whole."""

import secrets
from typing import Any, Final

import click

from penstock.cli.client import Client, Failed, job_path, talks

OF_ONE_JOB: Final = (404, 409, 422)  #: what is answered about one job says nothing about the next


@click.command("cancel")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@talks
def cancel(client: Client, jobs: tuple[str, ...], as_json: bool) -> None:
    """Cancel jobs; running ones are stopped first."""
    failed, said = list[Failed](), list[str]()
    for job in jobs:
        try:
            reply = client.post(job_path(job, "/cancel"))
        except Failed as error:
            if error.status not in OF_ONE_JOB:
                raise
            failed.append(error)
            said.append(error.message if job in error.message else f"{job}: {error.message}")
        else:
            _say(reply, as_json, f"{job}: {reply['says']}")
    if failed:  # a sentence for each, after all were asked for
        raise Failed("\n".join(said), failed[0].exit_code, failed[0].status)


@click.command("retry")
@click.argument("job")
@click.option("--key", default="", help="Idempotency key: the same key submits one job.  [default: a new key]")
@talks
def retry(client: Client, job: str, key: str, as_json: bool) -> None:
    """Submit an ended job again as a new job."""
    reply = client.post(job_path(job, "/retry"), **{"Idempotency-Key": key or secrets.token_hex(16)})
    _say(reply, as_json, reply["job"])


@click.command("move")
@click.argument("job")
@click.argument("offer")
@talks
def move(client: Client, job: str, offer: str, as_json: bool) -> None:
    """Move a running job to another offer, with its checkpoint."""
    reply = client.post(job_path(job, "/move"), {"offer": offer})
    if not reply["so"] and not as_json:
        raise Failed(f"{job}: {reply['says']}")
    _say(reply, as_json, f"{job}: {reply['says']}")


@click.command("pause")
@talks
def pause(client: Client, as_json: bool) -> None:
    """Pause new starts; running jobs continue."""
    reply = client.post("/v1/pause")
    _say(reply, as_json, reply["says"])


@click.command("resume")
@talks
def resume(client: Client, as_json: bool) -> None:
    """Resume new starts after a pause."""
    reply = client.post("/v1/resume")
    _say(reply, as_json, reply["says"])


def _say(reply: Any, as_json: bool, text: str) -> None:
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(reply)
    else:
        click.echo(text)
