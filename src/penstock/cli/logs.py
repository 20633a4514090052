"""`penstock logs`: prints a job's log, byte for byte, also across a restart of Penstock."""

import sys

import click

from penstock.cli.client import Client, job_path, talks


@click.command("logs")
@click.argument("job")
@click.option("-f", "--follow", "go_on", is_flag=True, help="Follow until the job has ended.")
@click.option("--attempt", default="", help="Only this attempt.  [default: the last]")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="Only this pod of a gang.  [default: all]")
@talks
def command(client: Client, job: str, go_on: bool, attempt: str, rank: int | None, as_json: bool) -> None:
    """Print a job's output."""
    if as_json:
        _print_json(client, job, attempt, rank)
    elif go_on:
        follow(client, job, attempt, rank)
    else:
        copy(client, job, attempt, rank)


def follow(client: Client, job: str, attempt: str = "", rank: int | None = None) -> None:
    """Prints the log piece by piece, and goes on with the next attempt when one has ended."""
    after = 0
    while True:
        params = {"attempt": attempt, "after": after, "wait": 20, **_of(rank)}
        answer = client.steadily("GET", job_path(job, "/log"), params=params)
        _write(answer.content)
        attempt, after = answer.headers["Penstock-Attempt"], int(answer.headers["Penstock-Next"])
        if answer.content or answer.headers["Penstock-More"] == "true":
            continue
        if then := answer.headers["Penstock-Then"]:
            attempt, after = then, 0
        elif answer.headers["Penstock-Ended"] == "true":
            return


def copy(client: Client, job: str, attempt: str, rank: int | None = None) -> None:
    after = 0
    while True:
        answer = client.send("GET", job_path(job, "/log"), params={"attempt": attempt, "after": after, **_of(rank)})
        if not answer.content:
            return
        _write(answer.content)
        attempt, after = answer.headers["Penstock-Attempt"], int(answer.headers["Penstock-Next"])


def _of(rank: int | None) -> dict[str, int]:
    return {} if rank is None else {"rank": rank}


def _write(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _print_json(client: Client, job: str, attempt: str, rank: int | None) -> None:
    from penstock.cli.terminal import print_json

    answer = client.send("GET", job_path(job, "/log"), params={"attempt": attempt, **_of(rank)})
    headers = answer.headers
    print_json(
        {
            "attempt": headers["Penstock-Attempt"],
            "next": int(headers["Penstock-Next"]),
            "more": headers["Penstock-More"] == "true",
            "text": answer.content.decode("utf-8", "replace"),
        }
    )
