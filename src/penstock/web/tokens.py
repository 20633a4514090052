"""The API's tokens: opaque secrets, of which only hashes are stored, in the journal.

The leader records each token and each revocation before it answers. Every control plane keeps all of them in memory,
where a request looks them up, and follows the journal's tables: so a standby knows what its leader knows.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from time import monotonic
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from penstock.core.errors import BadInput
from penstock.core.model.events import TokenIssued, TokenRevoked
from penstock.core.values import value
from penstock.journal.journal import Reader, Unwritable
from penstock.journal.tokens import RevocationRow, TokenRow
from penstock.web.details import NONE, Details
from penstock.web.problems import Problem
from penstock.web.streaming import unless, until

Permission: TypeAlias = Literal["nothing", "read", "submit", "operate", "approve", "tokens", "audit"]
Role: TypeAlias = Literal["admin", "operator", "approver", "member", "viewer"]
MAY: Final[dict[str, tuple[Permission, ...]]] = {
    "admin": ("read", "submit", "operate", "approve", "tokens", "audit"),
    "operator": ("read", "submit", "operate", "approve"),
    "approver": ("read", "approve"),
    "member": ("read", "submit"),
    "viewer": ("read",),
}
PREFIX: Final = "pst_"
FOLLOW_SECONDS: Final = 0.4  #: how often the journal's tables are asked for news: others see a revocation by then
EXPIRY_SECONDS: Final = 0.5  #: how often a stream looks whether its token has expired
STALE_SECONDS: Final = 3.0  #: a process that did not ask for so long was suspended: it asks before it lets in
ASK_SECONDS: Final = 2.0  #: how long a request waits for that answer
MOST_DEEP: Final = 8  #: browsers that let in browsers: each request looks at all of them
MOST_BROWSERS: Final = 200  #: that one token has let in, and those that these have let in

T = TypeVar("T")


@value
class Token:
    id: str
    digest: str  # SHA-256 of the secret, in hex
    role: Role
    team: str = ""  # empty: all teams
    expires_at: int = 0  # seconds since 1970; 0: never
    revoked: bool = False
    made_by: str = ""  # of a browser's token: the token that let it in, with which it ends

    def may(self, permission: Permission) -> bool:
        return permission in MAY[self.role]

    def sees(self, team: str) -> bool:
        return self.team in ("", team)

    @property
    def teams(self) -> tuple[str, ...]:
        return (self.team,) if self.team else ()


class Tokens:
    """All tokens, by the digest of their secret. `tell` records facts in the journal; a standby's raises `NotReady`."""

    def __init__(self, tell: Callable[..., Awaitable[Any]], now: Callable[[], float]) -> None:
        self.tell, self.now = tell, now
        self.by_digest: dict[str, Token] = {}
        self.by_id: dict[str, Token] = {}
        self.revoked: set[str] = set()  #: ids; also of tokens that we have not read yet
        self.unrecorded: dict[str, Token] = {}  #: by id: held here until this process leads
        self.issued_to = self.revoked_to = 0  #: the last steps that we have read of both tables
        self._reader: Reader | None = None  #: while the tables are followed
        self._asking: asyncio.Future[None] | None = None
        self._asked_at = monotonic()
        self._changed = asyncio.Event()

    # --- who is it ---------------------------------------------------------------------------------------------------

    def find(self, secret: str) -> Token | None:
        """None if forged, revoked or expired. Looked up by digest, so timing reveals nothing."""
        token = self.by_digest.get(digest_of(secret))
        return token if token is not None and self._valid(token) else None

    def still(self, token: Token) -> bool:
        """True if the token is valid now, with the same rights, and so are all tokens that let it in."""
        known = self.by_digest.get(token.digest)
        if known is None or (known is not token and (known.role, known.team) != (token.role, token.team)):
            return False
        return self._valid(known)

    def _valid(self, known: Token) -> bool:
        if not known.made_by:  # as nearly all: nobody let it in
            return self._good(known)
        line = self.line(known)
        return not line[-1].made_by and all(self._good(ancestor) for ancestor in line)

    def line(self, token: Token) -> list[Token]:
        """The token, the one that let it in, the one that let that in. If the last still has a maker, it is unknown or
        too far away.
        """
        line = [token]
        while line[-1].made_by in self.by_id and len(line) <= MOST_DEEP:
            line.append(self.by_id[line[-1].made_by])
        return line

    def _good(self, token: Token) -> bool:
        return token.id not in self.revoked and not (token.expires_at and token.expires_at <= self.now())

    def demand(self, token: Token) -> None:
        """Raise "unauthorized" unless the token is still valid."""
        if not self.still(token):
            raise unauthorized()

    async def gone(self, token: Token) -> None:
        """Return as soon as the token is no longer valid."""
        while self.still(token):
            changed = self._changed
            expires = any(ancestor.expires_at for ancestor in self.line(token))
            with suppress(TimeoutError):
                async with asyncio.timeout(EXPIRY_SECONDS if expires else None):
                    await changed.wait()

    async def while_valid(self, token: Token, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The items until the token is no longer valid, also while none comes."""
        async with aclosing(until(self.gone(token), items)) as valid:
            async for item in valid:
                yield item

    async def while_asked(self, token: Token, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; raises "unauthorized" as soon as the token is no longer valid."""
        return await unless(self.gone(token), work, unauthorized)

    def __iter__(self) -> Iterator[Token]:
        return (replace(token, revoked=token.id in self.revoked) for token in self.by_digest.values())

    # --- changes -----------------------------------------------------------------------------------------------------

    async def issue(
        self,
        role: Role,
        team: str = "",
        expires_at: int = 0,
        made_by: str = "",
        by: str = "",
        details: Details = NONE,
        name: Details = NONE,
    ) -> tuple[Token, str]:
        """A new token and its secret, which is never shown again. Returns once it is durable. Raises `NotReady`."""
        token, secret = new_token(role, team, expires_at, made_by)
        if made_by:
            self._forget_browsers()
            self._limit_browsers(self.line(token))
        await self.tell(issued(token, by, details.digest, name.digest), blobs=details.blobs | name.blobs)
        self.hold(token)
        return token, secret

    def _limit_browsers(self, line: list[Token]) -> None:
        """Refuse a browser's token if its first maker is too far away to be looked at, or has let in too many."""
        first = line[-1]
        if first.made_by:
            raise Problem(403, "forbidden", "This browser was let in by too many others in a row; use a token itself.")
        browsers = sum(self.line(known)[-1] is first for known in self.by_digest.values() if known.made_by)
        if browsers >= MOST_BROWSERS:
            raise Problem(
                429,
                "too-many",
                f"Token {first.id} has let in {browsers} browsers, which stay for a week; make another token.",
                {"Retry-After": "86400"},
            )

    async def revoke(self, token_id: str, by: str = "", details: Details = NONE) -> Token | None:
        """The token, now void, once that is durable; None if there is none. Raises `NotReady`."""
        token = self.by_id.get(token_id)
        if token is None:
            return None
        if token_id not in self.revoked:
            await self.tell(TokenRevoked(0, token_id, by, details.digest), blobs=details.blobs)
        self._void(token_id)
        return replace(token, revoked=True)

    async def record(self) -> None:
        """This process leads now: record the tokens that it held before."""
        waiting = list(self.unrecorded.values())
        facts = [fact for token in waiting for fact in _as_facts(token)]
        if facts:
            await self.tell(*facts)
        self.unrecorded.clear()

    def hold(self, *tokens: Token, unrecorded: bool = False) -> None:
        """Know these tokens from now on."""
        for token in tokens:
            self.by_digest[token.digest] = self.by_id[token.id] = token
            if unrecorded:
                self.unrecorded[token.id] = token
            if token.revoked:
                self.revoked.add(token.id)
        self._tell_streams()

    def _void(self, *token_ids: str) -> None:
        self.revoked.update(token_ids)
        self._tell_streams()

    def _tell_streams(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _forget_browsers(self) -> None:
        """Forget browsers' tokens that are void: they are many and short-lived."""
        for token in [known for known in self.by_digest.values() if known.made_by and not self.still(known)]:
            del self.by_digest[token.digest], self.by_id[token.id]

    # --- what others record ------------------------------------------------------------------------------------------

    def read(self, reader: Reader) -> bool:
        """Read what the journal's tables have now; False if they have no tokens yet, before a leader made them."""
        try:
            rows, revoked = reader.tokens(self.issued_to, int(self.now())), reader.revocations(self.revoked_to)
        except BadInput:
            return False
        self._take(rows, revoked)
        return True

    def _take(self, rows: Sequence[TokenRow], revoked: Sequence[RevocationRow]) -> None:
        if revoked:
            self.revoked_to = revoked[-1].number
            self._void(*(row.token for row in revoked))
        if rows:
            self.issued_to = rows[-1].number
            self.hold(*map(_of_row, rows))
            for row in rows:
                self.unrecorded.pop(row.id, None)

    @asynccontextmanager
    async def followed(self, reader: Reader) -> AsyncIterator[None]:
        """Follow the journal's tables while this lasts."""
        self._reader, self._asked_at = reader, monotonic()
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            self._reader = None
            following.cancel()
            await asyncio.wait([following])

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            await self._ask()

    @property
    def is_stale(self) -> bool:
        """True if we have not asked the tables for long: we were suspended, and another process may lead since."""
        return monotonic() - self._asked_at > STALE_SECONDS

    async def fresh(self) -> None:
        """Ask the tables before anybody is let in, if that is due. What was asked before we were suspended, and is
        answered only now, is no news: then we ask once more. A database that does not answer holds nobody for long.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                for _ in range(2):
                    if self.is_stale:
                        await self._ask()

    async def _ask(self) -> None:
        """Ask the tables for news; all who want that at once wait for the same answer."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask_tables())
        await asyncio.shield(self._asking)

    async def _ask_tables(self) -> None:
        reader, began_at = self._reader, monotonic()
        try:
            with suppress(Unwritable, BadInput):  # no database now, or no such tables yet: what we know holds
                if reader is not None:
                    rows = await asyncio.to_thread(reader.tokens, self.issued_to, int(self.now()))
                    self._take(rows, await asyncio.to_thread(reader.revocations, self.revoked_to))
        finally:
            self._asking, self._asked_at = None, began_at


def unauthorized() -> Problem:
    return Problem(
        401,
        "unauthorized",
        "A token is needed: send 'Authorization: Bearer TOKEN'. Ours is in the file 'token' of Penstock's home folder.",
        {"WWW-Authenticate": "Bearer"},
    )


def new_token(role: Role, team: str = "", expires_at: int = 0, made_by: str = "") -> tuple[Token, str]:
    secret = PREFIX + secrets.token_urlsafe(32)
    return Token(secrets.token_hex(6), digest_of(secret), role, team, expires_at, made_by=made_by), secret


def issued(token: Token, by: str = "", details: str = "", name: str = "") -> TokenIssued:
    return TokenIssued(
        at=0,
        token=token.id,
        digest=token.digest,
        role=token.role,
        team=token.team,
        expires_at=token.expires_at,
        made_by=token.made_by,
        by=by,
        details=details,
        name=name,
    )


def _as_facts(token: Token) -> Iterable[TokenIssued | TokenRevoked]:
    yield issued(token)
    if token.revoked:
        yield TokenRevoked(0, token.id)


def _of_row(row: TokenRow) -> Token:
    return Token(row.id, row.digest, cast("Role", row.role), row.team, row.expires_at, made_by=row.made_by)


def digest_of(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
