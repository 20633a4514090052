"""`penstock jobs` and `penstock job`: what was submitted, where it is, and what it costs."""

from typing import Any

import click

from penstock.cli.client import Client, find_job, job_path, talks
from penstock.cli.output import answer, examples, listed, moment, money, safe, span, table
from penstock.journal.states import ACTIVE, JOB_STATES, OLD, from_old


@click.command("jobs", epilog=examples("jobs --team vision --state queued -o wide", "jobs --text llama --json"))
@click.option("--team", multiple=True, help="Only jobs of this team; repeatable.")
@click.option("--state", multiple=True, type=click.Choice(JOB_STATES), help="Only jobs in this state; repeatable.")
@click.option(
    "--phase", multiple=True, type=click.Choice((*OLD, *JOB_STATES)), hidden=True
)  # what it was called before
@click.option("--text", default="", help="Only jobs with this text in id, name, user or team.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 200), help="Number of jobs on a page.")
@click.option("--after", type=int, help="The next page: the number printed below the last one.")
@listed
@talks
def jobs(client: Client, as_json: bool, output: str, **asked: Any) -> None:
    """List jobs, newest first."""
    page = client.get("/v1/jobs", **_with_state(asked))
    currency = "" if as_json or output in ("json", "yaml") else client.get("/v1/status")["currency"]

    def draw(wide: bool) -> None:
        columns = ["job", "team", "GPUs", "state", "where", "submitted", "cost"]
        more = ["name", "class", "attempts", "kept", "why"]
        rows = [_row(job, currency) + (_more(job) if wide else []) for job in page["jobs"]]
        table("Jobs", columns + (more if wide else []), rows, "No jobs.")
        for wait in _shared(page["jobs"]):
            click.echo(wait)
        if page["next"] is not None:
            click.echo(f"More: --after {page['next']}", err=True)

    answer(page, "json" if as_json else output, draw)


def _shared(shown: list[dict[str, Any]]) -> list[str]:
    """What several of the queued jobs of this page wait for."""
    from penstock.explain.shared_waits import shared

    queued = [job for job in shown if job["state"] == "queued" and job["because"]]
    waits = [(job["because"]["kind"], job["because"]["numbers"], job["gpus"]) for job in queued]
    return [safe(wait.says) for wait in shared(waits, moment)]


def _with_state(asked: dict[str, Any]) -> dict[str, Any]:
    """`--phase` and its words still work, for scripts."""
    if old := asked.pop("phase"):
        states = from_old(old)
        click.echo(f"--phase is now --state; use: {' '.join(f'--state {state}' for state in states)}", err=True)
        asked["state"] = (*asked["state"], *states)
    return asked


def _state(job: dict[str, Any]) -> str:
    return f"{job['state']} (preempted)" if job["preempted"] else str(job["state"])


def _row(job: dict[str, Any], currency: str) -> list[object]:
    where = job["offer"] if job["state"] in ACTIVE else ""
    return [
        job["id"], job["team"], job["gpus"], _state(job), where, moment(job["submitted_at"]),
        money(job["spent"], currency),
    ]  # fmt: skip


def _more(job: dict[str, Any]) -> list[object]:
    because = job["because"]["says"] if job["because"] else ""
    return [job["name"], job["class"], job["attempts"], span(job["kept_ms"]), because]


@click.command("job")
@click.argument("job_id", metavar="JOB")
@listed
@talks
def job(client: Client, job_id: str, as_json: bool, output: str) -> None:
    """Show one job with its attempts."""
    detail = client.get(job_path(find_job(client, job_id)))
    currency = "" if as_json or output in ("json", "yaml") else client.get("/v1/status")["currency"]

    def draw(wide: bool) -> None:
        for name, text in _facts(detail, currency):
            click.echo(f"{name:<11}{safe(text)}")
        columns = ["attempt", "offer", "GPUs", "scheduled", "started", "ended", "state", "kept", "cost"]
        rows = [_attempt(attempt, currency) + ([_why(attempt)] if wide else []) for attempt in detail["tries"]]
        if rows:
            table("Attempts", columns + (["why"] if wide else []), rows, "")

    answer(detail, "json" if as_json else output, draw)


def _facts(job: dict[str, Any], currency: str) -> list[tuple[str, str]]:
    facts = [
        ("job", job["id"] + (f" ({job['name']})" if job["name"] else "")),
        ("team", job["team"]),
        ("state", _state(job)),
        ("where", job["offer"]),
        ("GPUs", str(job["gpus"])),
        ("submitted", moment(job["submitted_at"])),
        ("deadline", _deadline(job)),
        ("ended", moment(job["ended_at"])),
        ("cost", f"{money(job['spent'], currency)} spent, {money(job['held'], currency)} held"),
        ("kept", f"{span(job['kept_ms'])} of work"),
        ("runs", " ".join(job["command"])),
        ("now", job["waits"]),
        ("why", job["ended_because"] or _why(job)),
    ]
    return [(name, text) for name, text in facts if text not in ("", "-")]


def _deadline(job: dict[str, Any]) -> str:
    """With how late it was, or is by now."""
    due, ended = job["deadline_at"], job["ended_at"]
    if due is None:
        return ""
    if ended is None or job["state"] in ("cancelled", "refused"):
        return moment(due)
    if ended > due:
        return f"{moment(due)}, missed by {span(ended - due)}"
    return f"{moment(due)}, met" if job["state"] == "succeeded" else moment(due)


def _attempt(attempt: dict[str, Any], currency: str) -> list[object]:
    return [
        attempt["id"], attempt["offer"], attempt["width"], moment(attempt["promised_at"]),
        moment(attempt["started_at"]), moment(attempt["ended_at"]), attempt["state"].replace("_", " "),
        span(attempt["kept_ms"]), money(attempt["spent"], currency),
    ]  # fmt: skip


def _why(shown: dict[str, Any]) -> str:
    return str(shown["because"]["says"]) if shown["because"] else ""
