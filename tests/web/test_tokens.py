"""Tokens in memory: who is valid, who ends with whom, what a follower hears. The journal's side is in tests/hostile."""

import asyncio
import gc
import stat
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.journal.tokens import RevocationRow, TokenRow
from penstock.live.plane import NotReady
from penstock.web.problems import Problem
from penstock.web.token_files import own_secret
from penstock.web.tokens import MOST_DEEP, Tokens, new_token
from tests.awaiting import story


class Recorder:
    """What was told to the journal."""

    def __init__(self) -> None:
        self.facts: list[Any] = []
        self.trouble = ""

    async def __call__(self, *facts: Any, **_: Any) -> None:
        if self.trouble:
            raise NotReady(self.trouble)
        self.facts += facts


class Tables:
    """Both tables of a journal that another process writes."""

    def __init__(self) -> None:
        self.rows: list[TokenRow] = []
        self.void: list[RevocationRow] = []

    def tokens(self, after: int = 0, _browsers_after: int = 0) -> list[TokenRow]:
        return [row for row in self.rows if row.number > after]

    def revocations(self, after: int = 0) -> list[RevocationRow]:
        return [row for row in self.void if row.number > after]


def at(now: float = 0) -> Tokens:
    return Tokens(Recorder(), lambda: now)


@story
async def test_a_token_is_good_until_it_expires() -> None:
    now = [99.0]
    tokens = Tokens(Recorder(), lambda: now[0])
    token, secret = await tokens.issue("viewer", "", expires_at=100)
    assert tokens.find(secret) == token
    now[0] = 100.0
    assert not tokens.find(secret)


@story
async def test_what_cannot_be_recorded_is_not_issued_and_not_revoked() -> None:
    recorder = Recorder()
    tokens = Tokens(recorder, lambda: 0)
    token, secret = await tokens.issue("member")
    recorder.trouble = "stands by"
    with pytest.raises(NotReady):
        await tokens.revoke(token.id)
    with pytest.raises(NotReady):
        await tokens.issue("admin")
    assert [known.id for known in tokens] == [token.id]
    assert tokens.find(secret)


@story
async def test_a_browser_ends_with_each_token_that_let_it_in() -> None:
    tokens = at()
    token, _ = await tokens.issue("member", "a")
    first, _ = await tokens.issue("viewer", "a", made_by=token.id)
    second, secret = await tokens.issue("viewer", "a", made_by=first.id)
    assert tokens.find(secret) == second
    await tokens.revoke(first.id)
    assert (tokens.still(token), tokens.still(first), tokens.still(second)) == (True, False, False)


@story
async def test_a_browser_that_comes_in_while_its_token_is_revoked_is_void() -> None:
    """The link was taken before, and its token is recorded after the revocation."""
    tokens = at()
    token, _ = await tokens.issue("member")
    await tokens.revoke(token.id)
    browser, secret = new_token("viewer", made_by=token.id)
    tokens.hold(browser)
    assert tokens.find(secret) is None


@story
async def test_a_line_of_browsers_has_an_end() -> None:
    tokens = at()
    last, _ = await tokens.issue("viewer")
    for _ in range(MOST_DEEP):
        last, secret = await tokens.issue("viewer", made_by=last.id)
        assert tokens.find(secret)
    with pytest.raises(Problem, match="too many others"):
        await tokens.issue("viewer", made_by=last.id)


@story
async def test_browsers_that_let_each_other_in_are_void() -> None:
    tokens = at()
    (first, secret), (second, _) = new_token("viewer"), new_token("viewer")
    tokens.hold(replace(first, made_by=second.id), replace(second, made_by=first.id))
    assert tokens.find(secret) is None


@story
async def test_another_role_or_team_ends_what_is_open() -> None:
    tokens = at()
    token, secret = await tokens.issue("member", "a")
    ending = asyncio.ensure_future(tokens.gone(token))
    tokens.hold(replace(token, team="b"))
    await ending
    changed = tokens.find(secret)
    assert changed is not None
    assert changed.team == "b"


@story
async def test_a_stream_ends_when_its_token_expires_although_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.tokens.EXPIRY_SECONDS", 0.01)
    now = [0.0]
    tokens = Tokens(Recorder(), lambda: now[0])
    token, _ = await tokens.issue("viewer", expires_at=100)
    closed = asyncio.Event()

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            now[0] = 100.0
            await asyncio.Event().wait()
        finally:
            closed.set()

    assert [item async for item in tokens.while_valid(token, items())] == [1]
    assert closed.is_set()


@story
async def test_a_stream_that_ends_by_itself_ends() -> None:
    tokens = at()
    token, _ = await tokens.issue("viewer")

    async def items() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    assert [item async for item in tokens.while_valid(token, items())] == [1, 2]
    assert await tokens.while_asked(token, asyncio.sleep(0, "done")) == "done"


@story
async def test_what_is_asked_by_a_token_that_ends_is_refused_and_stopped() -> None:
    tokens = at()
    token, _ = await tokens.issue("viewer")
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    asking = asyncio.ensure_future(tokens.while_asked(token, work()))
    await asyncio.sleep(0)
    await tokens.revoke(token.id)
    with pytest.raises(Problem, match="A token is needed"):
        await asking
    await stopped.wait()


@story
async def test_an_error_that_comes_with_the_end_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    tokens = at()
    token, _ = await tokens.issue("viewer")

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the site is gone")

    asking = asyncio.ensure_future(tokens.while_asked(token, fails()))
    await asyncio.sleep(0)
    await tokens.revoke(token.id)
    with pytest.raises(Problem, match="A token is needed"):
        await asking
    del asking
    gc.collect()
    assert "never retrieved" not in caplog.text


@story
async def test_a_follower_knows_what_others_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.tokens.FOLLOW_SECONDS", 0.005)
    tokens, tables = at(), Tables()
    token, secret = new_token("member", "a")
    row = TokenRow(token.id, token.digest, token.role, token.team, 0, "", "", number=7, part=0)
    async with tokens.followed(tables):  # type: ignore[arg-type]  # all that is asked of a reader
        tables.rows.append(row)
        while not tokens.find(secret):
            await asyncio.sleep(0.005)
        ending = asyncio.ensure_future(tokens.gone(token))
        tables.void.append(RevocationRow(token.id, 0, number=8, part=0))
        await ending
    assert tokens.find(secret) is None


@story
async def test_a_revocation_that_is_read_before_its_token_holds() -> None:
    tokens, tables = at(), Tables()
    token, secret = new_token("member")
    tables.void.append(RevocationRow(token.id, 0, number=8, part=0))
    tokens.read(tables)  # type: ignore[arg-type]  # as above
    tables.rows.append(TokenRow(token.id, token.digest, token.role, "", 0, "", "", number=7, part=0))
    tokens.read(tables)  # type: ignore[arg-type]  # as above
    assert tokens.find(secret) is None


@story
async def test_who_was_suspended_asks_before_it_lets_anybody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.tokens.FOLLOW_SECONDS", 3_600)
    tokens, tables = at(), Tables()
    async with tokens.followed(tables):  # type: ignore[arg-type]  # as above
        token, secret = await tokens.issue("member")
        tables.void.append(RevocationRow(token.id, 0, number=8, part=0))
        await tokens.fresh()
        assert tokens.find(secret)  # it asked a moment ago
        monkeypatch.setattr("penstock.web.tokens.STALE_SECONDS", -1)
        await asyncio.gather(*(tokens.fresh() for _ in range(5)))
        assert tokens.find(secret) is None


@story
async def test_an_answer_to_what_was_asked_before_it_was_suspended_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request passed while the follower's own question was under way: it held an answer from before the suspension,
    or none yet.
    """
    monkeypatch.setattr("penstock.web.tokens.FOLLOW_SECONDS", 3_600)
    now = [0.0]
    monkeypatch.setattr("penstock.web.tokens.monotonic", lambda: now[0])

    class Slow(Tables):
        """The machine is suspended while the first question is under way; its answer is from before."""

        def revocations(self, after: int = 0) -> list[RevocationRow]:
            before, now[0] = now[0], 100.0
            return super().revocations(after) if before else []

    tokens, tables = at(), Slow()
    async with tokens.followed(tables):  # type: ignore[arg-type]  # as above
        token, secret = await tokens.issue("member")
        tables.void.append(RevocationRow(token.id, 0, number=8, part=0))
        asking = asyncio.ensure_future(tokens._ask())
        while now[0] == 0:
            await asyncio.sleep(0)
        await asyncio.gather(*(tokens.fresh() for _ in range(3)))
        assert tokens.find(secret) is None
        await asking


@story
async def test_one_token_lets_in_so_many_browsers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a row of the journal and stays in memory for a week."""
    monkeypatch.setattr("penstock.web.tokens.MOST_BROWSERS", 3)
    now = [0.0]
    tokens = Tokens(Recorder(), lambda: now[0])
    token, _ = await tokens.issue("viewer")
    other, _ = await tokens.issue("viewer")
    first, _ = await tokens.issue("viewer", expires_at=9, made_by=token.id)
    for maker in (token, first):
        await tokens.issue("viewer", expires_at=9, made_by=maker.id)
    for maker in (token, first):
        with pytest.raises(Problem, match="3 browsers") as raised:
            await tokens.issue("viewer", made_by=maker.id)
        assert raised.value.status == 429
    await tokens.issue("viewer", made_by=other.id)
    now[0] = 9.0  # they have expired
    await tokens.issue("viewer", made_by=token.id)


# --- our own commands' ------------------------------------------------------------------------------------------------


@story
async def test_our_own_token_is_made_once_and_again_if_it_is_lost_or_void(tmp_path: Path) -> None:
    recorder, path = Recorder(), tmp_path / "token"
    tokens = Tokens(recorder, lambda: 0)
    first = own_secret(tokens, path)
    assert own_secret(tokens, path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    second = own_secret(tokens, path)
    assert second != first
    (token,) = [token for token in tokens if token.digest == getattr(tokens.find(second), "digest", "")]
    await tokens.revoke(token.id)
    assert own_secret(tokens, path) not in (first, second)


@story
async def test_a_standby_records_its_own_token_when_it_leads(tmp_path: Path) -> None:
    recorder = Recorder()
    tokens = Tokens(recorder, lambda: 0)
    secret = own_secret(tokens, tmp_path / "token")
    assert tokens.find(secret)
    assert recorder.facts == []
    await tokens.record()
    (fact,) = recorder.facts
    assert isinstance(fact, e.TokenIssued)
    assert secret not in repr(fact)
    await tokens.record()
    assert len(recorder.facts) == 1
