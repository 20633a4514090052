"""`why`: a job's story, one line a decision, from what was recorded and nothing else.

Every sentence is made from a reason's own numbers. Nothing here knows a policy.
"""

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from penstock.core import events as e
from penstock.core import reasons as r
from penstock.core.units import NEVER, Instant, Millis, Money
from penstock.core.values import value
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
        self.array = job.rpartition("/")[0]
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
        verb = "Bursts to" if event.nodes or event.hold else "Starts on"
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

    def sentence(self, because: r.Reason, until: Instant = NEVER) -> str:  # noqa: C901 - one long table, read down
        """One reason in words, from its own numbers."""
        cash = self.cash
        match because:
            case r.OwnedFree(waited, free):
                return f"{free} GPUs were free there{f', after waiting {duration(waited)}' if waited else ''}."
            case r.WaitsForOwned(patience, expected, free, cost):
                now = f"bursting now would cost about {cash(cost)}" if cost is not None else "nothing to rent fits now"
                return (
                    f"Waits for owned GPUs, at the latest until {instant(until)}: {free} are free, too few or in "
                    f"pieces. Expected to run {duration(expected)}; {now}; patience {duration(patience)}."
                )
            case r.PatienceOver(waited, patience, expected, cost, other, other_cost):
                beside = f"; {other} would be {cash(other_cost)}" if other else ""
                since = (
                    f"waited {duration(waited)}, its patience of {duration(patience)} is over"
                    if patience
                    else "no patience"
                )
                return f"Owned GPUs were full and it {since}. About {cash(cost)} for {duration(expected)}{beside}."
            case r.WaitWorth(cost, value, patience, expected, _, ahead, free, about, worst, leave_at):
                due = f" It must leave by {instant(leave_at)} to meet its deadline." if leave_at else ""
                return (
                    f"Waits for owned GPUs, {_how_long(about, worst, patience)} until {instant(until)} at the latest: "
                    f"{free} are free, too few or in pieces, and {ahead} wait before it. Bursting now would cost about "
                    f"{cash(cost)} for {duration(expected)}; at {cash(value)} an hour that buys {duration(patience)} "
                    f"of waiting.{due}"
                )
            case r.WaitedLongest(waited, most, free_in):
                return (
                    f"It waited {duration(waited)}, longer than the {duration(most)} that anybody should, and cannot "
                    f"leave. All of it is expected to be free in {duration(free_in)}."
                )
            case r.Paced(scope, period, cap, free_by_now, used, needed):
                return (
                    f"Of {scope}'s {cash(cap)} for {period}, {cash(free_by_now)} is released by now and {cash(used)} "
                    f"used or held; about {cash(needed)} is needed. Waits until {instant(until)}, or for owned GPUs."
                )
            case r.AimsAtDelay(mean, target, jobs, before):
                return (
                    f"The mean delay of {jobs} jobs was {duration(mean)} and should be {duration(target)}; an hour of "
                    f"waiting was worth {cash(before)}."
                )
            case r.AimsAtSpend(spent, share, target, before):
                return (
                    f"Lately {cash(spent)} was spent; {cash(share)} is that time's share of {cash(target)}. An hour of "
                    f"waiting was worth {cash(before)}."
                )
            case r.NotWorthWaiting(waited, cost, value, patience, soonest, expected, other, other_cost, leave_at):
                beside = f"; {other} would be {cash(other_cost)}" if other else ""
                due = f" To meet its deadline it had to leave by {instant(leave_at)}." if leave_at else ""
                return (
                    f"Owned GPUs were full, for another {duration(soonest)} at the soonest, and it waited "
                    f"{duration(waited)}. About {cash(cost)} for {duration(expected)}, which at {cash(value)} an hour "
                    f"buys {duration(patience)} of waiting{beside}.{due}"
                )
            case r.ComesHome(left, saves, move, worth):
                return (
                    f"Comes home: about {duration(left)} are left, {cash(saves)} rented; the move takes "
                    f"{duration(move)}, worth {cash(worth)}."
                )
            case r.MovesTogether(gainer, gpus, gains, costs):
                return f"Moves together so that {gainer} ({gpus} GPUs) fits: gains {cash(gains)}, costs {cash(costs)}."
            case r.QueueFull(waiting, cap, cost):
                return f"{waiting} jobs wait and the queue holds {cap}; it is the newest. About {cash(cost)}."
            case r.OnlyOwned(free, rule):
                return f"Waits for owned GPUs; {free} are free, too few or in pieces. It cannot leave: {rule}."
            case r.CapBinds(scope, period, cap, spent, held, needed):
                month = f" in {period}" if period else ""
                return (
                    f"Waits for money: {scope} may spend {cash(cap)}{month}; {cash(spent)} is spent, "
                    f"{cash(held)} held, and it needs {cash(needed)}."
                )
            case r.RateBinds(scope, cap, running, needed):
                return (
                    f"Waits for money: {scope} may spend {cash(cap)} an hour, {cash(running)} is running, "
                    f"and it needs {cash(needed)}."
                )
            case r.PeriodUnknown():
                return "Waits: the month it would be booked to is not open yet."
            case r.NoRoomThere(offer, retry):
                return f"Waits: no rented offer that it may use has room; {offer} is tried again {instant(retry)}."
            case r.PlacementsPaused():
                return "Waits: a person paused new placements."
            case r.TooWide(gpus, widest, offer):
                return f"Refused: it needs {gpus} GPUs at once, and the widest place, {offer}, has {widest}."
            case r.NothingAllowed(offer, rule, where):
                return f"Refused: no place may run it. {offer}: {rule} ({where})."
            case r.LostNode(lost, kept, redone, cost):
                return (
                    f"Resumes after {lost} was lost: {duration(kept)} kept, {duration(redone)} done again. "
                    f"About {cash(cost)} to the end."
                )
            case r.MoveAsked(origin, kept):
                return f"Moved from {origin} as asked; {duration(kept)} of work kept."
            case r.Displaced(gainer, gpus, cost):
                return (
                    f"Makes room for {gainer} ({gpus} GPUs), which may not leave; about {cash(cost)}, on its account."
                )
            case r.Preempted(gainer, theirs, own):
                return f"Makes room for {gainer} of priority {theirs}; its own is {own}."
            case r.CancelAsked():
                return "A person asked."
            case r.NoMoreWork(idle):
                return f"Given back: idle for {duration(idle)}."
            case r.NeverStarted():
                return "Given back: what it was for will not start there."
            case _:
                assert_never(because)


def jobs_in(rows: Iterable[Any]) -> Iterator[str]:
    """Every job a journal knows, members of arrays included."""
    for row in rows:
        for event in row.inputs:
            if isinstance(event, e.JobSubmitted):
                count = event.spec.count
                yield from (event.job,) if count == 1 else (f"{event.job}/{k}" for k in range(count))


def _how_long(about: Millis, worst: Millis, patience: Millis) -> str:
    """Until its patience is over nothing is promised beyond it: then it bursts."""
    if about > patience:
        return f"though they are expected only in about {duration(about)},"
    return f"for about {duration(about)},{f' at worst {duration(worst)},' if worst <= patience else ''} and"
