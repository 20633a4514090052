"""The live control plane: accepts submissions and facts, publishes a view, answers what-ifs. The API calls it.

    plane = Plane(journal, drivers, Setup(opening=facts))
    await plane.start()                        # replays, looks at every site, repeats outstanding actions
    told = await plane.submit(spec, work)      # returns once the job is durable
    plane.view                                 # an immutable view of the last step

All of it runs in one event loop. The engine and the journal's writes have a thread of their own (`sequencer`), so that
the loop answers while the engine decides. One turn: empty the inbox, decide, append the row, and only then
act and answer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Mapping
from dataclasses import field, replace
from time import monotonic
from typing import Any, Final, TypeVar

from penstock.config.teams import Team
from penstock.core.decide.rules import Rules
from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.events import Fact
from penstock.core.model.types import JobSpec
from penstock.core.plan import Plan, plan
from penstock.core.units import HOUR, MINUTE, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.drivers.driver import Command, Driver, Work
from penstock.journal.journal import Durability, Fenced, Journal, LostSteps, Unwritable
from penstock.kube.exec_protocol import Printed, Typed
from penstock.live import config_facts, periods
from penstock.live.admission import Admission
from penstock.live.alarms import Alarms
from penstock.live.clock import Clock
from penstock.live.clock_watch import ClockWatch
from penstock.live.config_facts import RaisedCap
from penstock.live.dispatch import Dispatch
from penstock.live.engine_thread import CallThread, EngineThread
from penstock.live.fact_bounds import bounded
from penstock.live.inbox import MOST_TOGETHER, Inbox, Waiting
from penstock.live.journal_lease import JournalLease
from penstock.live.open_sites import OpenSites
from penstock.live.periods import Calendar, Periods
from penstock.live.published_view import PublishedView
from penstock.live.sequencer import Ask, KeyReused, Quarantined, Raised, Sequencer, SiteAction, Taken, Told, pack_work
from penstock.live.site_claims import SiteClaims
from penstock.live.space_reserve import SpaceReserve
from penstock.live.view import Alarm, View, picture
from penstock.live.what_if import Question, Unanswered
from penstock.policy import hours
from penstock.policy.rules import PolicyRules

__all__ = ["KeyReused", "NotReady", "Plane", "Quarantined", "Setup", "Told"]

#: Retry interval while the journal is unwritable.
RETRY_MS: Final[Millis] = 2 * SECOND
STUCK_MS: Final[Millis] = 60 * SECOND  #: the same while the engine raises on every input
#: How long idempotency keys are kept.
KEYS_MS: Final[Millis] = 24 * HOUR
#: Concurrent what-ifs; each may take a CPU for a while.
MOST_WHAT_IFS: Final = 2

WATCH_SECONDS: Final = 1.0  #: how often we look whether the journal answers
SILENT_SECONDS: Final = 12.0  #: a database that has not answered for so long stands still; PostgreSQL's has less
#: Steps at least whose numbers are skipped when a journal goes on without what followed.
LOST_AT_LEAST: Final = 20

SILENT: Final = (
    "The journal has not answered for {} s, so Penstock takes no submissions and starts nothing. What was submitted in"
    " these seconds may be recorded: send it again with the same Idempotency-Key, or look for it when Penstock is back."
)
DISK_FULL: Final = (
    "The disk is nearly full, so Penstock takes no new jobs; what runs goes on, and jobs can be cancelled. Free space "
    "on the disk with the journal; Penstock then continues by itself."
)

T = TypeVar("T")


class NotReady(Exception):
    """Nothing was recorded and nothing will be. The message says why and what to do. The API answers 503."""


@value
class Setup:
    """Settings of an installation beside its journal and drivers."""

    opening: tuple[
        Fact, ...
    ] = ()  # policy, caps, sites and data as configured; facts that are known already are dropped
    accept_raised_caps: bool = False  # may the configuration raise a cap above the one in force?
    accept_clock: bool = False  # is the wall clock right, however far it is ahead of the journal?
    simulated: bool = False  # a rehearsal's time, at whatever speed
    holder: str = "penstock"  # names the machine and the set-up, for the journal's lease
    stand_by: bool = False  # wait while another process writes the journal, instead of refusing
    calendar: Calendar | None = None  # of budget periods; None: months in UTC
    rules: Rules | None = None
    texts: tuple[tuple[str, bytes], ...] = ()  # the policy file that `opening` comes from, by its digest
    ids: str = "j"  # prefix of new jobs' ids
    lease_ms: Millis = 30 * SECOND  # on the journal: how long another process waits if we disappear
    beat_ms: Millis = 5 * SECOND  # how often the journal's lease is renewed and the wall clock checked
    look_ms: Millis = 30 * SECOND  # how often sites are probed: an unreachable one is named within 40 s
    teams: tuple[Team, ...] = ()  # what each may use; the usual for those that are not here
    data_teams: tuple[tuple[str, tuple[str, ...]], ...] = ()  # data sets that only these teams may use
    queued: Callable[[str], int] = field(default=lambda _team: 0)  # counts a team's queued jobs, in any thread
    queued_by: Callable[[str], int] = field(default=lambda _user: 0)  # a person's, likewise
    reserve: SpaceReserve | None = None  # of the disk that has the journal
    turns_away: Callable[[JobSpec], str] = lambda _: ""  # why a job is not taken at all; empty if it is


class Plane:
    def __init__(
        self,
        journal: Journal,
        drivers: Mapping[str, Driver],
        setup: Setup | None = None,
        clock: Clock | None = None,
        thread: CallThread | None = None,
    ) -> None:
        self.journal, self.drivers, self.setup = journal, dict(drivers), setup or Setup()
        self.clock = clock or Clock()
        self.thread = thread or EngineThread()
        self.installation = journal.installation
        calendar, rules = self.setup.calendar or Periods(), self.setup.rules or PolicyRules()
        self.sequencer = Sequencer(journal, calendar, rules, self.setup.ids)
        self.alarms = Alarms(self.clock.now)
        self.clock_watch = ClockWatch(self.clock, self.alarms.set, self.setup.accept_clock, self.setup.simulated)
        self.lease = JournalLease(journal, self.clock, self._think, self.setup.holder, self.setup.lease_ms)
        self.dispatch = Dispatch(self.drivers, self.hear, self.alarms.set, lambda: self.lease.is_valid)
        self.claims = SiteClaims(self.sequencer, drivers, self.setup.holder, self._think)
        self.sites = OpenSites(
            self.drivers,
            sequencer=self.sequencer,
            claims=self.claims,
            dispatch=self.dispatch,
            alarms=self.alarms,
            clock=self.clock,
            hear=self.hear,
            think=self._think,
            run=self._begin,
            look_ms=self.setup.look_ms,
        )
        self.claims.doubt = self.dispatch.doubt = self.sites.doubt
        self._capped: Collection[str] = ()  #: scopes with a cap, as of the view
        self._registered: Container[str] = ()  #: data sets, likewise
        self._classes: tuple[str, ...] = ()  #: that the policy declares, likewise
        self._in_policy: tuple[str, ...] = ()  #: teams that the policy names, likewise
        self.admission = Admission(
            teams=self.setup.teams,
            data_teams=self.setup.data_teams,
            queued=self.setup.queued,
            queued_by=self.setup.queued_by,
            capped=lambda: self._capped,
            registered=lambda: self._registered,
            now=monotonic,
            classes=lambda: self._classes,
            in_policy=lambda: self._in_policy,
        )
        self.raised_caps: dict[str, RaisedCap] = {}  #: by scope: the file raises it, and nobody has accepted it
        self.number = 0  #: the journal's last row
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()  #: done when the plane has stopped
        self._inbox = Inbox()
        self._published = PublishedView()
        self._news = asyncio.Event()
        self._trouble = "Penstock is starting; try again in a few seconds."
        self.lost = False  #: the journal does not have all that it answered
        self.durability = Durability()  #: what a failover of its database can lose
        self._in_turn: list[Waiting] = []  #: requests that the engine has now
        self._durability_at: Instant = 0
        self._gone = False
        self._wakes_at: Instant | None = None
        self._retry_at: Instant = 0
        self._forgot_at: Instant = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._what_ifs = asyncio.Semaphore(MOST_WHAT_IFS)

    # --- starting and stopping ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises `Held` (another process writes the journal), `Refused` (another installation works at a site) and
        `Fenced` (this is a copy of the journal that a site obeys).
        """
        stand_by = self._stand_by if self.setup.stand_by else None
        self.sequencer.epoch = await self.lease.claim(stand_by=stand_by, again_ms=self.setup.beat_ms)
        state = await self._think(self.sequencer.state_now)
        self.clock_watch.begin(state)
        self.number = state.steps
        self.sites.know_lost(state.lost_sites)
        await self._look_at_disk()
        await self.claims.begin()
        await self._think(self.journal.remember)
        self._look_at_memory()
        await self.sites.look()
        self._consider_needs(await self._think(self.sequencer.needs_now))
        accept = self.setup.accept_raised_caps
        news = config_facts.news(state, self.setup.opening, self.drivers, accept_raised_caps=accept)
        await self._record_first([*await self._restored(state), *news])
        await self.claims.settle()
        if not self._retry_at:
            self._trouble = ""
        self._dispatch(await self._think(self.sequencer.outstanding))
        with contextlib.suppress(Unwritable):  # the heartbeat asks again
            await self._look_at_durability()
        self.clock_watch.look()
        self.clock.keep()
        self._begin(self._turns())
        self._begin(self._beats())
        self._begin(self._watch_journal())
        self._begin(self.claims.run())
        self.sites.begin()

    async def _restored(self, state: State) -> list[Fact]:
        """A person let this journal go on without steps that it had: on record, with numbers that nobody gets again."""
        if not self.claims.restored:
            return []
        missing = await self._think(self.journal.missing)
        skipped = max(missing.steps, LOST_AT_LEAST) * MOST_TOGETHER
        return [e.JournalRestored(0, state.steps, missing.steps, skipped, missing.says)]

    def _stand_by(self, why: str) -> None:
        self._trouble = why

    async def _record_first(self, news: list[Fact]) -> None:
        """Record what configuration and sites report. Resulting actions are outstanding, and are dispatched once with
        all others.
        """
        facts = news + self._inbox.take_facts(self.clock_watch.waiting)
        if facts or not self.number:
            try:
                policy = tuple(fact for fact in facts if isinstance(fact, e.PolicySet))
                asks = [Ask(policy, self.setup.texts)] if policy else []
                others = [fact for fact in facts if fact not in policy]
                self._note(await self._think(self.sequencer.take, asks, others, self.clock.now()))
            except Raised as error:  # stay up, so that a person sees why; turns try it again
                self._set_back([], facts, error)
        await self._publish()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """One of our tasks ended by itself, so the plane stops. `over` carries the reason."""
        self._tasks.remove(task)
        if not task.cancelled() and not self.over.done():
            error = task.exception()
            if error is None:
                self.over.set_result(None)
            else:
                self.alarms.set("journal", "journal", f"Penstock has stopped: {error}")
                self._let_go(f"Penstock has stopped: {error}")
                self.over.set_exception(error)

    def _let_go(self, why: str) -> None:
        """From now on no site is called and no request is accepted."""
        self._trouble, self._gone = why, True
        for task in self._tasks:
            task.cancel()
        self.dispatch.cancel()
        self._inbox.turn_away(NotReady(why))

    async def stop(self) -> None:
        """Stop the plane. Running jobs are not touched."""
        self._let_go("Penstock is stopping; try again when it is back.")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.dispatch.stop()
        if self.sequencer.epoch:
            with contextlib.suppress(Unwritable, Fenced):
                await self.claims.last(self.lease.renew)
        await self.sites.close()
        if self.sequencer.epoch:
            with contextlib.suppress(Unwritable, Fenced):
                await self._think(self.sequencer.save_now)
                await self.lease.release()
        self.thread.shutdown()
        if not self.over.done():
            self.over.set_result(None)

    # --- sites that come and go --------------------------------------------------------------------------------------

    async def open_site(self, site: str, driver: Driver) -> Callable[[], None]:
        """As `OpenSites.open_one`."""
        driver.consider(await self._think(self.sequencer.needs_now))
        return await self.sites.open_one(site, driver)

    async def close_site(self, site: str) -> None:
        """As `OpenSites.close_one`."""
        await self.sites.close_one(site)

    # --- what one may ask --------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The view of the last step, with current alarms. Available once `start` has returned."""
        view = self._latest()
        return replace(view, alarms=view.alarms + self.alarms.now())

    @property
    def at(self) -> Instant:
        """The view's instant."""
        return self._latest().at

    def _latest(self) -> View:
        if self._published.latest is None:
            raise NotReady(self._trouble)
        return self._published.latest

    @property
    def ready(self) -> str:
        """Empty if submissions are accepted; otherwise a sentence that says why not and what to do."""
        return self._trouble or (DISK_FULL if self._is_short_of_disk else "")

    def trouble_at(self, site: str) -> Alarm | None:
        """Why this site does not answer; None if it does."""
        return self.alarms.standing.get(site)

    async def submit(self, spec: JobSpec, work: Work, *, key: str = "", body: str = "") -> Told:
        """Record a new job; `answer` is its id. Raises `NotReady`, `Quarantined`, `BadInput`.

        `key`: an idempotency key, already made unique to the caller (prefix it with the token's id). The same key
        again returns the first answer with `again`; with another `body` digest it raises `KeyReused`.
        """
        digest, packed = pack_work(work)
        return await self.submit_packed(replace(spec, work=digest), packed, key=key, body=body)

    async def submit_packed(self, spec: JobSpec, packed: bytes, *, key: str = "", body: str = "") -> Told:
        """The same for work that is packed already; `spec.work` is its digest."""
        if words := self.setup.turns_away(spec):
            raise BadInput(words)
        self._consider_needs(spec.needs)
        return await self.tell(e.JobSubmitted(0, 0, "", spec), blobs={spec.work: packed}, key=key, body=body)

    def _consider_needs(self, needs: Iterable[str]) -> None:
        """Sites say which of their nodes do not meet these, before a job that has them is decided."""
        needs = list(needs)
        for driver in self.drivers.values() if needs else ():
            driver.consider(needs)

    async def tell(
        self,
        *facts: Fact,
        blobs: Mapping[str, bytes] | None = None,
        key: str = "",
        body: str = "",
        answer: str = "",
        recorded: Callable[[], None] | None = None,
    ) -> Told:
        """Record facts; returns after the durable commit. Their `at` is ignored: the loop stamps them.

        So are the `number` of a `JobSubmitted` and the `revision` of a `PolicySet`. A `JobSubmitted` without a `job`
        is given an id, which is the answer if no other is given. `blobs`: by SHA-256 in hex. `recorded` is called
        between the commit and the actions that follow from it.
        """
        if self._trouble:
            raise NotReady(self._trouble)
        if self._is_short_of_disk and any(isinstance(fact, e.JobSubmitted) for fact in facts):
            raise NotReady(DISK_FULL)
        return await self._inbox.ask(Ask(facts, tuple((blobs or {}).items()), key, body, answer, recorded))

    async def caught_up(self) -> None:
        """Returns once the view has all that is recorded now, so that who was answered sees it. The view follows the
        journal by a moment, and under load by more.
        """
        await self._published.caught_up(self.number)

    async def erase(self, *digests: str) -> None:
        """Erase blobs for good, in the journal's own thread. Raises `NotReady` and `Unwritable`."""
        for start in range(0, len(digests), MOST_TOGETHER):
            some = digests[start : start + MOST_TOGETHER]
            try:
                await self._think(self.journal.erase_blob, self.sequencer.epoch, *some)
            except Fenced as error:  # the next heartbeat ends us
                raise NotReady(f"Not all of it was erased: {error} Ask that one again.") from None

    async def plan(self, spec: JobSpec) -> Plan:
        """What the engine would decide if this job were submitted now. Nothing is recorded. Raises `NotReady`."""
        if self._trouble:
            raise NotReady(self._trouble)
        try:  # shielded: the forked child must be reaped even if the caller is cancelled
            unsuited = [fact for driver in self.drivers.values() for fact in driver.judged(spec.needs)]
            return await asyncio.shield(self._what_if(lambda copy: self._planned(copy, spec, unsuited)))
        except Unanswered as error:
            raise NotReady(f"The plan could not be made ({error}); try again, and report it if that fails.") from None

    def _planned(self, copy: State, spec: JobSpec, unsuited: Iterable[e.NodesUnsuited]) -> Plan:
        """The facts of the turn that would accept it; the sequencer opens budget periods in the same turn."""
        now, sequencer = self.clock.now(), self.sequencer
        said: list[Fact] = [replace(fact, at=now) for fact in unsuited]
        also: list[Fact] = [
            *said,
            *periods.due(sequencer.calendar, copy.ledger.periods, now),
            *hours.due(copy, (), now),
        ]
        number = copy.numbered + 1
        return plan(copy, sequencer.rules, e.JobSubmitted(now, number, f"{sequencer.ids}{number}", spec), tuple(also))

    async def consider(self, answer: Callable[[State, Rules], T]) -> T:
        """An answer about the state as it is, between two steps. It must change nothing, and be quick."""
        if self._trouble:
            raise NotReady(self._trouble)
        return await self._think(lambda: answer(self.sequencer.state_now(), self.sequencer.rules))

    async def configure(
        self,
        opening: tuple[Fact, ...],
        teams: tuple[Team, ...],
        data_teams: Iterable[tuple[str, tuple[str, ...]]] | None = None,
    ) -> None:
        """The configuration says this from now on; what was new in it is recorded already. When this returns, caps that
        it raises wait for a person.
        """
        self.setup = replace(self.setup, opening=opening, teams=teams)
        self.admission.use(teams)
        if data_teams is not None:
            self.admission.data_teams = dict(data_teams)
        await self._publish()

    async def _what_if(self, answer: Callable[[State], T]) -> T:
        async with self._what_ifs:
            question = await self._think(lambda: Question(self.sequencer.state_now(), answer))
            return await question.answer()

    async def log(self, site: str, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        """Bytes of an attempt's log, and whether more may come. Raises the driver's errors; KeyError: no such site."""
        return await self.drivers[site].log(attempt, after, most, rank)

    async def exec(self, site: str, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        """Run a command where an attempt runs; its exit code. Raises the driver's errors; KeyError: no such site."""
        return await self.drivers[site].exec(attempt, command, typed, printed)

    async def heard(self, number: int) -> int:
        """Wait until the journal has a row after `number`; returns the newest row's number. For event streams and the
        front door.
        """
        while self.number <= number:
            await self._news.wait()
        return self.number

    def hear(self, fact: Fact) -> None:
        """A driver reports a fact. Called in the event loop's thread."""
        self._inbox.hear(bounded(fact))

    # --- turns -------------------------------------------------------------------------------------------------------

    async def _turns(self) -> None:
        while True:
            await self._something()
            await self.clock.settle()
            turn = asyncio.ensure_future(self._turn())
            try:
                await asyncio.shield(turn)
            except asyncio.CancelledError:  # finish and answer the row in progress first
                await turn
                raise

    async def _something(self) -> None:
        """Wait until the inbox has something, or the engine's next deadline."""
        if self._retry_at:
            await asyncio.sleep(self.clock.seconds_until(self._retry_at))
        elif not self._inbox.filled.is_set():
            left = None if self._wakes_at is None else self.clock.seconds_until(self._wakes_at)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._inbox.filled.wait()

    async def _turn(self) -> None:
        if jump := self.clock.jumped():
            await self._after_a_jump(jump)
        self.clock_watch.look()
        asks, heard = self._inbox.take_asks(), self._inbox.take_facts(self.clock_watch.waiting)
        self._in_turn = asks
        try:
            if self._retry_at:  # check whether the journal is writable again
                await self.lease.renew()
            taken = await self._think(self.sequencer.take, [ask for ask, _ in asks], heard, self.clock.now())
        except (Unwritable, Raised) as error:
            self._set_back(asks, heard, error)
            return
        except BaseException:
            self._inbox.put_back(asks)  # `_let_go` rejects them
            raise
        finally:
            self._in_turn = []
        await self._act(taken, asks)

    async def _act(self, taken: Taken, asks: list[Waiting]) -> None:
        """The row is durable: dispatch its actions and answer its requests."""
        for (ask, _), answer in zip(asks, taken.answers, strict=True):
            if ask.recorded is not None and isinstance(answer, Told):
                ask.recorded()
        self._dispatch(taken.orders)
        for (_, future), answer in zip(asks, taken.answers, strict=True):
            if future.done():  # the caller was cancelled
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._note(taken)
        if self._retry_at:  # actions from before the trouble may not have been dispatched
            self._retry_at, self._trouble, self.lost = 0, "", False
            self.alarms.set("", "journal", "")
            await self._look_at_disk()
            self._dispatch(await self._think(self.sequencer.outstanding))
        if self._published.is_due(self.clock.now(), busy=self._inbox.filled.is_set()):
            await self._publish()

    def _dispatch(self, orders: Iterable[SiteAction]) -> None:
        for order in () if self._gone else orders:  # undispatched actions are outstanding at the next start
            self.dispatch.do(order)

    def _note(self, taken: Taken) -> None:
        if not taken.steps:
            return
        self.number = taken.steps[-1].number
        self._published.stale = True
        for site, attempt in taken.ended:
            self.dispatch.forget(site, attempt)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _publish(self) -> None:
        view, raised = await self._think(self._draw)
        self._published.publish(view, self.clock.now(), self.number)
        self.alarms.set("snapshot", "snapshot", self.sequencer.doubt)
        for scope in self.raised_caps.keys() | raised.keys():
            self.alarms.set("cap", f"cap of {scope}", raised[scope].says if scope in raised else "")
        self.raised_caps = raised

    def _draw(self) -> tuple[View, dict[str, RaisedCap]]:
        self._wakes_at = self.sequencer.next_deadline()
        self.sequencer.save()
        state = self.sequencer.state_now()
        self._capped = frozenset((*state.ledger.caps, *state.ledger.rate_caps))
        self._registered = frozenset(state.data)
        self._classes = tuple([rule.name for rule in state.policy.governance.classes])
        self._in_policy = tuple([rule.team for rule in state.policy.governance.teams])
        raised = config_facts.raised_caps(state, self.setup.opening)
        return picture(state, tuple(Alarm(*alarm) for alarm in state.alarms)), raised

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    @property
    def _is_short_of_disk(self) -> bool:
        return self.setup.reserve is not None and self.setup.reserve.is_spent

    async def _look_at_disk(self) -> None:
        if self.setup.reserve is not None:
            await self._think(self.setup.reserve.look)
            self.alarms.set("disk", "disk", DISK_FULL if self._is_short_of_disk else "")

    def _look_at_memory(self) -> None:
        self.alarms.set("journal", "head memory", self.journal.memory_trouble())

    def _set_back(self, asks: list[Waiting], heard: list[Fact], error: Exception) -> None:
        """Nothing was recorded. Requests fail at once; facts of sites wait until the journal is writable."""
        self._trouble, self.lost = _advice(error), isinstance(error, LostSteps)
        self.alarms.set("journal", "journal", self._trouble)
        self._inbox.put_back(asks, heard)
        self._inbox.turn_away(NotReady(self._trouble))
        if self.setup.reserve is not None and isinstance(error, Unwritable):
            self.setup.reserve.spend()  # if it is not the disk, `look` makes it anew
        wait_ms = RETRY_MS if isinstance(error, Unwritable) else STUCK_MS
        self._retry_at = self.clock.now() + int(wait_ms * self.clock.speed)

    async def _after_a_jump(self, by: Millis) -> None:
        """Record the jump at the old time, look at every site, and only then accept the later time."""
        self._inbox.facts.append(e.ClockJumped(0, by))
        await self.sites.look()
        self.clock.accept(by)

    async def _beats(self) -> None:
        """Heartbeat: renew the journal's lease and check for clock jumps."""
        while True:
            await asyncio.sleep(self.setup.beat_ms / SECOND)
            await self._look_at_disk()
            try:
                claims = self.claims.next()
                self.claims.committed(claims, await self.lease.renew(claims))
                self._look_at_memory()
                await self._think(self.sequencer.save)
                await self._forget_keys()
                await self._look_at_durability()
            except Unwritable as error:  # also when nobody asks for anything: we are not ready
                if not self._retry_at:
                    self._set_back([], [], error)
                    self._inbox.filled.set()  # turns try it again
            self.clock_watch.look()
            if self.clock.jumped() or (self._inbox.facts and not self.clock.doubt):
                self._inbox.filled.set()
            self.clock.keep()

    async def _watch_journal(self) -> None:
        """While the journal does not answer, nobody waits for it: requests get a sentence, and we are not ready."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            silent = self.journal.silent_s()
            if silent >= SILENT_SECONDS and not self._retry_at:
                self._trouble = SILENT.format(int(silent))
                self.alarms.set("journal", "journal", self._trouble)
                self._retry_at = self.clock.now()
                self._inbox.filled.set()  # a turn, which is over when it is answered
                self._inbox.turn_away(NotReady(self._trouble))
                for _, future in self._in_turn:
                    if not future.done():
                        future.set_exception(NotReady(self._trouble))

    async def _look_at_durability(self) -> None:
        now = self.clock.now()
        if not self.durability.says or now - self._durability_at >= MINUTE:
            self._durability_at = now
            self.durability = await self._think(self.journal.durability)

    async def _forget_keys(self) -> None:
        """Expire idempotency keys: clients retry within minutes."""
        now = self.clock.now()
        if now - self._forgot_at >= KEYS_MS // 24:
            self._forgot_at = now
            await self._think(self.journal.forget_answers, self.sequencer.epoch, now - KEYS_MS)

    async def _think(self, work: Callable[..., T], *args: Any) -> T:
        return await self.thread.call(work, *args)


def _advice(error: Exception) -> str:
    if isinstance(error, LostSteps):
        return f"{error} Until then Penstock takes no submissions and starts nothing; what runs goes on."
    if isinstance(error, Unwritable):
        return (
            f"The journal cannot be written ({error}), so Penstock takes no submissions and starts nothing. "
            "Free space on its disk or restore its database; Penstock then continues by itself."
        )
    return f"The engine failed ({error}); Penstock starts nothing. Report this with the journal."
