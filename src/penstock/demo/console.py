"""The demo's output: a line for each notable event, and on a terminal a small live picture below. `script` and
`clusters` use it.
"""

import importlib.util
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from penstock.core.ids import attempt_of
from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.demo.observer import JobTrail, Observer, holds_of, price_of
from penstock.explain.story import StoryTeller
from penstock.formatting import money

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

CURRENCY = "USD"


class Console:
    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.began = quiet, time.monotonic()
        self.live: Live | None = None

    def watching(self) -> AbstractContextManager[object]:
        """A live picture while the block runs, if a person watches and rich is installed."""
        if self.quiet or not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
            return nullcontext()
        from rich.live import Live

        self.live = Live(refresh_per_second=4, transient=True)
        return self.live

    def say(self, text: str = "") -> None:
        if self.quiet:
            return
        if self.live is not None:
            self.live.console.print(text, markup=False, highlight=False)
        else:
            print(text, flush=True)

    def now(self, text: str) -> None:
        self.say(f"{time.monotonic() - self.began:6.1f} s  {text}")

    # --- the journal's news ------------------------------------------------------------------------------------------

    def tell(self, seen: Observer, event: Any) -> None:
        if said := line(seen, event):
            self.now(said)
        if self.live is not None:
            self.live.update(_picture(seen))


def line(seen: Observer, event: Any) -> str:
    """What is told of an event; empty: nothing."""
    match event:
        case e.StartPromised():
            return _start(seen, event)
        case e.WaitPromised(because=r.CapBinds() as because):
            return f"{seen.jobs[event.job].name} stays queued. {_sentence(event.job, because)}"
        case e.AttemptLost():
            attempt = seen.tries[event.attempt]
            return f"{seen.jobs[attempt.promise.job].name}: preempted, {attempt.promise.offer} reclaimed its node."
        case e.NodeRefused(words=words) if words:
            return f"{seen.tries[attempt_of(event.node)].promise.offer}: no node. {words}"
        case e.NodeNotice():
            return f"{seen.tries[attempt_of(event.node)].promise.offer}: {event.words}; no job joins it any more."
        case e.AttemptStopped():
            trail = seen.jobs[seen.tries[event.attempt].promise.job]
            return f"{trail.name} stopped in time." if _had_notice(seen, event.attempt) else ""
        case e.AttemptEnded(outcome=outcome):
            trail = seen.jobs[seen.tries[event.attempt].promise.job]
            paid = f", {money(trail.charged, CURRENCY)} charged in all" if trail.charged and seen.is_paid(trail) else ""
            return f"{trail.name} {'succeeded' if outcome == 'done' else outcome}{paid}."
        case e.Settled(hold=hold):
            payer = seen.payer(hold)
            if payer is None or not seen.is_paid(payer):
                return ""
            return f"{payer.name}: {money(payer.charged, CURRENCY)} charged in all."
        case _:
            return ""


def _start(seen: Observer, event: e.StartPromised) -> str:
    name, because = seen.jobs[event.job].name, event.because
    sentence = _sentence(event.job, because)
    match because:
        case r.LostNode():
            lost = seen.tries[because.lost_attempt]
            cost = money(price_of(lost, because.redone_ms), CURRENCY)
            return f"{name} resumes on {event.offer}: {because.redone_ms / 1000:.1f} s of work lost, {cost}."
        case r.ComesHome():
            return f"{name} leaves {seen.jobs[event.job].tries[-2].promise.offer} for {event.offer}. {sentence}"
    verb = "bursts to" if holds_of(event) else "starts on"
    return f"{name} {verb} {event.offer}. {sentence}"


def _sentence(job: str, because: r.Reason) -> str:
    return StoryTeller(job).sentence(because)


def _had_notice(seen: Observer, attempt: str) -> bool:
    return any(hold.id in seen.noticed for hold in holds_of(seen.tries[attempt].promise))


def _picture(seen: Observer) -> "Table":
    from rich.table import Table

    table = Table(box=None)
    for column in ("job", "where", "tries", "charged"):
        table.add_column(column)
    for trail in seen.jobs.values():
        table.add_row(trail.name, _where(trail), str(len(trail.tries)), money(trail.charged, CURRENCY))
    return table


def _where(trail: JobTrail) -> str:
    if not trail.tries or trail.tries[-1].how in ("lost", "stopped"):
        return "queued"
    last = trail.tries[-1]
    return last.how or f"{last.promise.offer}{'' if last.started_at else ' (starting)'}"
