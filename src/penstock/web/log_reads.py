"""Puts reads of other people's logs on record: before somebody who sees all teams gets the log of a job that is not
their own.
"""

from collections.abc import Callable
from typing import Final

from starlette.requests import HTTPConnection

from penstock.core.model.events import LogRead
from penstock.journal.rows import JobRow
from penstock.live.plane import Plane
from penstock.web.details import details
from penstock.web.tokens import Token, Tokens

AGAIN_SECONDS: Final = 3_600.0  #: who goes on reading one log is told once in this time
MOST_KEPT: Final = 10_000


class LogReads:
    def __init__(self, tokens: Tokens, now: Callable[[], float]) -> None:
        self.tokens, self.now = tokens, now
        self.told_at: dict[tuple[str, str], float] = {}  #: (token, job), the oldest first

    def concerns(self, caller: Token) -> bool:
        """A token of a team sees its own team's logs only."""
        return not caller.team

    async def record(self, plane: Plane, request: HTTPConnection, caller: Token, job: JobRow) -> None:
        """Returns once the read is durable. Raises `NotReady`: what cannot be recorded is not shown."""
        if not self.concerns(caller) or job.user in {token.id for token in self.tokens.line(caller)}:
            return
        read, now = (caller.id, job.id), self.now()
        if now - self.told_at.get(read, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        plane.admission.grow_by(caller.id)
        known = details(request)
        await plane.tell(LogRead(0, job.id, caller.id, known.digest), blobs=known.blobs)
        self.told_at.pop(read, None)
        self.told_at[read] = now
        if len(self.told_at) > MOST_KEPT:
            del self.told_at[next(iter(self.told_at))]
