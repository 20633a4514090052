"""Applies a sites file to a running plane: all of it or nothing. `penstock apply`, SIGHUP and the file's watch call it.

    changes = SiteChanges(plane, policies, drivers, "sites.yaml")
    done = await changes.apply(raw, "sites.yaml", by=token)      # BadInput: what was in force stays

What it says becomes the facts that a start would tell, with their author, so that a replay knows what was in force. An
offer that leaves the file while something of ours is there is closed, and goes with a later change: a person who
applies the file is told which running jobs are there, and asked. A site where something of ours is left cannot be
removed.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock.config.document import read_regular
from penstock.core.decide.rules import Rules
from penstock.core.errors import BadInput
from penstock.core.fold.sites import count_at
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.types import STANDING, Offer, Policy, Site
from penstock.core.values import value
from penstock.drivers.driver import Driver, Refused
from penstock.formatting import money
from penstock.journal.journal import Fenced
from penstock.live import config_facts
from penstock.live.mount_calls import FollowedFile
from penstock.live.plane import NotReady, Plane, Quarantined
from penstock.live.policy_changes import (
    LOOK_SECONDS,
    MOST_BYTES,
    PolicyChanges,
    Stranded,
    asks,
    raised_by,
    stranded_by,
    unread,
)

if TYPE_CHECKING:
    from penstock.config import SitesFile

MOST_NAMED: Final = 20  #: jobs of a site that cannot be removed
REMOVED: Final = "Site {} was removed."
STAYS: Final = "Site {} stays: a job started there meanwhile. Apply the file again when it has ended."


class Drivers(Protocol):
    """What makes the sites' drivers; `site_drivers` has it."""

    def make(self, file: "SitesFile", site: Site) -> Driver: ...

    def use(self, file: "SitesFile", site: Site) -> None:
        """What a site that has a driver offers from now on. The journal has it; a start may follow at once."""

    def joined(self, file: "SitesFile", site: Site) -> None:
        """The journal has this new site."""

    def forget(self, site: str) -> None:
        """Its driver is closed: it was removed, or never joined."""

    def needs_restart(self, before: "SitesFile", after: "SitesFile") -> list[str]:
        """What a running Penstock cannot take over."""


@value
class SitesOutcome:
    changed: bool  # False: nothing was recorded
    changes: tuple[str, ...]  # a sentence each
    stranded: tuple[Stranded, ...]
    raised: tuple[str, ...]  # caps that wait for approval, likewise
    says: str


@value
class _Change:
    """What a file changes, of the state as it is."""

    facts: tuple[e.Fact, ...]
    says: tuple[str, ...]
    joined: tuple[Site, ...]  # that have no driver yet
    changed: tuple[Site, ...]
    removed: tuple[str, ...]
    stranded: tuple[Stranded, ...]  # running jobs that would not be allowed where they are


class SiteChanges:
    def __init__(
        self, plane: Plane, policies: PolicyChanges, drivers: Drivers, path: str = "", digest: str = ""
    ) -> None:
        """`policies`: has the sites file in force. `path`: the file that `up --sites` names; empty: none. `digest`: of
        that file, as the start read it.
        """
        self.plane, self.policies, self.drivers, self.path = plane, policies, drivers, path
        self.file = FollowedFile(path, MOST_BYTES)
        self.seen = digest  #: of the file as it was last looked at
        self.applied = digest  #: of what was applied last

    async def apply(
        self,
        raw: bytes,
        name: str,
        *,
        by: str = "",
        reason: str = "",
        details: str = "",
        blobs: Mapping[str, bytes] | None = None,
        strand: bool = True,
    ) -> SitesOutcome:
        """Raises `BadInput` for a file that cannot be used, and `NotReady`. Unless `strand`, nothing is done if a
        running job would be stranded.
        """
        async with self.policies.doing:
            base, file = await asyncio.to_thread(self._read, raw, name)
            configured = config_facts.written_by(config_facts.configured(file), by, self.plane.setup.opening)
            reached = frozenset(self.plane.drivers)
            change = await self.plane.consider(
                lambda state, rules: _considered(state, rules, configured, name, reached)
            )
            if change.stranded and not strand:
                return SitesOutcome(False, (), change.stranded, (), asks(change.stranded))
            facts = tuple(_by(fact, by, reason, details) for fact in change.facts)
            await self._record(file, change, facts, blobs)
            self.policies.sites, self.applied = base, hashlib.sha256(raw).hexdigest()
            await self.plane.configure(configured, file.teams, file.data_teams)
            change = await self._close_removed(change)
            raised, _ = await self.plane.consider(lambda state, _: raised_by(state, configured))
            changed = bool(change.says or facts)
            return SitesOutcome(changed, change.says, change.stranded, raised, _says(name, change))

    async def _record(
        self, file: "SitesFile", change: _Change, facts: tuple[e.Fact, ...], blobs: Mapping[str, bytes] | None
    ) -> None:
        """First the journal, then the drivers, then what the engine starts there: a change that is not recorded leaves
        every driver as it was.
        """
        joins = await self._open(file, change.joined)

        def recorded() -> None:
            for site in change.changed:
                self.drivers.use(file, site)
            for site, join in zip(change.joined, joins, strict=True):
                self.drivers.joined(file, site)
                join()

        try:
            if facts:
                await self.plane.tell(*facts, blobs=blobs, recorded=recorded)
            else:  # sites that were away and are back: the journal has them
                recorded()
        except (NotReady, Quarantined):  # nothing of it was recorded
            await self._close([site.id for site in change.joined])
            raise

    def _read(self, raw: bytes, name: str) -> "tuple[SitesFile, SitesFile]":
        """The file, and the file as the policy in force makes it."""
        from penstock.config import parse_sites

        if len(raw) > MOST_BYTES:
            raise BadInput(f"{name} has {len(raw):,} bytes, and a sites file has at most {MOST_BYTES:,}.")
        base = parse_sites(raw, name)
        if fixed := self.drivers.needs_restart(self.policies.sites, base):
            raise BadInput(
                f"{name} needs a restart of Penstock, and nothing was applied: {'; '.join(fixed)}. Jobs that run go on "
                "while it restarts."
            )
        return base, self.policies.govern(base)

    async def _open(self, file: "SitesFile", sites: tuple[Site, ...]) -> list[Callable[[], None]]:
        """Open the drivers of new sites; one that obeys somebody else is refused, and none of them joins."""
        joins: list[Callable[[], None]] = []
        for k, site in enumerate(sites):
            try:
                joins.append(await self.plane.open_site(site.id, self.drivers.make(file, site)))
            except BaseException as error:
                await self._close([earlier.id for earlier in sites[: k + 1]])
                if isinstance(error, (Refused, Fenced)):
                    raise BadInput(f"Site {site.id} cannot join: {error} Nothing was applied.") from None
                raise
        return joins

    async def _close_removed(self, change: _Change) -> _Change:
        """What was applied: a site at which a job started meanwhile stays, and the change says so."""
        stays = await self.plane.consider(lambda state, _: [name for name in change.removed if name in state.sites])
        await self._close([name for name in change.removed if name not in stays])
        said = {REMOVED.format(name): STAYS.format(name) for name in stays}
        return replace(change, says=tuple(said.get(words, words) for words in change.says))

    async def _close(self, sites: list[str]) -> None:
        for site in sites:
            await self.plane.close_site(site)
            self.drivers.forget(site)

    # --- the file itself -----------------------------------------------------------------------------------------

    async def reload(self) -> str:
        """Apply the file as it is now; what came of it, in a sentence. A file that cannot be used raises an alarm, and
        what was in force stays.
        """
        try:
            raw = await self.file.read()
        except BadInput as error:
            return self._reject(error)
        return await self._take(raw)

    async def _take(self, raw: bytes) -> str:
        try:
            self.seen = hashlib.sha256(raw).hexdigest()
            done = await self.apply(raw, self.path, reason="the file changed")
        except (BadInput, OSError, NotReady) as error:
            return self._reject(error)
        self.plane.alarms.set("sites", "sites file", "")
        return " ".join((done.says, *done.changes))

    def _reject(self, error: Exception) -> str:
        says = f"{self.path} is not in force: {error} The sites before it stay."
        self.plane.alarms.set("sites", "sites file", says)
        return says

    async def watch(self) -> None:
        """Reload the file whenever its content changes. What is in force and not in the file is named as drift."""
        while True:
            raw = await self.file.look()
            self.plane.alarms.set("sites", "sites file unread", unread(self.file.trouble))
            if raw is not None and hashlib.sha256(raw).hexdigest() != self.seen:
                await self._take(raw)
            self.plane.alarms.set("sites drift", "sites drift", self.drift())
            await asyncio.sleep(LOOK_SECONDS)

    def drift(self) -> str:
        """A sentence if other sites are in force than the file says; empty if not, or if there is no file."""
        if not self.path or not self.seen or self.seen == self.applied:
            return ""
        return f"Other sites are in force than {self.path} says. A restart follows the file. Correct the file."


def digest_of(path: str) -> str:
    """Of a file's content; empty: there is no file. Raises `BadInput`."""
    return hashlib.sha256(read_regular(path, MOST_BYTES)).hexdigest() if path else ""


# --- what changes -----------------------------------------------------------------------------------------------------


def _considered(
    state: State, rules: Rules, configured: tuple[e.Fact, ...], name: str, reached: frozenset[str]
) -> _Change:
    """Raises `BadInput` for what cannot be while things run. `reached`: sites that have a driver."""
    file = Path(name).name
    facts = config_facts.kept_open(state, configured, file)
    sites = {fact.site.id: fact.site for fact in facts if isinstance(fact, e.SiteJoined)}
    removed = [site for site in state.sites if site not in sites]
    if wrong := [*_still_used(state, removed, name), *_cannot_change(state, sites)]:
        raise BadInput(" ".join((*wrong, "Nothing was applied.")))
    news = config_facts.news(state, facts, (*state.sites, *sites))
    changed = [fact.site for fact in news if isinstance(fact, e.SiteJoined)]
    joined = [site for site in sites.values() if site.id not in reached]
    back = [f"Site {site.id} is back." for site in joined if site.id in state.sites]
    gone = [e.SiteRemoved(0, site) for site in removed]
    return _Change(
        facts=(*gone, *news),
        says=(*_sentences(state, gone, news), *back),
        joined=tuple(joined),
        changed=tuple(site for site in changed if site.id in reached),
        removed=tuple(removed),
        stranded=stranded_by(state, rules, _policy_after(state, news), sites),
    )


def _policy_after(state: State, news: list[e.Fact]) -> Policy:
    return next((fact.policy for fact in news if isinstance(fact, e.PolicySet)), state.policy)


def _still_used(state: State, removed: list[str], name: str) -> Iterator[str]:
    for site in removed:
        if count := count_at(state, site):
            counted = "1 attempt or node" if count == 1 else f"{count} attempts and nodes"
            jobs = [attempt.job.id for attempt in state.attempts.values() if attempt.offer.site == site]
            more = f", and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
            whose = f" (of {', '.join(jobs[:MOST_NAMED])}{more})" if jobs else ""
            yield (
                f"Site {site} is not in {name}, and has {counted} of ours{whose}: close its offers (closed: true), and "
                "remove it when they have ended."
            )


def _cannot_change(state: State, sites: Mapping[str, Site]) -> Iterator[str]:
    for site in sites.values():
        for offer in site.offers:
            pool, before = state.pools.get(offer.id), state.offers.get(offer.id)
            if before is not None and (before.term in STANDING) != (offer.term in STANDING):
                yield f"{offer.id} cannot become {offer.term}: give it another name."
            elif pool is not None and not pool.names and (pool.per_node, pool.size) != _nodes(offer):
                yield (
                    f"{offer.id} has {pool.size} x {pool.per_node} GPUs, which does not change while it is there: "
                    "write further nodes as an offer of their own."
                )


def _nodes(offer: Offer) -> tuple[int, int]:
    return offer.shapes[-1].gpus, offer.shapes[-1].count or 0


def _by(fact: e.Fact, by: str, reason: str, details: str) -> e.Fact:
    if isinstance(fact, (e.PolicySet, e.SiteJoined, e.SiteRemoved)):
        return replace(fact, by=by, reason=reason, details=details)
    return replace(fact, by=by, details=details) if isinstance(fact, e.CapSet) else fact


# --- in words ---------------------------------------------------------------------------------------------------------


def _says(name: str, change: _Change) -> str:
    if not change.facts and not change.says:
        return f"Nothing changes: {name} says what is in force."
    count = len(change.says)
    return f"{name} is in force: {count} {'change' if count == 1 else 'changes'}."


def _sentences(state: State, gone: list[e.SiteRemoved], news: list[e.Fact]) -> Iterator[str]:
    for site in gone:
        yield REMOVED.format(site.site)
    for fact in news:
        match fact:
            case e.SiteJoined(site=after):
                yield from _of_site(state, state.sites.get(after.id), after)
            case e.DataSetRegistered(data_set=data):
                yield f"Data set {data.id} is {'changed' if data.id in state.data else 'registered'}."
            case e.CapSet(scope=scope):
                cap = config_facts.in_words((fact.per_period, fact.per_hour), _currency(state))
                yield f"The cap of {scope} is {cap}."
            case e.PolicySet():
                yield "The policy changes."
            case _:
                pass


def _of_site(state: State, before: Site | None, after: Site) -> Iterator[str]:
    if before is None:
        count = len(after.offers)
        yield f"Site {after.id} was added, with {count} {'offer' if count == 1 else 'offers'}."
        return
    known, offers = {offer.id: offer for offer in before.offers}, {offer.id: offer for offer in after.offers}
    for name in dict.fromkeys((*known, *offers)):
        yield from _of_offer(state, name, known.get(name), offers.get(name))
    if replace(before, offers=()) != replace(after, offers=()):
        yield f"Site {after.id} has other properties."


def _of_offer(state: State, name: str, before: Offer | None, after: Offer | None) -> Iterator[str]:
    if before == after:
        return
    if after is None:
        yield f"{name} was removed."
    elif before is None:
        yield f"{name} was added: {_prices(state, after)}." if not after.closed else f"{name} was added, closed."
    elif after.closed and not before.closed:
        running = len([attempt for attempt in state.attempts.values() if attempt.offer.id == name])
        stay = (
            f"; {running} running {'attempt stays' if running == 1 else 'attempts stay'} until the end"
            if running
            else ""
        )
        yield f"{name} is closed by {after.closed}{stay}."
    elif before.closed and not after.closed:
        yield f"{name} is open again: {_prices(state, after)}."
    elif _prices(state, before) != _prices(state, after):
        yield f"{name} costs {_prices(state, after)}, before {_prices(state, before)}."
    else:
        yield f"{name} has other properties."


def _prices(state: State, offer: Offer) -> str:
    shapes = [f"{money(shape.price_per_hour, _currency(state))} for {shape.gpus} GPUs" for shape in offer.shapes]
    return f"{', '.join(shapes)} an hour"


def _currency(state: State) -> str:
    return state.policy.currency
