"""One journal, one control plane: keeps each site's claim. The plane takes it before it opens a site, and renews it
with every heartbeat.

A claim names the installation, the epoch of the journal's lease, and an incarnation: a random word that is renewed
every few seconds. It is committed to the journal first and told to the site then, and the next one follows only when
the site has it. So after a crash at any instant the site has one of the last two of our journal, and a copy of the
journal that is older than that has neither. A copy that is fresher sees that somebody renews the claim.

Nobody's clock is compared with anybody else's. Whoever finds another claim at its site than its own ends: the other one
was started from a restored journal, or took over.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from penstock.core.units import SECOND, Millis
from penstock.drivers.claim import Claim, ClaimStore, SeenClaim, Superseded
from penstock.drivers.driver import Driver, Unreachable
from penstock.journal.journal import Fenced, KeptClaim, KeptClaims
from penstock.live.sequencer import Sequencer

TOLD_MS: Final[Millis] = 8 * SECOND  #: timeout of one renewal at a site
TAKEN_MS: Final[Millis] = 5 * SECOND  #: of each call when a site is taken
LAST_MS: Final[Millis] = 3 * SECOND  #: the same when we stop
TRIES: Final = 5  #: against somebody who still renews the claim that a person told us to take
RESTORING: Final = "restored"  #: the place of a claim until its site has it: a person told us to take it in any case
RESTORE: Final = (
    "Only one control plane may work with this installation. If that one is gone and this journal shall go on, run"
    " `penstock journal restore` on it, and start again."
)

#: Runs a call in the engine's thread, where the journal is.
Think = Callable[..., Awaitable[Any]]


class SiteClaims:
    def __init__(self, sequencer: Sequencer, drivers: Mapping[str, Driver], holder: str, think: Think) -> None:
        self.sequencer, self.holder, self.think = sequencer, holder, think
        self.stores = {site: driver.claims for site, driver in drivers.items() if driver.claims is not None}
        self.kept: dict[str, KeptClaim] = {}  #: by site, as the journal has it
        self.seen: dict[str, SeenClaim] = {}  #: sites that are ours, as we left their claims
        self.behind: set[str] = set()  #: sites that have not confirmed what the journal has
        self.place = self.head = ""
        self.restored = False  #: a person let this journal go on, whatever sites and others know
        self.due = asyncio.Event()
        self.doubt: Callable[[str], None] = lambda _: None  #: called with a site that did not answer
        self.taking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def add(self, site: str, driver: Driver) -> None:
        """A site that joins a running plane. Its probe takes it."""
        if driver.claims is not None:
            self.stores[site] = driver.claims

    def remove(self, site: str) -> None:
        """Its claim stays at the site as it is, as when we stop."""
        for known in (self.stores, self.seen):
            known.pop(site, None)
        self.behind.discard(site)

    async def begin(self) -> None:
        """Take every site that answers: those first that know us, since a new one cannot tell whether we are a copy."""
        journal = self.sequencer.journal
        recorded: KeptClaims = await self.think(journal.claims)
        self.place = await self.think(journal.place)
        self.kept, self.head, self.restored = dict(recorded.claims), recorded.head, recorded.restored
        if self.restored:  # the permission is for the sites that there are now, and for once
            fresh = [KeptClaim(site, "", "", RESTORING) for site in self.stores if site not in self.kept]
            await self.think(lambda: journal.keep_claims(self.sequencer.epoch, fresh))
            self.kept |= {kept.site: kept for kept in fresh}
        known = [site for site in self.stores if site in self.kept]
        for sites in (known, [site for site in self.stores if site not in self.kept]):
            await asyncio.gather(*map(self._try_take, sites))

    async def settle(self) -> None:
        """The permission is used up: the journal has on record that it went on."""
        if self.restored:
            self.restored = False
            await self.think(lambda: self.sequencer.journal.keep_claims(self.sequencer.epoch, [], settled=True))

    async def _try_take(self, site: str) -> None:
        with suppress(Unreachable, TimeoutError):  # its probe takes it when it answers
            await self.take(site)

    async def take(self, site: str) -> None:
        """Make the site ours, once. Raises `Fenced` if this journal is a copy, and what stores raise."""
        store = self.stores.get(site)
        if store is None:
            return
        async with self.taking[site]:
            if site not in self.seen:
                await self._take(site, store)

    async def _take(self, site: str, store: ClaimStore) -> None:
        override = site in self.kept and self.kept[site].place == RESTORING
        for tries_left in reversed(range(TRIES if override else 1)):
            async with asyncio.timeout(TAKEN_MS / SECOND):
                seen = await store.read()
            if not override:
                await self._check(site, store, seen)
            try:
                await self._claim(site, store, seen, override)
                return
            except Superseded:
                if not tries_left:
                    raise Fenced(f"Another control plane claims site {site} at this moment. {RESTORE}") from None

    async def _check(self, site: str, store: ClaimStore, seen: SeenClaim) -> None:
        """Raise `Fenced` if the site does not obey this journal."""
        why = objection(site, seen, self.kept, self.place, self.sequencer.epoch, store.by_path)
        claim = seen.claim
        if not why and claim is not None and claim.incarnation:
            if claim.head and not await self.think(self.sequencer.journal.has, claim.head):
                why = f"Site {site} knows this journal with another past: it had step {claim.head[:24]}..."
            elif claim.place != self.place and await store.is_renewed(seen):
                why = f"This journal is a copy: a control plane runs that site {site} obeys{_who(seen)}."
        if why:
            raise Fenced(f"{why} {RESTORE}")

    async def _claim(self, site: str, store: ClaimStore, seen: SeenClaim, override: bool) -> None:
        before = seen.claim.incarnation if seen.claim else ""
        kept = KeptClaim(site, secrets.token_hex(8), before, RESTORING if override else self.place)
        above = seen.claim.epoch if seen.claim and override else 0
        await self.think(self._commit, kept, above)
        self.kept[site] = kept
        async with asyncio.timeout(TAKEN_MS / SECOND):
            self.seen[site] = await store.write(self._said(kept), seen)

    def _commit(self, kept: KeptClaim, above: int) -> None:
        """In the engine's thread: no append may come between the raised epoch and us."""
        self.sequencer.epoch = self.sequencer.journal.keep_claims(self.sequencer.epoch, [kept], above)

    def _said(self, kept: KeptClaim) -> Claim:
        return Claim(
            installation=self.sequencer.journal.installation,
            epoch=self.sequencer.epoch,
            incarnation=kept.incarnation,
            place=self.place,
            holder=self.holder,
            head=self.head,
        )

    # --- renewing ----------------------------------------------------------------------------------------------------

    def next(self) -> list[KeptClaim]:
        """New claims for the sites that have confirmed their last; the heartbeat commits them."""
        ready = [self.kept[site] for site in self.seen if site in self.stores and site not in self.behind]
        return [KeptClaim(kept.site, secrets.token_hex(8), kept.incarnation, self.place) for kept in ready]

    def committed(self, claims: Iterable[KeptClaim], head: str) -> None:
        """The journal has them: tell the sites."""
        self.head = head
        for kept in claims:
            self.kept[kept.site] = kept
            self.behind.add(kept.site)
        self.due.set()

    async def run(self) -> None:
        """Tell sites their new claims. Raises `Fenced` as soon as one obeys somebody else."""
        while True:
            await self.due.wait()
            self.due.clear()
            await asyncio.gather(*map(self._renew, sorted(self.behind)))

    async def last(self, renew: Callable[[list[KeptClaim]], Awaitable[str]]) -> None:
        """Before we stop: the sites get the journal's last head."""
        claims = self.next()
        self.committed(claims, await renew(claims))
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_MS / SECOND):
                await asyncio.gather(*map(self._renew, sorted(self.behind)))

    async def _renew(self, site: str) -> None:
        try:
            async with asyncio.timeout(TOLD_MS / SECOND):
                await self._tell(site)
        except (Unreachable, TimeoutError):  # again with the next heartbeat
            self.doubt(site)

    async def _tell(self, site: str) -> None:
        if site not in self.stores or site not in self.seen:  # it was removed since
            self.behind.discard(site)
            return
        store, kept = self.stores[site], self.kept[site]
        try:
            self.seen[site] = await store.write(self._said(kept), self.seen[site])
        except Superseded:
            seen = await store.read()  # never replaced before we know that it is ours
            if seen.claim is None and not seen.doubt and not store.by_path:  # `penstock leave` released it
                del self.seen[site]
                self.behind.discard(site)
                return
            if seen.doubt or (seen.claim is not None and seen.claim.incarnation not in (kept.incarnation, kept.before)):
                raise Fenced(f"Site {site} obeys another control plane now{_who(seen)}; this one ends.") from None
            self.seen[site] = await store.write(self._said(kept), seen)
        self.behind.discard(site)


def objection(site: str, seen: SeenClaim, kept: Mapping[str, KeptClaim], place: str, epoch: int, by_path: bool) -> str:
    """Why this site does not obey us, as a sentence; empty if it does."""
    claim, ours = seen.claim, kept.get(site)
    if seen.doubt:
        return f"Site {site} cannot tell whether this is its control plane: {seen.doubt}."
    if claim is None:
        elsewhere = by_path and kept and all(claimed.place != place for claimed in kept.values())
        return f"This journal is a copy: it was moved, and site {site} is not where it was." if elsewhere else ""
    if not claim.incarnation:  # an older Penstock was here
        return ""
    if claim.epoch > epoch:
        return f"Site {site} obeys a newer control plane{_who(seen)}: epoch {claim.epoch}, and this is {epoch}."
    if ours is None or claim.incarnation not in (ours.incarnation, ours.before):
        return (
            f"This journal is a copy that is too old: site {site} was claimed by its control plane since{_who(seen)}."
        )
    return ""


def _who(seen: SeenClaim) -> str:
    return f" ({seen.claim.holder})" if seen.claim and seen.claim.holder else ""
