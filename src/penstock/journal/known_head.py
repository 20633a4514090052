"""The newest head that a writer was answered, and what to say if its journal does not have it any more. `writer` asks
in each of its transactions; a standby follows the leader's head with it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.core.engine import Step
from penstock.core.ids import members
from penstock.core.model.events import JobSubmitted
from penstock.core.units import Instant
from penstock.formatting import count, instant
from penstock.journal.head_memory import MOST_WORDS, HeadMemory, Remembered, Restores
from penstock.journal.journal import LostSteps, Missing

Head: TypeAlias = tuple[int, bytes]
#: The hash of a step; None: there is none.
HashOf: TypeAlias = Callable[[int], bytes | None]

MOST_STEPS: Final = 5_000  #: of which we know what was submitted, to name it if it is lost


class KnownHead:
    def __init__(self, where: str, installation: str, memory: HeadMemory | None) -> None:
        self.where, self.installation, self.memory = where, installation, memory
        self.head: Head | None = None
        self.at: Instant = 0  #: of that step; 0: not known
        self.restores = Restores()  #: a person's words that the journal goes on, as of that head
        self.words = ""  #: what an earlier process found missing
        self.missing = Missing(0, "")  #: what a journal that we were told to take does not have
        self.submitted: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=MOST_STEPS)  #: jobs by step
        self.is_new = False  #: not noted in the home folder yet
        self.is_lower = False  #: on purpose
        remembered = memory.read(installation) if memory is not None else None
        if remembered is not None:
            number, _, link = remembered.head.partition(":")
            self.head, self.at = (int(number), bytes.fromhex(link)), remembered.at
            self.restores, self.words = remembered.restores, remembered.missing

    @property
    def text(self) -> str:
        return "" if self.head is None else f"{self.head[0]}:{self.head[1].hex()}"

    def is_in(self, head: Head, hash_of: HashOf) -> bool:
        """True if a journal with this head has all that we know of."""
        if self.head is None or head == self.head:
            return True
        return head[0] > self.head[0] and hash_of(self.head[0]) == self.head[1]

    # --- what we learn -----------------------------------------------------------------------------------------------

    def follow(self, head: Head, restores: Restores, hash_of: HashOf) -> None:
        """Another process leads, and this is its head. One that is behind what we know is not followed."""
        if restores.are_after(self.restores) or self.is_in(head, hash_of):
            self.note(head, restores, lower=restores.are_after(self.restores))
            self.remember()

    def admit(self, head: Head, restores: Restores, hash_of: HashOf, *, permitted: bool) -> None:
        """We are to write this journal. Raises `LostSteps` unless it has what we know, or a person let it go on."""
        if not self.is_in(head, hash_of):
            if not permitted and not restores.are_after(self.restores):
                raise self.lost(head)
            assert self.head is not None
            self.missing = Missing(max(0, self.head[0] - head[0]), self._what(head))
            self.note(head, restores, lower=True)
        else:
            self.note(head, restores)

    def note(self, head: Head, restores: Restores, steps: Sequence[Step] = (), lower: bool = False) -> None:
        """The journal answered that it has this head."""
        if steps:
            self.at = steps[-1].at
            self.submitted.extend((step.number, jobs) for step in steps if (jobs := _submitted(step)))
        if (head, restores) == (self.head, self.restores) and not steps:
            return
        self.head, self.restores, self.words = head, restores, ""
        self.is_new, self.is_lower = True, self.is_lower or lower

    def remember(self) -> None:
        """Note it in the home folder, too. What cannot be noted is tried again at the next call."""
        if self.memory is None or self.head is None or not self.is_new:
            return
        known = Remembered(
            self.installation,
            self.text,
            self.restores.times,
            self.at,
            self.words[:MOST_WORDS],
            self.restores.at,
        )
        self.memory.note(known, self.is_lower)
        if not self.memory.failure:
            self.is_new = self.is_lower = False

    # --- what is lost ------------------------------------------------------------------------------------------------

    def lost(self, head: Head) -> LostSteps:
        """The error for a journal with this head. It is remembered, so that the next process can name what is lost."""
        assert self.head is not None
        number, when = self.head[0], f" of {instant(self.at)}" if self.at else ""
        if head[0] < number:
            found = f"ends at step {head[0]}, and was answered as far as step {number}{when}"
            gone = f"{count(number - head[0], 'step')} {'is' if number - head[0] == 1 else 'are'} missing"
        else:
            found = f"has another step {number} than the one that was answered"
            gone = "this is not the journal it was"
        self.words, self.is_new = self._what(head), True
        self.remember()
        if self.memory is not None:
            self.memory.sync()
        with_words = f", with {self.words}" if self.words else ""
        return LostSteps(
            f"{self.where} {found}: {gone}{with_words}. A standby that was behind, or an older copy, may have taken its"
            " place. Bring back the database that has it all, and Penstock goes on; if it is gone, run"
            " `penstock journal restore` on this one and start again: it goes on as it is, and records that."
        )

    def _what(self, head: Head) -> str:
        """The submissions in steps after this one, as far as we know."""
        jobs = [job for number, names in self.submitted if number > head[0] for job in names]
        if not jobs:
            return self.words
        named = jobs[0] if len(jobs) == 1 else f"{jobs[0]} to {jobs[-1]}"
        return f"{count(len(jobs), 'accepted job')} ({named})"


def _submitted(step: Step) -> tuple[str, ...]:
    return tuple(
        name
        for event in step.inputs
        if isinstance(event, JobSubmitted)
        for name in members(event.job, event.spec.count)
    )
