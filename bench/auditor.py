"""What `bench.kill` and `bench.kill_kube` believe: not the control plane, but its journal, what sites show, and what
the jobs themselves bear witness to.

The journal is folded row by row as it grows, and every row must leave all caps whole. While the control plane is dead,
whatever runs must end by itself before the money that is held for it does. In the end each run of each job must lie
within what the record says of its attempt, and everything that it printed must be in its log.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from penstock.core.engine import Engine, replay
from penstock.core.errors import BadInput
from penstock.core.fold.invariants import check
from penstock.core.fold.ledger import Lease
from penstock.core.model import events as e
from penstock.core.units import HOUR, Instant, Money, step_up
from penstock.drivers.local.supervisor import now_ms
from penstock.drivers.records import read
from penstock.journal import open as journals
from penstock.journal.journal import Unwritable
from penstock.journal.redecide import redecide
from penstock.journal.writer import steps_of

COUNTED: Final = ("lost", "doubled", "charged_twice", "over_cap", "log_lines_lost")
#: Two clocks are read one after the other: the wall's, and the boot clock that deadlines are kept in.
TOLERANCE_MS: Final = 250
ENDS: Final = (e.AttemptEnded, e.AttemptStopped, e.AttemptLost)


class Auditor:
    def __init__(self, where: str, home: Path) -> None:
        self.where, self.home = where, home
        self.engine = Engine()
        self.found: dict[str, list[str]] = {name: [] for name in COUNTED}
        self.first = ""  #: what was found first: what a mistake does, and not what follows from it
        self.promised_at: dict[str, Instant] = {}
        self.nodes: dict[str, frozenset[str]] = {}  #: by attempt: the rented nodes that it was promised
        self.over_at: dict[str, Instant] = {}
        self.charged: dict[str, Money] = {}
        self.holds: dict[str, Lease] = {}
        self.settled: dict[str, Instant] = {}
        self.spent: set[Money] = {0}  #: of the whole organisation, after each row
        self.losses = self.renewals = 0

    def finds(self, what: str, words: str) -> None:
        if words not in self.found[what]:
            self.first = self.first or f"{what}: {words}"
            self.found[what].append(words)

    @property
    def clean(self) -> bool:
        return not any(self.found.values())

    # --- the record ------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Fold what is new, and ask of every row whether it may be."""
        for row in self._rows(self.engine.state.steps):
            replay([(row.at, row.inputs, row.outputs)], self.engine)
            for event in (*row.inputs, *row.outputs):
                self._note(event)
            self._ask_caps(row.number)
        check(self.engine.state)

    def _rows(self, after: int = 0) -> Iterator[Any]:
        """None, as long as nobody has come so far as to make a journal."""
        not_yet = () if after else (BadInput, Unwritable)
        with suppress(*not_yet), closing(journals.database(self.where, readonly=True)) as db:
            yield from steps_of(db, after)

    def _note(self, event: e.Event) -> None:
        match event:
            case e.StartPromised():
                self.promised_at.setdefault(event.attempt, event.at)
                self.nodes[event.attempt] = frozenset([*(ask.node for ask in event.nodes), event.joins]) - {""}
            case e.AttemptEnded() | e.AttemptStopped() | e.AttemptLost():
                self.losses += isinstance(event, e.AttemptLost) and event.attempt not in self.over_at
                self.over_at.setdefault(event.attempt, event.at)
            case e.PayerChanged():
                self._charge(event.node, event.charged)
            case e.LeaseRenewed():
                self.renewals += 1
                self._charge(event.hold, event.charged)
            case e.Settled():
                if event.hold in self.settled:
                    self.finds("charged_twice", f"{event.hold} was settled twice")
                self.settled[event.hold] = event.at
                self._charge(event.hold, event.charged)
                self._ask_charges(event)

    def _charge(self, hold: str, parts: tuple[Any, ...]) -> None:
        self.charged[hold] = self.charged.get(hold, 0) + sum(part.amount for part in parts)

    def _ask_charges(self, event: e.Settled) -> None:
        """No second is charged twice: all charges of a thing are at most the price of the time that it was there."""
        lease = self.holds.get(event.hold)
        if lease is None or not event.charged:
            return
        terms = lease.hold.terms
        there_ms = max(terms.minimum_ms, step_up(event.at - lease.opened_at, terms.step_ms))
        most = -(-terms.price_per_hour * there_ms // HOUR) + terms.fees + terms.egress
        if self.charged[event.hold] > most:
            self.finds("charged_twice", f"{event.hold} was charged {self.charged[event.hold]}, at most {most} is due")

    def _ask_caps(self, number: int) -> None:
        ledger = self.engine.state.ledger
        self.holds.update(ledger.leases)
        for (scope, period), account in ledger.accounts.items():
            if account.cap is not None and account.held + account.spent > account.cap:
                self.finds("over_cap", f"row {number}: {scope} has {account.held} held and {account.spent} spent")
            if scope == "org":
                self.spent.add(account.spent)
            if ledger.overrun:
                self.finds("over_cap", f"row {number}: metered more than was held, in {period}")

    def decide_again(self) -> int:
        """How many steps would be decided differently: a plane that went on from a wrong belief."""
        verdict = redecide(self._rows(), 1)
        for difference in verdict.first:
            self.finds("charged_twice", f"row {difference.number} was not decided from the record: {difference}"[:600])
        return verdict.steps

    # --- while nobody is there -------------------------------------------------------------------------------------

    def ask_sites(self) -> None:
        """The control plane is dead: what runs ends by itself while it is paid for."""
        leases = self.engine.state.ledger.leases
        for path in self.home.glob("sites/*/*/*/deadline.json"):
            named = read(f"{path.parent}/order.json") or read(f"{path.parent}/node.json")
            thing = str(named.get("attempt") or named.get("node") or "")
            left = read(str(path)).get("boot_ms")
            over = (path.parent / "ended.json").exists() or (path.parent / "gone.json").exists()
            if left is None or over or not thing or left <= now_ms():
                continue
            if thing not in leases:
                self.finds("over_cap", f"{thing} is rented, and nothing is held for it")
            elif (ends_at := self._wall(left)) > leases[thing].deadline_at + TOLERANCE_MS:
                late = ends_at - leases[thing].deadline_at
                self.finds("over_cap", f"{thing} ends {late} ms after what is held for it covers")

    def _wall(self, boot_ms: int) -> Instant:
        return int(time.time() * 1000) + boot_ms - now_ms()

    def hear_books(self, spent: Money) -> None:
        """What the plane says is spent must be what the record said at some row, once that was read."""
        if spent not in self.spent:
            self.finds("charged_twice", f"the plane says that {spent} is spent, and no row of its journal does")

    # --- the jobs' own words ---------------------------------------------------------------------------------------

    def hear_witnesses(self, folder: Path, jobs: dict[str, str]) -> dict[str, dict[str, int]]:
        """By job: how many lines each of its attempts printed. Every run must be one that the record knows."""
        printed: dict[str, dict[str, int]] = {}
        for path in sorted(folder.iterdir()):
            lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            job = jobs.get(path.name, "")
            printed[job] = self.hear_witness(path.name, job, lines)
        return printed

    def hear_witness(self, key: str, job: str, lines: list[dict[str, Any]]) -> dict[str, int]:
        """The same of one job."""
        printed: dict[str, int] = {}
        for line in lines:
            self._ask_run(key, job, line, printed)
        return printed

    def _ask_run(self, key: str, job: str, line: dict[str, Any], lines: dict[str, int]) -> None:
        attempt = str(line["attempt"])
        if line["what"] == "began":
            if not line["alone"]:
                self.finds("doubled", f"{attempt} began while another run of {key} lived")
            if attempt in lines:
                self.finds("doubled", f"{attempt} began twice")
            if job and line["job"] != job:
                self.finds("doubled", f"{key} is {job}, and ran as {line['job']}")
            lines[attempt] = 0
        elif line["what"] == "line":
            lines[attempt] = int(line["number"])
        if attempt not in self.promised_at:
            self.finds("doubled", f"{attempt} ran, and the journal never promised it")
        elif line["at"] > self.over_at.get(attempt, line["at"]) + TOLERANCE_MS:
            self.finds("doubled", f"{attempt} ran on after its end was on record")

    def ask_log(self, attempt: str, printed: int, log: str) -> None:
        lines = [int(line.split()[1]) for line in log.splitlines() if line.startswith("line ")]
        missing = sorted(set(range(1, printed + 1)) - set(lines))
        for number in missing:
            self.finds("log_lines_lost", f"{attempt}: line {number}")
        if sorted(set(lines)) != lines:
            self.finds("log_lines_lost", f"{attempt}: lines out of order")
