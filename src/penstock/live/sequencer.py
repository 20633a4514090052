"""Sequencer: decides and appends, in that order, in one thread that owns engine and journal. The plane calls it.

    taken = sequencer.take(asks, facts, now)      # decided and durable, or nothing of it is

If the engine raises or the journal cannot be written, that engine is dead: its state is ahead of the journal. It is
rebuilt from the journal before the next call. A fact that raises twice, or whose row the journal cannot store (a number
or text that its database does not take), is quarantined by an event, so that one bad job never stops the plane.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Final

import msgspec

from penstock.core.decide.rules import Rules
from penstock.core.engine import Engine, Step
from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.ids import site_of
from penstock.core.model import actions as a
from penstock.core.model import events as e
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.drivers.driver import Work
from penstock.forecast import live as live_forecast
from penstock.journal import codec
from penstock.journal.folding import fold_row
from penstock.journal.journal import Fenced, Journal, Unwritable
from penstock.journal.projection import project
from penstock.journal.seal import Doubtful
from penstock.live import background_snapshot, periods, snapshot
from penstock.live.background_snapshot import BackgroundSnapshot
from penstock.live.before import REPLACES, Before
from penstock.live.fact_bounds import storable
from penstock.live.periods import Calendar
from penstock.policy import hours

#: Snapshot after so many events, which a restart folds in a quarter of a second, and at least as many as there are jobs
#: in the state, because packing them takes longer than folding their events.
SNAPSHOT_EVENTS: Final = 10_000
TOLD_MOST: Final = 2_000  #: characters kept of a quarantined fact


class Raised(Exception):
    """The engine raised, or its row cannot be stored; it is dead. Raised by `take`: so it is with every input, and a
    person must help.
    """


class Forged(Exception):
    """A blob is not what its digest in the chain says. Nothing is started from it; a person must look."""


class KeyReused(Exception):
    """The idempotency key was used with another body. The API answers 422."""


class Quarantined(Exception):
    """The engine cannot handle this input, or the journal cannot store it; it is quarantined with an alarm, and all
    else goes on. The API answers 500.
    """


@value
class Told:
    """Confirms that a request is durable. `number`: the journal row; `answer`: the first answer for the idempotency
    key.
    """

    number: int
    answer: str
    again: bool  # a repeated key: nothing new was recorded


@value
class Ask:
    """One request: all of its facts are recorded, or none."""

    facts: tuple[e.Fact, ...]
    blobs: tuple[tuple[str, bytes], ...] = ()
    key: str = ""
    body: str = ""
    answer: str = ""
    recorded: Callable[[], None] | None = None  # called when the row is durable, before anything is done because of it


@value
class SiteAction:
    """An action with the site that carries it out, and for a start, the work to run."""

    action: a.Action
    site: str
    work: Work | None = None
    refused: str = ""  # why we do not even ask the site
    repeated: bool = False  # after a restart: a control plane before us may have asked


@value
class Taken:
    """The result of one batch: durable rows, actions to dispatch, and an answer for each request."""

    steps: tuple[Step, ...]
    orders: tuple[SiteAction, ...]
    ended: tuple[tuple[str, str], ...]  # (site, attempt) whose end is recorded
    answers: tuple[Told | Exception, ...]


class Sequencer:
    def __init__(self, journal: Journal, calendar: Calendar, rules: Rules, ids: str = "j") -> None:
        self.journal, self.calendar, self.rules, self.ids = journal, calendar, rules, ids
        self.epoch = 0  #: our lease's epoch; 0: none yet
        self.engine: Engine | None = None
        self.set_aside: dict[tuple[str, str], None] = {}  #: (kind, id) of quarantined facts, to be ignored from now on
        self.unsaved = 0  #: events since the last snapshot
        self.background = BackgroundSnapshot()
        self.doubt = ""  #: says that a snapshot was not believed, and why

    # --- the one door ------------------------------------------------------------------------------------------------

    def take(self, asks: Sequence[Ask], heard: Iterable[e.Fact], now: Instant) -> Taken:
        """Record all of this at one instant. Raises the journal's errors; then nothing after the last durable row is
        recorded.
        """
        self.state_now()
        batch = _Batch(self, now)
        fresh = batch.sort_out(asks)
        units = [*fresh, *(Ask((fact,)) for fact in heard if self._wanted(fact))]
        try:
            batch.take_together(units)
        except Raised:
            if not units:  # time alone makes it raise, and time cannot be quarantined
                raise
            batch.take_one_by_one(units)
        return Taken(tuple(batch.steps), tuple(batch.orders), tuple(batch.ended), tuple(batch.answers))

    def state_now(self) -> State:
        """The state of a live engine; rebuilt first if the last one died."""
        if self.engine is None or self.engine.dead:
            self.rebuild()
        assert self.engine is not None
        return self.engine.state

    def needs_now(self) -> list[str]:
        """All needs of jobs that have not ended."""
        return list(dict.fromkeys(need for job in self.state_now().jobs.values() for need in job.spec.needs))

    def rebuild(self) -> None:
        """Fold the newest snapshot and the rows after it; all rows if there is any doubt about the snapshot."""
        self.engine = None
        engine, after = Engine(self.rules), 0
        try:
            kept = self.journal.snapshot(snapshot.schema())
            if kept is not None:
                after, engine.state = kept[0], snapshot.restored(*kept)
        except Doubtful as doubt:
            after, self.doubt = 0, f"All steps were folded: {doubt}. Check who else can write the journal."
        self.unsaved = 0
        for row in self.journal.read(after):
            self.unsaved += len(row.inputs) + len(row.outputs)
            fold_row(engine.state, row, "The journal")
        self.engine = engine
        if self.doubt and not after:  # the next `save` replaces what nobody believes
            self.unsaved = max(self.unsaved, SNAPSHOT_EVENTS, len(engine.state.jobs))
        self.engine.state.watch()  # note changes, for the journal's projection

    def outstanding(self) -> list[SiteAction]:
        state = self.state_now()
        return [replace(order, repeated=True) for order in self.orders(state, list(state.outstanding()))]

    def next_deadline(self) -> Instant | None:
        if self.engine is None or self.engine.dead:
            return None
        return self.engine.next_deadline()

    def save(self) -> None:
        """Write a snapshot if enough events have come since the last; a forked child packs a large one."""
        if done := self.background.done():
            self._keep(*done)
        if self.engine is None or self.engine.dead or self.background.child:
            return
        state = self.engine.state
        if self.unsaved < max(SNAPSHOT_EVENTS, len(state.jobs)):
            return
        if background_snapshot.FORKS and len(state.jobs) > background_snapshot.MANY_JOBS:
            with suppress(OSError):  # no memory for a child now
                self.background.begin(state)
            self.unsaved = 0
        else:
            self.save_now()

    def save_now(self) -> None:
        """Snapshot before we stop, so that the next start folds nothing."""
        self.background.give_up()
        if self.engine is not None and not self.engine.dead and self.unsaved:
            self._keep(self.engine.state.steps, snapshot.pack(self.engine.state))
            self.unsaved = 0

    def _keep(self, number: int, packed: bytes) -> None:
        with suppress(Unwritable):  # a snapshot is only a cache; the next one may succeed
            self.journal.keep_snapshot(self.epoch, number, snapshot.schema(), packed)

    # --- one step ----------------------------------------------------------------------------------------------------

    def record(self, facts: Sequence[e.Fact], blobs: Mapping[str, bytes], keys: Mapping[str, str]) -> Step:
        """Decide, then append. After any error this engine is dead."""
        engine = self.engine
        assert engine is not None
        try:
            step = engine.handle(*facts)
        except Exception as error:  # any error kills this engine
            raise Raised(f"{type(error).__name__}: {error}") from error
        engine.dead = True  # until the row is durable
        try:
            self.journal.append(self.epoch, (step,), project(engine.state, step), blobs, keys)
        except (BadInput, Fenced, Unwritable):
            raise
        except Exception as error:  # a number or text that the database does not take; nothing was written
            raise Raised(f"{type(error).__name__}: {error}") from error
        engine.dead = False
        self.unsaved += len(step.inputs) + len(step.outputs)
        return step

    def orders(
        self, state: State, actions: Iterable[a.Action], blobs: Mapping[str, bytes] | None = None
    ) -> Iterator[SiteAction]:
        """Each action with its site; actions about things that are over are dropped.

        `blobs`: just written, so that an immediate start need not read its work back from the journal.
        """
        for action in actions:
            site = _site_of(state, action)
            if site and isinstance(action, a.StartAttempt):
                yield self._start(state, action, site, blobs or {})
            elif site:
                yield SiteAction(action, site)

    def _start(self, state: State, action: a.StartAttempt, site: str, blobs: Mapping[str, bytes]) -> SiteAction:
        digest = state.jobs[action.job].spec.work
        if not digest:
            return SiteAction(action, site, Work(()))
        packed = blobs.get(digest) or self.journal.blob(digest)
        try:
            return SiteAction(action, site, None if packed is None else unpack_work(digest, packed))
        except Forged as error:
            return SiteAction(action, site, refused=f"{action.attempt} does not start: {error}")

    def _wanted(self, fact: e.Fact) -> bool:
        return not self.set_aside or _named(fact) not in self.set_aside

    def stamped(self, fact: e.Fact, now: Instant, number: int) -> e.Fact:
        """The fact with our clock, and with the job number that only we can count."""
        state = self.state_now()
        match fact:
            case e.JobSubmitted():
                return replace(fact, at=now, number=number, job=fact.job or f"{self.ids}{number}")
            case e.PolicySet():
                return replace(fact, at=now, revision=state.revision + 1)
            case _:
                return replace(fact, at=now)


class _Batch:
    """The state of one `take` call."""

    def __init__(self, sequencer: Sequencer, now: Instant) -> None:
        self.sequencer, self.now = sequencer, now
        self.steps: list[Step] = []
        self.orders: list[SiteAction] = []
        self.ended: list[tuple[str, str]] = []
        self.answers: list[Told | Exception] = []
        self.places: dict[int, list[int]] = {}  #: unit -> indices of the requests that it answers

    def sort_out(self, asks: Sequence[Ask]) -> list[Ask]:
        """The new requests. A known key gets its first answer; one key twice in a batch is one request."""
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
        """All in one row: so a hundred submissions cost one commit."""
        sequencer = self.sequencer
        state = sequencer.state_now()
        stamped = self._stamp(units)
        facts = list(dict.fromkeys(fact for unit in stamped for fact in unit.facts))  # drop duplicates
        facts += periods.due(sequencer.calendar, state.ledger.periods, self.now)
        if not facts:
            deadline = sequencer.next_deadline()
            if deadline is None or deadline > self.now:
                return
        facts += hours.due(state, facts, self.now)  # only with something else: by themselves they change nothing
        facts += live_forecast.due(state, self.now)
        self._record(facts or [e.Woke(self.now)], stamped)

    def take_one_by_one(self, units: Sequence[Ask]) -> None:
        """Something in the batch made the engine raise. Try each request alone, and quarantine those that
        raise again.
        """
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
            self.answers[k] = Quarantined(f"Penstock could not take this ({error}); it is set aside with an alarm.")

    # --- how ---------------------------------------------------------------------------------------------------------

    def _stamp(self, units: Sequence[Ask]) -> list[Ask]:
        state = self.sequencer.state_now()
        number, before = state.numbered, Before(state)
        stamped = []
        for unit in units:
            facts = []
            for fact in unit.facts:
                number += isinstance(fact, e.JobSubmitted)
                known = self.sequencer.stamped(fact, self.now, number)
                facts.append(before.with_before(known) if isinstance(known, REPLACES) else known)
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
    """Computed before the facts are handled: the state drops what is over."""
    for fact in facts:
        if isinstance(fact, e.AttemptEnded | e.AttemptStopped | e.AttemptLost) and fact.attempt in state.attempts:
            yield state.attempts[fact.attempt].offer.site, fact.attempt


def _new_job(facts: Iterable[e.Fact]) -> str:
    return next((fact.job for fact in facts if isinstance(fact, e.JobSubmitted)), "")


def _quarantined(fact: e.Fact, now: Instant, error: str) -> e.EventQuarantined:
    kind, about = _named(fact)
    return e.EventQuarantined(
        at=now,
        what=kind,
        about=storable(about, TOLD_MOST),
        error=storable(error, TOLD_MOST),
        told=storable(_told(fact), TOLD_MOST),
    )


def _told(fact: e.Fact) -> str:
    """The fact as the journal would write it, or if that is what it cannot do, as Python does."""
    try:
        return codec.encode((fact,)).decode()
    except (TypeError, ValueError, OverflowError):
        return repr(fact)


def _named(fact: e.Fact) -> tuple[str, str]:
    _, number, name = e.order(fact)
    return type(fact).__name__, name or str(number)


def _site_of(state: State, action: a.Action) -> str:
    """The action's site; empty if its subject is over already."""
    site, offer = getattr(action, "site", ""), getattr(action, "offer", "")
    if offer:
        return state.offers[offer].site if offer in state.offers else site_of(offer)
    thing = state.nodes.get(a.thing_of(action)) or state.attempts.get(a.thing_of(action))
    return site or (thing.offer.site if thing else "")


def pack_work(work: Work) -> tuple[str, bytes]:
    """The work as a blob for the journal, and the digest by which a job's spec names it."""
    packed = msgspec.json.encode(work)
    return sha256(packed).hexdigest(), packed


def unpack_work(digest: str, packed: bytes) -> Work:
    """The work that the blob of this digest holds. Raises `Forged`."""
    if sha256(packed).hexdigest() != digest:
        raise Forged(
            "what it would run is not what was submitted; somebody changed the journal's blobs. Submit it again."
        )
    made: Work = codec.reader(Work)(msgspec.json.decode(packed))
    return made
