"""`why`: a job's story, one line a decision, from what was recorded and nothing else.

A reason's own sentence is in `sentences`. Nothing here knows a policy.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.core import events as e
from penstock.core import reasons as r
from penstock.core.ids import array_of, members, site_of
from penstock.core.units import NEVER, Instant, Money
from penstock.core.values import value
from penstock.journal.sentences import Say, sentence
from penstock.journal.words import duration, instant, money


@value
class Line:
    at: Instant
    text: str


def tell(rows: Iterable[Any], job: str) -> list[Line]:
    """The lines of one job; none if the journal does not know it. `rows` have `inputs` and `outputs`."""
    teller = Teller(job)
    for row in rows:
        for event in (*row.inputs, *row.outputs):
            teller.hear(event)
    return teller.lines


class Teller:
    def __init__(self, job: str) -> None:
        self.job = job
        self.lines: list[Line] = []
        self.currency = "USD"
        self.array = array_of(job)
        self.attempts: dict[str, e.StartPromised] = {}
        self.holds: dict[str, Money] = {}
        self.spent: Money = 0

    def hear(self, event: Any) -> None:
        if isinstance(event, e.PolicySet):
            self.currency = event.policy.currency
        elif getattr(event, "job", None) == self.job or self._is_my_array(event):
            self._about_job(event)
        elif getattr(event, "attempt", None) in self.attempts:
            self._about_attempt(event)
        elif getattr(event, "hold", None) in self.holds:
            self._about_money(event)

    def _is_my_array(self, event: Any) -> bool:
        return isinstance(event, e.JobSubmitted) and event.spec.count > 1 and event.job == self.array

    def _say(self, at: Instant, text: str) -> None:
        self.lines.append(Line(at, text))

    def _about_job(self, event: Any) -> None:
        match event:
            case e.JobSubmitted(spec=spec):
                width = f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''}"
                known = f", expected to run {duration(spec.expected_run_ms)}" if spec.expected_run_ms else ""
                self._say(event.at, f"Submitted by {spec.team}: {width}{known}.")
            case e.WaitPromised() | e.JobRefused():
                self._say(event.at, self.sentence(event.because, getattr(event, "until_at", NEVER)))
            case e.StartPromised():
                self.attempts[event.attempt] = event
                for hold in (*(ask.hold for ask in event.nodes), *([event.hold] if event.hold else [])):
                    self.holds[hold.id] = sum(part.amount for part in hold.parts)
                self._say(event.at, f"{self._where(event)} {self.sentence(event.because)}{self._held(event)}")
            case e.ReservePromised():
                nodes = ", ".join(map(str, event.nodes))
                self._say(event.at, f"Node {nodes} of {event.offer} is kept for it. {self.sentence(event.because)}")
            case e.CancelRequested():
                self._say(event.at, "Cancelled by a person.")
            case e.MoveRequested():
                self._say(event.at, f"Asked by a person to move to {event.offer}.")

    def _where(self, event: e.StartPromised) -> str:
        verb = f"Joins node {event.joins} of" if event.joins else "Bursts to" if event.rented else "Starts on"
        again = " again" if len(self.attempts) > 1 else ""
        wide = f", {event.width} GPUs wide" if event.width > 1 else ""
        first = f", once {', '.join(event.copies)} is copied there" if event.copies else ""
        return f"{verb} {event.offer}{again}{wide}{first}."

    def _held(self, event: e.StartPromised) -> str:
        holds = [ask.hold for ask in event.nodes] + ([event.hold] if event.hold else [])
        if not holds:
            return ""
        held = sum(part.amount for hold in holds for part in hold.parts)
        return f" {self.cash(held)} is held, enough until {instant(holds[0].deadline_at)} and to stop."

    def _about_attempt(self, event: Any) -> None:
        match event:
            case e.AttemptStarted():
                promised = self.attempts[event.attempt]
                waited = event.at - promised.at
                if waited:
                    self._say(event.at, f"Runs on {promised.offer}, {duration(waited)} after it was asked for.")
            case e.AttemptQueued(words=words):
                site = site_of(self.attempts[event.attempt].offer)
                self._say(event.at, f"Waits at the site {site}" + (f": {words}." if words else "."))
            case e.AttemptEnded(outcome=outcome, detail=detail):
                failed = f"Failed by its own fault: {detail}." if detail else "Failed by its own fault."
                self._say(event.at, "Done." if outcome == "done" else failed)
            case e.AttemptStopped(kept_ms=kept):
                self._say(event.at, f"Stopped; {duration(kept)} of work is kept.")
            case e.AttemptLost(kept_ms=kept):
                self._say(event.at, f"Its capacity was taken away; {duration(kept)} of work is kept.")
            case e.AttemptRefused():
                self._say(event.at, f"{self.attempts[event.attempt].offer} had no room after all.")
            case e.StopPromised():
                self._say(event.at, f"Told to checkpoint and stop. {self.sentence(event.because)}")

    def _about_money(self, event: Any) -> None:
        match event:
            case e.LeaseRenewed(charged=charged):
                self.spent += sum(part.amount for part in charged)
                until = instant(event.deadline_at)
                self._say(event.at, f"Lease renewed until {until}; {self.cash(self.spent)} paid so far.")
            case e.RenewalDenied():
                self._say(event.at, f"Lease not renewed. {self.sentence(event.because)}")
            case e.LeaseCalledBack():
                self._say(event.at, f"Lease called back to {instant(event.deadline_at)}: a cap was lowered.")
            case e.Settled(charged=charged, returned=returned):
                self.spent += sum(part.amount for part in charged)
                del self.holds[event.hold]
                total = "so far" if self.holds else "in all"
                self._say(event.at, f"Settled: {self.cash(self.spent)} paid {total}, {self.cash(returned)} returned.")

    def cash(self, amount: Money) -> str:
        return money(amount, self.currency)

    def sentence(self, because: r.Reason, until: Instant = NEVER) -> str:
        return sentence(because, Say(self.currency, until))


def jobs_in(rows: Iterable[Any]) -> Iterator[str]:
    """Every job a journal knows, members of arrays included."""
    for row in rows:
        for event in row.inputs:
            if isinstance(event, e.JobSubmitted):
                yield from members(event.job, event.spec.count)
