"""Which journal a site obeys: after any crash its own, and never a copy of it."""

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from penstock.core.decide.rules import BuiltInRules
from penstock.drivers.claim import MOST_EPOCHS, Claim, SeenClaim, Superseded, packed, unpacked
from penstock.drivers.driver import Unreachable
from penstock.journal.journal import Fenced, KeptClaim
from penstock.live.sequencer import Sequencer
from penstock.live.site_claims import SiteClaims, objection
from tests.live.memory import MemoryJournal
from tests.parity_live import SimulatedMonths


class MemoryClaim:
    """A site's record. `fails`: the next writes do not arrive; `lost`: they arrive, and their answers do not."""

    def __init__(self, by_path: bool = False) -> None:
        self.by_path, self.text, self.renewing = by_path, "", False
        self.fails = self.lost = self.doubt = ""

    async def read(self) -> SeenClaim:
        return SeenClaim(unpacked(self.text), self.text, self.doubt)

    async def write(self, claim: Claim, over: SeenClaim) -> SeenClaim:
        if self.fails:
            raise Unreachable(self.fails)
        if self.text != over.version:
            raise Superseded
        self.text = packed(claim)
        if self.lost:
            raise Unreachable(self.lost)
        return SeenClaim(claim, self.text)

    async def is_renewed(self, seen: SeenClaim) -> bool:  # noqa: ARG002 - told by the test
        return self.renewing


class Site:
    def __init__(self, claims: MemoryClaim) -> None:
        self.claims = claims


async def think(work: Any, *args: Any) -> Any:
    return work(*args)


async def started(journal: MemoryJournal, **stores: MemoryClaim) -> SiteClaims:
    sequencer = Sequencer(journal, SimulatedMonths(), BuiltInRules())
    sequencer.epoch = journal.claim("test", 0, 1)
    drivers: Any = {name: Site(store) for name, store in stores.items()}
    claims = SiteClaims(sequencer, drivers, "here", think)
    await claims.begin()
    await claims.settle()
    return claims


async def beat(claims: SiteClaims) -> None:
    """One heartbeat, up to what the sites answer."""
    fresh = claims.next()
    claims.committed(fresh, claims.sequencer.journal.renew(claims.sequencer.epoch, 0, 1, fresh))
    for site in sorted(claims.behind):
        await claims._renew(site)


async def renewed(claims: SiteClaims, fresh: list[KeptClaim]) -> str:
    return claims.sequencer.journal.renew(claims.sequencer.epoch, 0, 1, fresh)


def moved(journal: MemoryJournal) -> MemoryJournal:
    copy = deepcopy(journal)
    copy.where = "elsewhere"
    return copy


def test_whoever_crashes_at_any_instant_comes_back() -> None:
    """Between the commit and the site, between the site and its answer, and over and over again."""

    async def story() -> None:
        journal, lab = MemoryJournal(), MemoryClaim()
        for how in ("", "fails", "lost", "fails", "", "lost", "lost", "fails", "fails"):
            claims = await started(journal, lab=lab)
            await beat(claims)
            if how:
                setattr(lab, how, "cut")
            await beat(claims)
            await beat(claims)
            lab.fails = lab.lost = ""

    asyncio.run(story())


def test_a_site_that_is_away_for_an_hour_still_knows_us() -> None:
    async def story() -> None:
        journal, lab, far = MemoryJournal(), MemoryClaim(), MemoryClaim()
        claims = await started(journal, lab=lab, far=far)
        far.fails = "no route"
        for _ in range(50):
            await beat(claims)
        far.fails = ""
        await started(journal, lab=lab, far=far)

    asyncio.run(story())


@pytest.mark.parametrize("beats", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("alive", [True, False])
def test_a_copy_is_refused_if_the_site_was_told_more_since_or_the_original_lives(beats: int, alive: bool) -> None:
    async def story() -> None:
        journal, lab = MemoryJournal(), MemoryClaim()
        claims = await started(journal, lab=lab)
        await beat(claims)
        copy = moved(journal)
        for _ in range(beats):
            await beat(claims)
        lab.renewing = alive
        if alive or beats:
            with pytest.raises(Fenced, match=r"This journal is a copy.*penstock journal restore"):
                await started(copy, lab=lab)
            await beat(claims)  # the original never noticed
        else:  # nobody else has it, and nothing happened since
            await started(copy, lab=lab)
            with pytest.raises(Fenced, match="obeys another control plane now"):
                await beat(claims)

    asyncio.run(story())


def test_a_copy_finds_out_at_a_site_that_it_reaches_only_later() -> None:
    async def story() -> None:
        journal, lab, far = MemoryJournal(), MemoryClaim(), MemoryClaim()
        claims = await started(journal, lab=lab, far=far)
        copy = moved(journal)
        for _ in range(3):
            await beat(claims)
        with pytest.raises(Fenced):
            await started(copy, far=far)

    asyncio.run(story())


def test_another_past_is_refused_however_whole_its_chain_is() -> None:
    """Somebody rewrote all steps with fresh hashes, and left the claims as they were."""

    async def story() -> None:
        journal, lab = MemoryJournal(), MemoryClaim()
        journal.rows = [(1, 0, b"[]", b"[]", 0), (2, 0, b"[]", b"[]", 0)]
        await beat(await started(journal, lab=lab))
        journal.rows[0] = (1, 7, b"[]", b"[]", 0)
        with pytest.raises(Fenced, match="knows this journal with another past"):
            await started(journal, lab=lab)
        journal.rows.clear()
        with pytest.raises(Fenced, match="knows this journal with another past"):
            await started(journal, lab=lab)

    asyncio.run(story())


def test_a_restored_backup_takes_every_site_once_and_raises_the_epoch() -> None:
    async def story() -> None:
        journal, lab, far = MemoryJournal(), MemoryClaim(), MemoryClaim()
        claims = await started(journal, lab=lab, far=far)
        backup = moved(journal)
        for _ in range(4):
            claims = await started(journal, lab=lab, far=far)
            await beat(claims)
        backup.kept.clear()
        backup.restored, lab.renewing, far.renewing, far.fails = True, True, True, "no route"
        taken = await started(backup, lab=lab, far=far)
        assert taken.sequencer.epoch == claims.sequencer.epoch + 1 == backup.epoch
        stands = lab.text
        for goes_on in (beat(claims), beat(claims), claims.last(lambda fresh: renewed(claims, fresh))):
            with pytest.raises(Fenced):
                await goes_on
        assert lab.text == stands  # whoever ends takes nothing back
        far.fails = ""
        await claims._renew("far")  # the old one renews once more before it ends
        again = await started(backup, lab=lab, far=far)  # and ours was killed before `far` answered
        await beat(again)
        another = moved(backup)
        for _ in range(3):
            await beat(again)
        with pytest.raises(Fenced):  # the permission was used up: a copy of the restored one is a copy
            await started(another, lab=lab, far=far)

    asyncio.run(story())


def test_a_restore_permits_the_sites_that_there_are_then_and_no_name_that_is_made_up_later() -> None:
    """A copy of a journal that was once restored came in by another name of the same cluster."""

    async def story() -> None:
        journal, lab = MemoryJournal(), MemoryClaim()
        journal.restored = True
        claims = await started(journal, lab=lab)
        copy = moved(journal)
        await beat(claims)
        with pytest.raises(Fenced, match="too old"):
            await started(copy, another_name=lab)
        await beat(claims)

    asyncio.run(story())


def test_a_newer_epoch_at_a_site_ends_whoever_comes_with_an_older_one() -> None:
    """A standby took over, and the database was put back to what it was before."""

    async def story() -> None:
        journal, lab = MemoryJournal(), MemoryClaim()
        claims = await started(journal, lab=lab)
        newer = Claim("memory", claims.sequencer.epoch + 5, claims.kept["lab"].incarnation, "memory")
        lab.text = packed(newer)
        refused = ""
        try:
            await started(journal, lab=lab)
        except Fenced as error:
            refused = str(error)
        assert "obeys a newer control plane" in refused

    asyncio.run(story())


def test_a_claim_that_somebody_released_is_not_made_again_but_a_lost_file_is() -> None:
    async def story() -> None:
        for store, comes_back in ((MemoryClaim(), False), (MemoryClaim(by_path=True), True)):
            claims = await started(MemoryJournal(), lab=store)
            await beat(claims)
            store.text = ""
            await beat(claims)
            await beat(claims)
            assert bool(store.text) is comes_back

    asyncio.run(story())


OURS = {"lab": KeptClaim("lab", "new", "old", "here")}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (SeenClaim(Claim("i", 3, "new", "here")), ""),
        (SeenClaim(Claim("i", 3, "old", "there")), ""),
        (SeenClaim(Claim("i", 4, "new", "here")), "obeys a newer control plane: epoch 4, and this is 3"),
        (SeenClaim(Claim("i", 1, "older", "here")), "too old"),
        (SeenClaim(Claim("i")), ""),  # of an older Penstock
        (SeenClaim(None, "x", "it is damaged"), "cannot tell whether this is its control plane: it is damaged"),
        (SeenClaim(None), ""),
    ],
)
def test_what_a_site_may_object(seen: SeenClaim, why: str) -> None:
    sentence = objection("lab", seen, OURS, "here", 3, by_path=True)
    assert why in sentence
    assert bool(sentence) is bool(why)


def test_a_folder_that_is_not_there_is_doubted_only_by_a_journal_that_moved() -> None:
    nothing = SeenClaim(None)
    assert objection("new", nothing, OURS, "here", 3, by_path=True) == ""
    assert objection("new", nothing, {}, "elsewhere", 3, by_path=True) == ""
    assert objection("new", nothing, OURS, "elsewhere", 3, by_path=False) == ""
    assert "it was moved" in objection("new", nothing, OURS, "elsewhere", 3, by_path=True)


@pytest.mark.parametrize("text", ["", "{}", "null", "[" * 9_999, '{"installation": 1}', "\ud800", "\x00"])
def test_what_is_no_claim_is_none(text: str) -> None:
    assert unpacked(text) is None


@pytest.mark.parametrize("epoch", [-1, MOST_EPOCHS, 10**30])
def test_an_epoch_that_no_journal_counts_to_is_no_claim(epoch: int) -> None:
    assert unpacked(f'{{"installation": "i", "epoch": {epoch}}}') is None
