"""A whole Penstock for tests of the API: the real plane, journal, local site and server, on a free port of loopback."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from penstock.config import SitesFile
from penstock.core.decide.rules import Rules
from penstock.core.model import events as e
from penstock.core.model.governance import NONE, Governance
from penstock.core.model.types import NodeShape, Offer, Policy, Site
from penstock.core.units import HOUR, SECOND, money
from penstock.data.checkpoints import FolderStore
from penstock.drivers.local.driver import LocalDriver
from penstock.drivers.local.store import LocalSettings
from penstock.journal.journal import Reader
from penstock.journal.open import open_journal, open_reader
from penstock.journal.states import ENDED
from penstock.live.clock import Clock
from penstock.live.plane import Plane, Setup
from penstock.live.policy_changes import PolicyChanges
from penstock.telemetry import Metrics
from penstock.web.access import Guard
from penstock.web.app import Limits, build, guard_of
from penstock.web.server import address_of, bind, serving
from penstock.web.token_files import own_secret
from penstock.web.tokens import Role, Token, new_token
from tests.awaiting import LIMIT_S

#: More than any test asks for; tests of limits bring their own.
UNLIMITED = Limits(1e6, 1e6, 1e6, 1e6, 1e6, 1e6)
LAB = Site("lab", (Offer("lab/owned", "lab", "owned", (NodeShape(2, 1, list_per_hour=money("1")),), "A100"),))
CLOUD = Site(
    "cloud",
    (
        Offer(
            "cloud/pods", "cloud", "on_demand", (NodeShape(2, 2, list_per_hour=money("3.60")),), "A100",
            sold_by="attempt", kill_ms=5 * SECOND, guarantee="timer",
        ),
    ),
)  # fmt: skip


class Penstock:
    """What a test holds: its parts, and clients by token."""

    def __init__(
        self, home: Path, plane: Plane, reader: Reader, guard: Guard, url: str, policies: PolicyChanges
    ) -> None:
        self.policies = policies
        self.home, self.plane, self.reader, self.guard, self.url = home, plane, reader, guard, url
        self.clients: list[httpx2.AsyncClient] = []
        self.admin = self.client(own_secret(guard.tokens, home / "token"))

    def client(self, secret: str) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        made = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=LIMIT_S, trust_env=False, verify=False)
        self.clients.append(made)
        return made

    def token(self, role: Role, team: str = "", expires_at: int = 0) -> tuple[Token, str]:
        """A token that this control plane knows; tests of what the journal knows make theirs through the API."""
        token, secret = new_token(role, team, expires_at)
        self.guard.tokens.hold(token)
        return token, secret

    def team(self, team: str, role: Role = "member") -> httpx2.AsyncClient:
        return self.client(self.token(role, team)[1])

    async def submits(self, client: httpx2.AsyncClient | None = None, **job: Any) -> str:
        """A job that ends at once, unless told otherwise."""
        answer = await (client or self.admin).post("/v1/jobs", json={"gpus": 1, "command": python("pass"), **job})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job"])

    async def until(self, job: str, *states: str) -> dict[str, Any]:
        """The job, once it is in one of these states; without any, once it has ended."""
        seen = 0
        while True:
            shown: dict[str, Any] = (await self.admin.get(f"/v1/jobs/{job}")).json()
            if shown["state"] in (states or ENDED):
                return shown
            seen = await self.plane.heard(max(seen, 0) if seen else self.plane.number - 1)

    async def until_prints(self, job: str, text: str) -> None:
        """Until its log holds this: it runs, and has come so far."""
        printed, after = "", 0
        while text not in printed:
            answer = await self.admin.get(f"/v1/jobs/{job}/log", params={"after": after, "wait": 10})
            printed, after = printed + answer.text, int(answer.headers["Penstock-Next"])


@asynccontextmanager
async def running(
    home: Path,
    *sites: Site,
    limits: Limits = UNLIMITED,
    caps: dict[str, str] | None = None,
    governance: Governance = NONE,
    rules: Rules | None = None,
) -> AsyncIterator[Penstock]:
    """A policy that bursts at once, on a lab of two GPUs unless told otherwise."""
    places = sites or (LAB,)
    journal = open_journal(str(home / "journal.db"))
    policy = Policy("nowait", burst=True, governance=governance)
    opening: tuple[e.Fact, ...] = (
        e.PolicySet(0, 1, policy),
        *(e.CapSet(0, scope, money(cap)) for scope, cap in (caps or {}).items()),
        *(e.SiteJoined(0, site) for site in places),
    )
    clock = Clock()
    store = FolderStore({site.id: home / site.id / "checkpoints" for site in places})
    settings = LocalSettings(tick_ms=20, devices=(), grace_ms=HOUR)
    drivers = {
        site.id: LocalDriver(site, home / site.id, journal.installation, store, clock.now, settings) for site in places
    }
    plane = Plane(journal, drivers, Setup(opening, rules=rules), clock)
    await plane.start()
    reader = open_reader(str(home / "journal.db"))
    guard = guard_of(home, plane, limits)
    guard.tokens.read(reader)
    metrics = Metrics(lambda: plane.view, lambda: not plane.ready, reader.counts)
    sock = bind("127.0.0.1", 0)
    app = build(plane, reader, guard, metrics, limits)
    app.state.policies = policies = PolicyChanges(plane, SitesFile("USD", places), str(home / "policy.yaml"))
    penstock = Penstock(home, plane, reader, guard, address_of(sock), policies)
    try:
        await guard.tokens.record()
        async with (
            guard.denials.saved(),
            guard.tokens.followed(reader),
            serving(app, sock),
        ):
            try:
                yield penstock
            finally:
                await _end_all(penstock)
                for client in penstock.clients:
                    await client.aclose()
    finally:
        await plane.stop()
        reader.close()
        journal.close()


async def _end_all(penstock: Penstock) -> None:
    """No process of a test outlives it."""
    if not penstock.plane.ready:
        live = [row for row in penstock.reader.placed() if row.phase != "over"]
        for job in dict.fromkeys(row.job for row in live):
            await penstock.plane.tell(e.CancelRequested(0, job))
        for job in dict.fromkeys(row.job for row in live):
            await penstock.until(job)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


#: Prints that it runs, and then does nothing for longer than any test.
WAITS = python("import time; print('runs', flush=True); time.sleep(600)")
