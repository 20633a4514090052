"""`penstock doctor`: checks the installation from here, one line per check, each with what to do."""

import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from penstock import __version__
from penstock.cli.client import Client, Failed, home
from penstock.cli.output import safe

JOB: Final = "job"  #: the name of a check about one job
HINDERED: Final = ("NotStarting", "StartFailed")  #: reasons of jobs that their site cannot start
MOST_JOBS: Final = 200  #: how many jobs that wait or start are asked for
SPACE_BYTES: Final = 1_000_000_000  #: under this, a journal soon cannot be written

NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"  #: of a team or project, as `config.scalars.Name`


@dataclass(slots=True)
class Check:
    name: str
    ok: bool
    says: str
    warns: bool = False  # it works, and a person should know what it does not do

    @property
    def mark(self) -> str:
        """A job's own trouble is shown, and is no fault of the installation."""
        return "BAD" if not self.ok else "!! " if self.warns or self.name == JOB else "ok "


@click.command("doctor")
@click.option("--leaks", is_flag=True, help="Ask every site for what the journal does not know.")
@click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(leaks: bool, url: str | None, as_json: bool) -> int:
    """Check this machine's Penstock and say how to fix what is wrong."""
    checks = [*_machine(), *_server(url), *(_leaks(url) if leaks else ())]
    if as_json:
        from penstock.cli.terminal import print_json

        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.mark}  {check.name:<10} {safe(check.says)}")
    return 0 if all(check.ok for check in checks) else 1


def _machine() -> Iterator[Check]:
    folder = home()
    if not folder.exists():
        yield Check("home", False, f"{folder} does not exist; `penstock up` creates it.")
        return
    yield Check("home", True, str(folder))
    token = folder / "token"
    if token.exists():
        private = not stat.S_IMODE(token.stat().st_mode) & 0o077
        yield Check("token", private, "private" if private else f"other users can read it: chmod 600 {token}")
    free = shutil.disk_usage(folder).free
    enough = free > SPACE_BYTES
    says = f"{free / 1e9:,.1f} GB free" + ("" if enough else "; free some space, or the journal cannot be written soon")
    yield Check("disk", enough, says)


def _caps(client: Client) -> Iterator[Check]:
    """Caps that bind nobody, and where caps hold only while Penstock runs."""
    scopes = client.get("/v1/budget")["scopes"]
    capped = [row["scope"] for row in scopes if row["cap"] is not None or row["cap_per_hour"] is not None]
    for scope in capped:
        kind, _, name = scope.partition(":")
        if name and not re.fullmatch(NAME, name):
            yield Check("cap", False, f"{scope} binds nobody: no {kind} can have this name")
    offers = [offer for site in client.get("/v1/sites")["sites"] for offer in site["offers"]]
    soft = [offer["id"] for offer in offers if offer["guarantee"] == "soft"]
    if capped and soft:
        yield Check("cap", True, f"soft at {', '.join(soft)}: nothing there ends without Penstock")


def _leaks(url: str | None) -> Iterator[Check]:
    """What sites have of ours, against the journal; each stray by name. A site that cannot be asked is no good news."""
    try:
        leaks = Client(url).get("/v1/leaks")["leaks"]
    except Failed as failed:
        yield Check("leaks", False, failed.message)
        return
    for leak in leaks:
        yield Check("leak", False, leak["says"])
    if not leaks:
        yield Check("leaks", True, "none: what sites have of ours is what the journal says")


def _hindered(client: Client) -> Iterator[Check]:
    """Jobs that a site cannot start, each in the words of the site."""
    for state in ("starting", "queued"):
        for job in client.get("/v1/jobs", state=state, limit=MOST_JOBS)["jobs"]:
            because = job["because"]
            if because is not None and because["kind"] in HINDERED:
                yield Check(JOB, True, f"{job['id']} is {state}: {because['says']}")


def _server(url: str | None) -> Iterator[Check]:
    try:
        client = Client(url)
        client.get("/healthz")
        yield Check("server", True, client.url)
        status = client.get("/v1/status")
    except Failed as failed:
        yield Check("server", False, failed.message)
        return
    same = status["version"] == __version__
    says = f"{status['version']}, as this command" if same else f"{status['version']}; this command is {__version__}"
    yield Check("version", same, says)
    yield Check("ready", status["ready"], status["says"] or "accepts submissions")
    yield Check(
        "running", not status["paused"], "paused; resume: penstock resume" if status["paused"] else "not paused"
    )
    if status.get("durability"):  # an older version does not say
        yield Check("journal", True, status["durability"], warns=status["failover_loses"])
    for site in client.get("/v1/sites")["sites"]:
        answers = site["reachable"] and not site.get("says")
        why = f": {site['says']}" if site.get("says") else ""
        yield Check("site", answers, f"{site['id']} {'answers' if answers else f'does not answer{why}'}")
    yield from _caps(client)
    yield from _hindered(client)
    for alarm in status["alarms"]:
        yield Check("alarm", False, f"{alarm['kind']}: {alarm['text']}")
