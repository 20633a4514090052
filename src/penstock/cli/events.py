"""`penstock events`: recent events, and new ones as they happen."""

import json
from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.client import UNANSWERED, Client, Failed, talks
from penstock.cli.output import moment, safe


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Follow new events.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 200), help="Number of past events.")
@click.option("--job", default="", help="Only events of this job.")
@talks
def command(client: Client, follow: bool, limit: int, job: str, as_json: bool) -> None:
    """Show events, oldest first; -f follows."""
    past = client.get("/v1/events", limit=limit)["events"]
    last = past[0]["id"] if past else ""
    for event in reversed(past):
        _show(event, job, as_json)
    for event in _coming(client, last) if follow else ():
        _show(event, job, as_json)


def _show(event: dict[str, Any], job: str, as_json: bool) -> None:
    if job in ("", event["job"]):
        line = f"{moment(event['at']):>14}  {event['job'] or '-':<24}  {event['kind']:<20} {event['says']}"
        click.echo(json.dumps(event) if as_json else safe(line.rstrip()))


def _coming(client: Client, last: str) -> Iterator[dict[str, Any]]:
    """Yields server-sent events; after a lost connection it continues behind the last event seen."""
    while True:
        try:
            for line in client.lines("/v1/events/stream", {"Last-Event-ID": last} if last else {}):
                if line.startswith("data:"):
                    event = json.loads(line.removeprefix("data:"))
                    last = event["id"]
                    yield event
        except Failed as failed:
            if failed.exit_code != UNANSWERED:
                raise
        client.steadily("GET", "/healthz")  # waits while it is started again, and gives up if it is not
