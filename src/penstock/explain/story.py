"""`penstock why`: a job's history, one line for each decision, from what was recorded and nothing else.

A reason's own sentence is in `sentences`. Nothing here knows a policy.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.core.ids import array_of, attempt_of, members, site_of
from penstock.core.model import events as e
from penstock.core.model import reasons as r
from penstock.core.units import NEVER, Instant, Money
from penstock.core.values import value
from penstock.explain.sentences import Say, as_sentence, sentence, stop_sentence, tried
from penstock.formatting import count, duration, instant, money


@value
class StoryLine:
    at: Instant
    text: str


def tell(rows: Iterable[Any], job: str) -> list[StoryLine]:
    """One job's lines; none if the journal does not have it. `rows` have `inputs` and `outputs`."""
    teller = StoryTeller(job)
    for row in rows:
        for event in (*row.inputs, *row.outputs):
            teller.hear(event)
    return teller.lines


class StoryTeller:
    def __init__(self, job: str) -> None:
        self.job = job
        self.lines: list[StoryLine] = []
        self.currency = "USD"
        self.array = array_of(job)
        self.attempts: dict[str, e.StartPromised] = {}
        self.holds: dict[str, Money] = {}
        self.holder: dict[str, str] = {}  #: the attempt whose nodes a hold pays for
        self.settled: dict[str, list[Money]] = {}  #: by attempt: what each of its settled holds gave back
        self.renewed: tuple[Instant, Instant, int] = (0, 0, 0)  #: of the last line: when, until when, how many nodes
        self.spent: Money = 0

    def hear(self, event: Any) -> None:
        if isinstance(event, e.PolicySet):
            self.currency = event.policy.currency
        elif getattr(event, "job", None) == self.job or self._is_my_array(event):
            self._about_job(event)
        elif getattr(event, "attempt", None) in self.attempts:
            self._about_attempt(event)
        elif isinstance(event, e.NodeRefused) and attempt_of(event.node) in self.attempts:
            self._about_node(event)
        elif getattr(event, "hold", None) in self.holds:
            self._about_money(event)

    def _is_my_array(self, event: Any) -> bool:
        return isinstance(event, e.JobSubmitted) and event.spec.count > 1 and event.job == self.array

    def _say(self, at: Instant, text: str) -> None:
        self.renewed = (0, 0, 0)
        self.lines.append(StoryLine(at, text))

    def _about_job(self, event: Any) -> None:
        match event:
            case e.JobSubmitted(spec=spec):
                known = f", expected to run {duration(spec.expected_run_ms)}" if spec.expected_run_ms else ""
                self._say(event.at, f"Submitted by {spec.team}: {count(spec.gpus, 'GPU')}{known}.")
            case e.RetryPromised(because=because):
                already_told = because.cause in ("full", "lost", "stopped")  # by the fact of the same step
                self._say(event.at, tried(because, Say(self.currency)) if already_told else self.sentence(because))
            case e.WaitPromised(because=r.StartFailed(offer=offer, words=words), until_at=until):
                if until < NEVER:  # otherwise its failed start told all
                    why = f": {as_sentence(words)}" if words else "."
                    self._say(event.at, f"Queued until {instant(until)}, then it bursts. {offer} cannot start it{why}")
            case e.WaitPromised() | e.JobRefused() | e.JobFailed():
                self._say(event.at, self.sentence(event.because, getattr(event, "until_at", NEVER)))
            case e.StartPromised():
                went = self._where(event)
                self.attempts[event.attempt] = event
                for hold in (*(ask.hold for ask in event.nodes), *([event.hold] if event.hold else [])):
                    self.holds[hold.id] = sum(part.amount for part in hold.parts)
                    self.holder[hold.id] = event.attempt
                self._say(event.at, f"{went} {self.sentence(event.because)}{self._held(event)}")
            case e.ClusterPromised():
                self._say(event.at, f"Site {event.site} gets a cluster. {self.sentence(event.because)}")
            case e.PayerChanged(hold=hold):  # its start, which comes next, says why
                self.holds[hold.id] = sum(part.amount for part in hold.parts)
            case e.ReservePromised():
                few = len(event.nodes) == 1
                nodes = f"{'Node' if few else 'Nodes'} {', '.join(map(str, event.nodes))} of {event.offer}"
                kept = f"{nodes} {'is' if few else 'are'} reserved for it"
                self._say(event.at, f"{kept}. {self.sentence(event.because)}")
            case e.CancelRequested():
                self._say(event.at, "A person cancelled it.")
            case e.SuspendRequested():
                self._say(event.at, "A person suspended it. It keeps its checkpoint, and waits until it is resumed.")
            case e.ResumeRequested():
                self._say(event.at, "A person resumed it: it is queued again.")
            case e.ApprovalAsked(cheaper=cheaper):
                ways = [f"{offer} for {self.cash(cost)} in about {duration(ms)}" for offer, cost, ms in cheaper]
                others = f" Cheaper: {'; '.join(ways)}." if ways else ""
                words = f" {as_sentence(event.words)}" if event.words else ""
                self._say(event.at, f"Asks for approval of up to {self.cash(event.amount)}.{words}{others}")
            case e.ApprovalAnswered():
                did = "approved it" if event.approved else "denied it"
                upto = f", up to {self.cash(event.amount)}" if event.approved and event.amount is not None else ""
                words = f": {as_sentence(event.reason)}" if event.reason else "."
                self._say(event.at, f"{event.by or 'A person'} {did}{upto}{words}")
            case e.MoveRequested():
                self._say(event.at, f"A person asked to move it to {event.offer}.")

    def _where(self, event: e.StartPromised) -> str:
        verb = f"Joins node {event.joins} of" if event.joins else "Bursts to" if event.rented else "Starts on"
        if event.joins in self.holds:
            verb = f"Takes warm node {event.joins} of"
        again = " again" if event.offer in {earlier.offer for earlier in self.attempts.values()} else ""
        wide = f" with {count(event.width, 'GPU')}" if event.width > 1 else ""
        first = f", after a copy of {', '.join(event.copies)}" if event.copies else ""
        return f"{verb} {event.offer}{again}{wide}{first}."

    def _held(self, event: e.StartPromised) -> str:
        holds = [ask.hold for ask in event.nodes] + ([event.hold] if event.hold else [])
        if not holds:
            return ""
        held = sum(part.amount for hold in holds for part in hold.parts)
        return f" {self.cash(held)} is held, enough to run until {instant(holds[0].deadline_at)} and to stop."

    def _about_attempt(self, event: Any) -> None:
        match event:
            case e.AttemptStarted():
                promised = self.attempts[event.attempt]
                waited = event.at - promised.at
                if waited:
                    self._say(event.at, f"Running on {promised.offer}; the start took {duration(waited)}.")
            case e.AttemptQueued(words=words):
                site = site_of(self.attempts[event.attempt].offer)
                self._say(event.at, f"Queued at site {site}" + (f": {words}." if words else "."))
            case e.AttemptEnded(outcome=outcome, detail=detail):
                failed = f"Failed: {as_sentence(detail)}" if detail else "Failed: its own program ended with an error."
                self._say(event.at, "Succeeded." if outcome == "done" else failed)
            case e.AttemptStopped(kept_ms=kept):
                self._say(event.at, f"Stopped; {duration(kept)} of work kept.")
            case e.AttemptLost(kept_ms=kept):
                taken = "reclaimed" if self.attempts[event.attempt].rented else "lost"
                self._say(event.at, f"Preempted: its node was {taken}; {duration(kept)} of work kept.")
            case e.AttemptStuck(words=words):
                self._say(event.at, self.sentence(r.NotStarting(self.attempts[event.attempt].offer, words)))
            case e.AttemptRefused(obstacle="", shortage=shortage, words=words):
                why = f": {as_sentence(words)}" if shortage else " after all."
                self._say(event.at, f"{self.attempts[event.attempt].offer} had no capacity{why}")
            case e.StopPromised(attempt=attempt, because=because):
                latest = next(reversed(self.attempts.values()))
                if (latest.at, latest.because) == (event.at, because):  # a move: its start has said why
                    self._say(event.at, f"Stops on {self.attempts[attempt].offer} first.")
                else:
                    self._say(event.at, stop_sentence(because, Say(self.currency)))

    def _about_node(self, event: e.NodeRefused) -> None:
        """Once for a gang whose nodes are refused in the same words."""
        offer = self.attempts[attempt_of(event.node)].offer
        why = f": {as_sentence(event.words)}" if event.words else "."
        text = f"{offer} gave no{' usable' if event.billed else ''} node{why}"
        if self.lines[-1].text != text:
            self._say(event.at, text)

    def _about_money(self, event: Any) -> None:
        match event:
            case e.LeaseRenewed(charged=charged):
                self.spent += sum(part.amount for part in charged)
                self._renewed(event.at, event.deadline_at)
            case e.RenewalDenied():
                self._say(event.at, f"Lease not renewed. {self.sentence(event.because)}")
            case e.LeaseCalledBack():
                self._say(event.at, f"Lease shortened to {instant(event.deadline_at)}: a cap was lowered.")
            case e.Settled(charged=charged, returned=returned):
                self.spent += sum(part.amount for part in charged)
                del self.holds[event.hold]
                self._settled(event.at, self.holder.get(event.hold, event.hold), returned)

    def _renewed(self, at: Instant, until: Instant) -> None:
        """One line for all nodes of the job whose leases are renewed together."""
        together = self.renewed[:2] == (at, until)
        nodes = self.renewed[2] + 1 if together else 1
        if together:
            self.lines.pop()
        leases = "Lease" if nodes == 1 else f"Leases of {nodes} nodes"
        self._say(at, f"{leases} renewed until {instant(until)}; {self.cash(self.spent)} charged so far.")
        self.renewed = at, until, nodes

    def _settled(self, at: Instant, attempt: str, returned: Money) -> None:
        """One line for all nodes of an attempt, once the last of them is settled."""
        back = self.settled.setdefault(attempt, [])
        back.append(returned)
        if any(self.holder.get(hold, hold) == attempt for hold in self.holds):
            return
        del self.settled[attempt]
        many, whose = (f" for {len(back)} nodes", "the holds") if len(back) > 1 else ("", "the hold")
        charged = f"{self.cash(self.spent)} charged {'so far' if self.holds else 'in total'}"
        self._say(at, f"Settled{many}: {charged}, {self.cash(sum(back))} of {whose} returned.")

    def cash(self, amount: Money) -> str:
        return money(amount, self.currency)

    def sentence(self, because: r.Reason, until: Instant = NEVER) -> str:
        return sentence(because, Say(self.currency, until))


def jobs_in(rows: Iterable[Any]) -> Iterator[str]:
    """All jobs of a journal, members of arrays included."""
    for row in rows:
        for event in row.inputs:
            if isinstance(event, e.JobSubmitted):
                yield from members(event.job, event.spec.count)
