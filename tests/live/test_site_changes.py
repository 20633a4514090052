"""A sites file applied to a running Penstock: all of it or nothing, while jobs run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.config import parse_sites
from penstock.core.errors import BadInput
from penstock.core.model import events as e
from penstock.core.units import SECOND
from penstock.drivers.driver import Work
from penstock.journal.redecide import redecide
from penstock.live.clock import Clock
from penstock.live.config_facts import configured
from penstock.live.plane import NotReady, Plane
from penstock.live.policy_changes import PolicyChanges, Stranded
from penstock.live.site_changes import SiteChanges, SitesOutcome
from penstock.options import Options
from penstock.site_drivers import SiteDrivers
from tests.live.kit import Living, job, story
from tests.live.memory import MemoryJournal
from tests.live.virtual import VirtualClock
from tests.stories.kit import span

LAB = """currency: USD
sites:
  - name: lab
    driver: rehearsal
    offers:
      - {name: owned, gpu: A100, term: owned, gpus_per_node: 8, nodes: 1}
"""
CLOUD = """  - name: cloud
    driver: rehearsal
    offers:
      - {name: pods, gpu: A100, term: on_demand, gpus_per_node: 8, sold_by: attempt, price: {list: 2}, kill: 1m,
         guarantee: timer, billing_step: 1s}
"""
POLICY = "policy: {cost_of_delay: 1000}\n"


class Here:
    """A running plane and what applies files to it."""

    def __init__(self, plane: Plane, changes: SiteChanges, world: Living) -> None:
        self.plane, self.changes, self.world = plane, changes, world

    async def apply(self, text: str, **more: Any) -> tuple[bool, tuple[str, ...]]:
        done = await self.changes.apply(text.encode(), "etc/sites.yaml", **more)
        return done.changed, done.changes


@asynccontextmanager
async def running(now: VirtualClock, home: Path, text: str) -> AsyncIterator[Here]:
    file = parse_sites(text.encode(), "etc/sites.yaml")
    world = Living(now, list(configured(file)), {}, MemoryJournal())
    drivers = SiteDrivers(Options(home), file, "i", None, Clock())  # type: ignore[arg-type]  # nobody reads
    drivers.stage = world.stage
    world.drivers = drivers.all(file)
    async with world.up() as plane:
        changes = SiteChanges(plane, PolicyChanges(plane, file), drivers)
        yield Here(plane, changes, world)


@story("09:00")
async def test_a_site_is_added_takes_a_job_and_is_removed_when_it_has_ended(now: VirtualClock, tmp_path: Path) -> None:
    async with running(now, tmp_path, LAB + POLICY) as here:
        await here.plane.submit(job(8, run="10h"), Work(()))
        await here.plane.submit(job(8, run="10h"), Work(()))
        await here.world.until("09:10")
        assert len(here.world.state().attempts) == 1
        assert await here.apply(LAB + CLOUD + POLICY, by="anna", reason="more work") == (
            True,
            ("Site cloud was added, with 1 offer.",),
        )
        await here.world.until("09:20")
        assert [a.offer.id for a in here.world.state().attempts.values()] == ["lab/owned", "cloud/pods"]
        (joined,) = [fact for fact in here.world.events(e.SiteJoined) if fact.by]
        assert (joined.site.id, joined.by, joined.reason, joined.before) == ("cloud", "anna", "more work", None)
        with pytest.raises(
            BadInput, match=r"Site cloud is not in etc/sites.yaml, and has 1 attempt or node of ours \(of j1\)"
        ):
            await here.apply(LAB + POLICY)
        assert "cloud" in here.world.state().sites
        await here.world.until("15:00")
        assert await here.apply(LAB + POLICY, by="anna") == (True, ("Site cloud was removed.",))
        assert list(here.world.state().sites) == ["lab"]
        assert list(here.plane.drivers) == ["lab"]
        (removed,) = here.world.events(e.SiteRemoved)
        assert (removed.by, removed.before.id) == ("anna", "cloud")
        assert redecide(here.world.journal.read(), 1).different == 0


@story("09:00")
async def test_an_offer_is_repriced_and_closed_while_a_job_runs_there(now: VirtualClock, tmp_path: Path) -> None:
    async with running(now, tmp_path, LAB + CLOUD + POLICY) as here:
        for _ in range(2):
            await here.plane.submit(job(8, run="10h"), Work(()))
        await here.world.until("09:10")
        dearer = CLOUD.replace("list: 2", "list: 3")
        assert await here.apply(LAB + dearer + POLICY) == (
            True,
            ("cloud/pods costs $24.00 for 8 GPUs an hour, before $16.00 for 8 GPUs an hour.",),
        )
        closed = dearer.replace("billing_step: 1s", "billing_step: 1s, closed: true")
        assert await here.apply(LAB + closed + POLICY) == (
            True,
            ("cloud/pods is closed by sites.yaml:11; 1 running attempt stays until the end.",),
        )
        third = (await here.plane.submit(job(8, run="10h"), Work(()))).answer
        await here.world.until("09:30")
        state = here.world.state()
        assert [a.offer.id for a in state.attempts.values()] == ["lab/owned", "cloud/pods"]
        excluded = state.jobs[third].shape.excluded
        assert excluded == (("cloud/pods", "the offer is closed", "sites.yaml:11"),)
        assert await here.apply(LAB + dearer + POLICY) == (
            True,
            ("cloud/pods is open again: $24.00 for 8 GPUs an hour.",),
        )
        await here.world.until("09:50")
        assert len(here.world.state().attempts) == 3
        assert redecide(here.world.journal.read(), 1).different == 0


@story("09:00")
async def test_a_file_that_would_strand_running_jobs_names_them_and_does_nothing_unless_told(
    now: VirtualClock, tmp_path: Path
) -> None:
    rest = POLICY + "data_rules: [{class: personal, locations: [EU]}]\n"
    europe = CLOUD.replace("driver: rehearsal", "driver: rehearsal\n    location: EU")
    closed, moved = europe.replace("billing_step: 1s", "billing_step: 1s, closed: true"), europe.replace("EU", "US")
    async with running(now, tmp_path, LAB + europe + rest) as here:
        await here.plane.submit(job(8, run="10h"), Work(()))
        await here.plane.submit(job(8, run="10h", data_class="personal"), Work(()))
        await here.world.until("09:10")
        for file, *rule in (
            (closed, "the offer is closed", "sites.yaml:12"),
            (moved, "data class personal may not go to cloud", "built in"),
        ):
            text = (LAB + file + rest).encode()
            done = await here.changes.apply(text, "etc/sites.yaml", strand=False)
            assert done == SitesOutcome(
                changed=False,
                changes=(),
                stranded=(Stranded("j1", "default", "cloud/pods", *rule),),
                raised=(),
                says="1 running job would not be allowed where it is; it would not be stopped.",
            )
        assert here.world.state().sites["cloud"].location == "EU"
        done = await here.changes.apply((LAB + closed + rest).encode(), "etc/sites.yaml")
        assert (done.changed, [job.job for job in done.stranded]) == (True, ["j1"])
        await here.world.until("09:20")
        assert "cloud/pods" in [attempt.offer.id for attempt in here.world.state().attempts.values()]


@story("09:00")
async def test_an_offer_that_leaves_the_file_is_closed_while_it_is_used(now: VirtualClock, tmp_path: Path) -> None:
    more = "      - {name: old, gpu: A100, term: owned, gpus_per_node: 8, nodes: 1}\n"
    async with running(now, tmp_path, LAB + more + POLICY) as here:
        for _ in range(2):
            await here.plane.submit(job(8, run="2h"), Work(()))
        await here.world.until("09:10")
        assert await here.apply(LAB + POLICY) == (
            True,
            ("lab/old is closed by sites.yaml; 1 running attempt stays until the end.",),
        )
        assert await here.apply(LAB + POLICY) == (False, ())
        await here.world.until("15:00")
        assert here.world.state().jobs == {}
        assert await here.apply(LAB + POLICY) == (True, ("lab/old was removed.",))
        await here.plane.submit(job(8, run="1h"), Work(()))
        await here.plane.submit(job(8, run="1h"), Work(()))
        await here.world.until("15:10")
        assert [a.offer.id for a in here.world.state().attempts.values()] == ["lab/owned"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            LAB.replace("USD", "EUR"),
            "needs a restart of Penstock, and nothing was applied: 'currency' changes from USD",
        ),
        (LAB.replace("driver: rehearsal", "driver: local"), "site lab: its driver changes"),
        (LAB.replace("nodes: 1", "nodes: 2"), "lab/owned has 1 x 8 GPUs, which does not change while it is there"),
        (
            LAB.replace("term: owned", "price: {list: 2}, term: on_demand"),
            "lab/owned cannot become on_demand: give it another name.",
        ),
        (LAB.replace("term", "trem") + CLOUD, "trem"),
        ("a: [", "sites.yaml"),
    ],
)
@story("09:00")
async def test_a_file_that_cannot_be_applied_changes_nothing(
    now: VirtualClock, tmp_path: Path, text: str, says: str
) -> None:
    async with running(now, tmp_path, LAB + POLICY) as here:
        rows = len(here.world.events())
        with pytest.raises(BadInput) as error:
            await here.apply(text + POLICY)
        assert says in str(error.value)
        assert (len(here.world.events()), list(here.plane.drivers)) == (rows, ["lab"])


@story("09:00")
async def test_a_raised_cap_waits_and_a_lowered_one_holds(now: VirtualClock, tmp_path: Path) -> None:
    capped = LAB + "caps: [{scope: org, per_month: 77}]\n"
    async with running(now, tmp_path, capped) as here:
        done = await here.changes.apply(capped.replace("77", "200").encode(), "sites.yaml")
        assert (done.changes, len(done.raised)) == ((), 1)
        assert "penstock approvals approve org" in done.raised[0]
        lower = await here.changes.apply(capped.replace("77", "50").encode(), "sites.yaml")
        assert (lower.changes, lower.raised) == (("The cap of org is $50.00 a month.",), ())


@story("09:00")
async def test_the_file_is_reloaded_a_bad_one_is_an_alarm_and_drift_is_named(now: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "sites.yaml"
    async with running(now, tmp_path, LAB + POLICY) as here:
        here.changes.path = here.changes.file.path = str(path)
        path.write_text(LAB + CLOUD + POLICY)
        assert (await here.changes.reload()).endswith("1 change. Site cloud was added, with 1 offer.")
        path.write_text("sites: []\n")
        assert "is not in force" in await here.changes.reload()
        assert [alarm.kind for alarm in here.plane.view.alarms] == ["sites"]
        assert list(here.plane.drivers) == ["lab", "cloud"]
        path.write_text(LAB + CLOUD + POLICY)
        await here.changes.reload()
        assert (here.plane.view.alarms, here.changes.drift()) == ((), "")
        await here.apply(LAB + POLICY)
        assert "Other sites are in force than" in here.changes.drift()


@story("09:00")
async def test_an_offer_that_is_added_is_used_at_once_by_its_sites_own_driver(
    now: VirtualClock, tmp_path: Path
) -> None:
    more = "      - {name: new, gpu: A100, term: owned, gpus_per_node: 8, nodes: 1}\n"
    async with running(now, tmp_path, LAB + POLICY) as here:
        for _ in range(2):
            await here.plane.submit(job(8, run="10h"), Work(()))
        await here.world.until("09:10")
        assert await here.apply(LAB + more + POLICY) == (True, ("lab/new was added: $0.00 for 8 GPUs an hour.",))
        await here.world.until("09:11")
        assert [(a.offer.id, a.phase) for a in here.world.state().attempts.values()] == [
            ("lab/owned", "running"),
            ("lab/new", "running"),
        ]


@story("09:00")
async def test_a_site_that_was_away_when_penstock_started_comes_back(now: VirtualClock, tmp_path: Path) -> None:
    async with running(now, tmp_path, LAB + CLOUD + POLICY) as here:
        world = here.world
    file = parse_sites((LAB + POLICY).encode(), "sites.yaml")
    drivers = SiteDrivers(Options(tmp_path), file, "i", None, Clock())  # type: ignore[arg-type]  # nobody reads
    drivers.stage, world.drivers, world.facts = world.stage, {}, list(configured(file))
    world.drivers = drivers.all(file)
    async with world.up() as plane:
        assert list(world.state().lost_sites) == ["cloud"]
        changes = SiteChanges(plane, PolicyChanges(plane, file), drivers)
        done = await changes.apply((LAB + CLOUD + POLICY).encode(), "sites.yaml")
        assert done.changes == ("Site cloud is back.",)
        await world.until("09:05")
        assert list(world.state().lost_sites) == []


@story("09:00")
async def test_a_change_that_cannot_be_recorded_leaves_every_driver_as_it_was(
    now: VirtualClock, tmp_path: Path
) -> None:
    """Drivers had the new offers before the journal did: a full disk left a site with prices, counts and nodes that no
    decision knew of, and `apply` had said that nothing was applied."""
    dearer = CLOUD.replace("list: 2", "list: 3").replace("name: pods", "name: pods2")
    other = CLOUD.replace("name: cloud", "name: other")
    async with running(now, tmp_path, LAB + CLOUD + POLICY) as here:
        before = dict(here.world.world.offers)
        here.world.journal.broken = "the disk is full"  # type: ignore[attr-defined]  # a journal in memory
        with pytest.raises(NotReady, match="the disk is full"):
            await here.apply(LAB + dearer + other + POLICY)
        assert set(here.world.world.offers) - set(before) == {"other/pods"}  # a stage knows what was ever tried there
        assert list(here.plane.drivers) == ["lab", "cloud"]
        here.world.journal.broken = ""  # type: ignore[attr-defined]  # as above
        await here.world.until("09:05")
        assert (await here.apply(LAB + dearer + other + POLICY))[0]
        assert "cloud/pods2" in here.world.world.offers
        assert list(here.plane.drivers) == ["lab", "cloud", "other"]


class Meanwhile(SiteChanges):
    """A job comes and starts while the new site is being opened."""

    async def _open(self, *args: Any) -> Any:
        await self.plane.submit(job(8, run="10h"), Work(()))
        await asyncio.sleep(span("10m") / SECOND)
        return await super()._open(*args)


@story("09:00")
async def test_a_site_where_a_job_started_meanwhile_stays_and_the_rest_is_said_to_be_applied(
    now: VirtualClock, tmp_path: Path
) -> None:
    """The answer was 422, which says that nothing was applied, after everything else had been."""
    other = CLOUD.replace("name: cloud", "name: other")
    async with running(now, tmp_path, LAB + CLOUD + POLICY) as here:
        await here.plane.submit(job(8, run="10h"), Work(()))
        await here.world.until("09:10")
        changes = Meanwhile(here.plane, here.changes.policies, here.changes.drivers)
        done = await changes.apply((LAB + other + POLICY).encode(), "etc/sites.yaml")
        assert done.changes == (
            "Site cloud stays: a job started there meanwhile. Apply the file again when it has ended.",
            "Site other was added, with 1 offer.",
        )
        assert (done.changed, list(here.plane.drivers)) == (True, ["lab", "cloud", "other"])
        assert "cloud" in here.world.state().sites
