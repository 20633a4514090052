"""Decide and write: the engine and its journal, which belong to one thread. The plane calls it.

    taken = scribe.take(asks, facts, now)      # handled, and durable; or nothing of it is

If the engine raises or the journal cannot be written, that engine is dead: it knows more than is on record. It is
rebuilt from the journal before anything else. A fact that raises twice is set aside by a fact of its own, so that one
bad job never stops the plane.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

import msgspec

from penstock.core.decide.rules import Rules
from penstock.core.engine import Engine, Step, replay
from penstock.core.fold.state import State
from penstock.core.ids import site_of
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.drivers.driver import Work
from penstock.journal import codec
from penstock.journal.journal import Journal, Unwritable
from penstock.journal.projection import project
from penstock.live import background_snapshot, periods, snapshot
from penstock.live.background_snapshot import BackgroundSnapshot
from penstock.live.periods import Calendar

#: A snapshot after so many events, which a restart folds in a quarter of a second; and after as many as there are jobs
#: in the state, because to write them down takes longer than to fold their events.
SNAPSHOT_EVENTS: Final = 10_000
TOLD_MOST: Final = 2_000  #: characters of a fact that is set aside


class Raised(Exception):
    """The engine raised, and is dead. Out of `take`: it raises whatever it is told, and only a person can help."""


class KeyReused(Exception):
    """This idempotency key came with another body before. Answered with 422."""


class Quarantined(Exception):
    """The engine cannot take this; it is set aside with an alarm, and all else goes on. Answered with 500."""


@value
class Told:
    """It is durable. `number` is the journal's row; `answer` is what the idempotency key was first answered with."""

    number: int
    answer: str
    again: bool  # the key was known: nothing new was recorded


@value
class Ask:
    """What one person asks for: all of it is recorded, or nothing."""

    facts: tuple[e.Fact, ...]
    blobs: tuple[tuple[str, bytes], ...] = ()
    key: str = ""
    body: str = ""
    answer: str = ""


@value
class SiteAction:
    """An action, and what it takes to carry it out: where, and for a start, what runs."""

    action: a.Action
    site: str
    work: Work | None = None


@value
class Taken:
    """What became of one batch: rows that are durable now, what to do about them, and an answer for each ask."""

    steps: tuple[Step, ...]
    orders: tuple[SiteAction, ...]
    ended: tuple[tuple[str, str], ...]  # site and attempt: the end is on record
    answers: tuple[Told | Exception, ...]


class Sequencer:
    def __init__(self, journal: Journal, calendar: Calendar, rules: Rules, ids: str = "j") -> None:
        self.journal, self.calendar, self.rules, self.ids = journal, calendar, rules, ids
        self.epoch = 0  #: of our lease on the journal; 0: none yet
        self.engine: Engine | None = None
        self.set_aside: dict[tuple[str, str], None] = {}  #: kind and id of facts not to be heard again
        self.unsaved = 0  #: events since the last snapshot
        self.background = BackgroundSnapshot()

    # --- the one door ------------------------------------------------------------------------------------------------

    def take(self, asks: Sequence[Ask], heard: Iterable[e.Fact], now: Instant) -> Taken:
        """Record all of this at one instant. Raises what the journal raises; then nothing after the last row is."""
        self.state_now()
        batch = _Batch(self, now)
        fresh = batch.sort_out(asks)
        units = [*fresh, *(Ask((fact,)) for fact in heard if self._wanted(fact))]
        try:
            batch.take_together(units)
        except Raised:
            if not units:  # time alone makes it raise, and time cannot be set aside
                raise
            batch.take_one_by_one(units)
        return Taken(tuple(batch.steps), tuple(batch.orders), tuple(batch.ended), tuple(batch.answers))

    def state_now(self) -> State:
        """Of a living engine; rebuilt if the last one died."""
        if self.engine is None or self.engine.dead:
            self.rebuild()
        assert self.engine is not None
        return self.engine.state

    def rebuild(self) -> None:
        """Fold what is on record: the newest snapshot, and the rows after it."""
        self.engine = None
        engine, after = Engine(self.rules), 0
        kept = self.journal.snapshot(snapshot.schema())
        if kept is not None:
            after, engine.state = kept[0], snapshot.unpack(kept[1])
        rows = self.journal.read(after)
        self.engine = replay(self._counted(rows), engine)
        self.engine.state.watch()  # each step says what it changes in the journal's tables

    def _counted(self, rows: Iterable[Any]) -> Iterator[tuple[Instant, Iterable[e.Event], Iterable[e.Event]]]:
        self.unsaved = 0
        for row in rows:
            self.unsaved += len(row.inputs) + len(row.outputs)
            yield row.at, row.inputs, row.outputs

    def outstanding(self) -> list[SiteAction]:
        state = self.state_now()
        return list(self.orders(state, list(state.outstanding())))

    def next_deadline(self) -> Instant | None:
        if self.engine is None or self.engine.dead:
            return None
        return self.engine.next_deadline()

    def save(self) -> None:
        """Keep a snapshot if there is enough that a restart would have to fold; a large one is made by a copy of us."""
        if done := self.background.done():
            self._keep(*done)
        if self.engine is None or self.engine.dead or self.background.child:
            return
        state = self.engine.state
        if self.unsaved < max(SNAPSHOT_EVENTS, len(state.jobs)):
            return
        if background_snapshot.FORKS and len(state.jobs) > background_snapshot.MANY_JOBS:
            with suppress(OSError):  # no room for a copy now
                self.background.begin(state)
            self.unsaved = 0
        else:
            self.save_now()

    def save_now(self) -> None:
        """Before we let go: the next start has nothing to fold."""
        self.background.give_up()
        if self.engine is not None and not self.engine.dead and self.unsaved:
            self._keep(self.engine.state.steps, snapshot.pack(self.engine.state))
            self.unsaved = 0

    def _keep(self, number: int, packed: bytes) -> None:
        with suppress(Unwritable):  # it is only a cache; the next one may find room
            self.journal.keep_snapshot(number, snapshot.schema(), packed)

    # --- one step ----------------------------------------------------------------------------------------------------

    def record(self, facts: Sequence[e.Fact], blobs: Mapping[str, bytes], keys: Mapping[str, str]) -> Step:
        """Handled, then durable. Whatever goes wrong, this engine is not asked again."""
        engine = self.engine
        assert engine is not None
        try:
            step = engine.handle(*facts)
        except Exception as error:  # whatever it is: this engine is dead
            raise Raised(f"{type(error).__name__}: {error}") from error
        engine.dead = True  # until it is on record
        self.journal.append(self.epoch, (step,), project(engine.state, step), blobs, keys)
        engine.dead = False
        self.unsaved += len(step.inputs) + len(step.outputs)
        return step

    def orders(
        self, state: State, actions: Iterable[a.Action], blobs: Mapping[str, bytes] | None = None
    ) -> Iterator[SiteAction]:
        """Where each is to be carried out. What is over already needs nothing any more.

        `blobs`: just written, so that what starts as soon as it comes is not read back from the journal.
        """
        for action in actions:
            site = _site_of(state, action)
            if site:
                work = self._work(state, action, blobs or {}) if isinstance(action, a.StartAttempt) else None
                yield SiteAction(action, site, work)

    def _work(self, state: State, action: a.StartAttempt, blobs: Mapping[str, bytes]) -> Work | None:
        digest = state.jobs[action.job].spec.work
        if not digest:
            return Work(())
        packed = blobs.get(digest) or self.journal.blob(digest)
        return None if packed is None else unpack_work(packed)

    def _wanted(self, fact: e.Fact) -> bool:
        return not self.set_aside or _named(fact) not in self.set_aside

    def stamped(self, fact: e.Fact, now: Instant, number: int) -> e.Fact:
        """With our own clock, and what only we can count."""
        state = self.state_now()
        match fact:
            case e.JobSubmitted():
                return replace(fact, at=now, number=number, job=fact.job or f"{self.ids}{number}")
            case e.PolicySet():
                return replace(fact, at=now, revision=state.revision + 1)
            case _:
                return replace(fact, at=now)


class _Batch:
    """One call of `take`: what became of it so far."""

    def __init__(self, sequencer: Sequencer, now: Instant) -> None:
        self.sequencer, self.now = sequencer, now
        self.steps: list[Step] = []
        self.orders: list[SiteAction] = []
        self.ended: list[tuple[str, str]] = []
        self.answers: list[Told | Exception] = []
        self.places: dict[int, list[int]] = {}  #: of each unit: the asks it answers

    def sort_out(self, asks: Sequence[Ask]) -> list[Ask]:
        """Those that are new. A known key is answered as before; the same key twice in one batch is one ask."""
        fresh: list[Ask] = []
        by_key: dict[str, int] = {}
        for k, ask in enumerate(asks):
            before = self._answered(ask) if ask.key else None
            self.answers.append(before or Told(0, "", again=True))
            if before is not None:
                continue
            if ask.key in by_key:
                unit = by_key[ask.key]
                if fresh[unit].body != ask.body:
                    self.answers[k] = KeyReused(ask.key)
                    continue
            else:
                unit = len(fresh)
                fresh.append(ask)
                if ask.key:
                    by_key[ask.key] = unit
            self.places.setdefault(unit, []).append(k)
        return fresh

    def _answered(self, ask: Ask) -> Told | Exception | None:
        known = self.sequencer.journal.answer(ask.key)
        if known is None:
            return None
        body, _, answer = known.partition(" ")
        if body != ask.body:
            return KeyReused(ask.key)
        return Told(self.sequencer.state_now().steps, answer, again=True)

    # --- together, or one by one -------------------------------------------------------------------------------------

    def take_together(self, units: Sequence[Ask]) -> None:
        """All of one instant in one row: that is what makes a hundred submissions cost one commit."""
        sequencer = self.sequencer
        state = sequencer.state_now()
        stamped = self._stamp(units)
        facts = list(dict.fromkeys(fact for unit in stamped for fact in unit.facts))  # said twice is said once
        facts += periods.due(sequencer.calendar, state.ledger.periods, self.now)
        if not facts:
            deadline = sequencer.next_deadline()
            if deadline is None or deadline > self.now:
                return
            facts = [e.Woke(self.now)]
        self._record(facts, stamped)

    def take_one_by_one(self, units: Sequence[Ask]) -> None:
        """Something in the batch makes the engine raise: what raises alone, too, is set aside, and all else goes on."""
        for k, unit in enumerate(units):
            (stamped,) = self._stamp([unit])
            try:
                self._record(stamped.facts, [stamped], k)
            except Raised as error:
                self._set_aside(k, stamped, str(error))

    def _set_aside(self, unit: int, stamped: Ask, error: str) -> None:
        sequencer = self.sequencer
        sequencer.state_now()
        self._record([_quarantined(fact, self.now, error) for fact in stamped.facts], [])
        sequencer.set_aside.update(dict.fromkeys(map(_named, stamped.facts)))
        for k in self.places.get(unit, ()):
            self.answers[k] = Quarantined(f"The engine could not take this ({error}); it is set aside with an alarm.")

    # --- how ---------------------------------------------------------------------------------------------------------

    def _stamp(self, units: Sequence[Ask]) -> list[Ask]:
        number = self.sequencer.state_now().numbered
        stamped = []
        for unit in units:
            facts = []
            for fact in unit.facts:
                number += isinstance(fact, e.JobSubmitted)
                facts.append(self.sequencer.stamped(fact, self.now, number))
            stamped.append(replace(unit, facts=tuple(facts), answer=unit.answer or _new_job(facts)))
        return stamped

    def _record(self, facts: Sequence[e.Fact], units: Sequence[Ask], first: int = 0) -> None:
        sequencer = self.sequencer
        blobs = {digest: blob for unit in units for digest, blob in unit.blobs}
        keys = {unit.key: f"{unit.body} {unit.answer}" for unit in units if unit.key}
        ended = list(_ended(sequencer.state_now(), facts))
        step = sequencer.record(facts, blobs, keys)
        self.steps.append(step)
        self.ended += ended
        self.orders += sequencer.orders(sequencer.state_now(), step.actions, blobs)
        for k, unit in enumerate(units, first):
            for again, place in enumerate(self.places.get(k, ())):
                self.answers[place] = Told(step.number, unit.answer, again=bool(again))


def _ended(state: State, facts: Iterable[e.Fact]) -> Iterator[tuple[str, str]]:
    """Asked before they are handled: the state forgets what is over."""
    for fact in facts:
        if isinstance(fact, e.AttemptEnded | e.AttemptStopped | e.AttemptLost) and fact.attempt in state.attempts:
            yield state.attempts[fact.attempt].offer.site, fact.attempt


def _new_job(facts: Iterable[e.Fact]) -> str:
    return next((fact.job for fact in facts if isinstance(fact, e.JobSubmitted)), "")


def _quarantined(fact: e.Fact, now: Instant, error: str) -> e.EventQuarantined:
    kind, about = _named(fact)
    told = codec.encode((fact,)).decode()[:TOLD_MOST]
    return e.EventQuarantined(now, kind, about, error[:TOLD_MOST], told)


def _named(fact: e.Fact) -> tuple[str, str]:
    _, number, name = e.order(fact)
    return type(fact).__name__, name or str(number)


def _site_of(state: State, action: a.Action) -> str:
    """Empty if what it is about is over already."""
    site, offer = getattr(action, "site", ""), getattr(action, "offer", "")
    if offer:
        return state.offers[offer].site if offer in state.offers else site_of(offer)
    thing = state.nodes.get(a.thing_of(action)) or state.attempts.get(a.thing_of(action))
    return site or (thing.offer.site if thing else "")


def pack_work(work: Work) -> tuple[str, bytes]:
    """What runs, as a blob beside the journal, and the digest that a job's spec names it by."""
    packed = msgspec.json.encode(work)
    return sha256(packed).hexdigest(), packed


def unpack_work(packed: bytes) -> Work:
    made: Work = codec.reader(Work)(msgspec.json.decode(packed))
    return made
