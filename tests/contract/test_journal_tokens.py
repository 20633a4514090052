"""Tokens and the audit trail in every journal: projected from the chain, rebuilt from it, and believed only with it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.engine import Engine, Step
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec
from penstock.journal.audit import SITES_FILE, AuditFilter, AuditRow
from penstock.journal.open import open_journal, open_reader
from penstock.journal.tokens import RevocationRow, TokenRow
from penstock.journal.writer import JournalWriter
from tests.contract.journals import KINDS, LEASE, append, epoch_of, everything, new_address

ADA = e.TokenIssued(2, "ada", "0" * 64, "member", "red", 99, by="root", details="d1", name="n1")
BROWSER = e.TokenIssued(3, "ada-b", "1" * 64, "viewer", "red", 50, made_by="ada", by="ada", details="d2")


def steps() -> list[Step]:
    engine = Engine()
    batches: list[list[e.Fact]] = [
        [e.CapSet(1, "org", 5)],
        [ADA],
        [BROWSER, e.JobSubmitted(3, 1, "a", JobSpec(1, user="ada"))],
        [e.CancelRequested(4, "a", "ada", "d3", "waiting"), e.LogRead(4, "a", "root", "d4")],
        [e.JobSubmitted(5, 2, "b", JobSpec(1, user="ada"), retries="a", details="d5"), e.ExecStarted(5, "b.1", "ada")],
        [e.TokenRevoked(6, "ada", "root"), e.DetailsErased(6, "ada", "root"), e.LeaveRequested(6, "lab", "root")],
        [e.Paused(7, "root"), e.Resumed(7, "root"), e.CapSet(7, "org", None, 3, "root", "", 5)],
    ]
    return [engine.handle(*facts) for facts in batches]


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_address(request.param, tmp_path, request)


@pytest.fixture
def journal(where: str) -> Iterator[JournalWriter]:
    with closing(open_journal(where)) as found:
        append(found, found.claim("here", 0, LEASE), steps())
        yield found


def test_tokens_are_read_by_what_is_newer(journal: JournalWriter, where: str) -> None:  # noqa: ARG001 - holds them
    with closing(open_reader(where)) as reader:
        ada = TokenRow("ada", "0" * 64, "member", "red", 99, "", "n1", 2, 0)
        browser = TokenRow("ada-b", "1" * 64, "viewer", "red", 50, "ada", "", 3, 1)
        assert reader.tokens() == [ada, browser]
        assert reader.tokens(after=2) == [browser]
        assert (reader.tokens(browsers_after=49), reader.tokens(browsers_after=50)) == ([ada, browser], [ada])
        assert (reader.token("ada"), reader.token("none")) == (ada, None)
        assert reader.revocations() == [RevocationRow("ada", 6, 6, 0)]
        assert reader.revocations(after=6) == []


def test_the_audit_trail_says_who_did_what(journal: JournalWriter, where: str) -> None:  # noqa: ARG001 - as above
    with closing(open_reader(where)) as reader:
        whole = reader.audit(AuditFilter(), limit=100)
        assert [(row.who, row.did, row.about, row.before, row.after) for row in reversed(whole)] == [
            (SITES_FILE, "cap", "org", "", "$0.000005 a month"),
            ("root", "token made", "ada", "", "member of red"),
            ("ada", "login", "ada-b", "ada", "viewer of red"),
            ("ada", "cancel", "a", "waiting", ""),
            ("root", "log read", "a", "", ""),
            ("ada", "retry", "b", "a", "b"),
            ("ada", "exec", "b.1", "", ""),
            ("root", "token revoked", "ada", "", ""),
            ("root", "leave", "lab", "", ""),
            ("root", "erase", "ada", "", ""),
            ("root", "pause", "", "", ""),
            ("root", "resume", "", "", ""),
            ("root", "cap", "org", "$0.000005 a month", "$0.000003 an hour"),
        ]
        paged: list[AuditRow] = []
        while page := reader.audit(AuditFilter(), (paged[-1].number, paged[-1].part) if paged else None, 2):
            paged += page
        assert paged == whole
        assert [row.did for row in reader.audit(AuditFilter(who="ada", did="cancel"))] == ["cancel"]
        assert [row.did for row in reader.audit(AuditFilter(about="a"))] == ["log read", "cancel"]


def test_a_rebuild_brings_both_back(journal: JournalWriter) -> None:
    before = everything(journal)
    for table in ("tokens", "revocations", "audit"):
        journal.db.run(f"delete from {table}")
    journal.rebuild(epoch_of(journal))
    assert everything(journal) == before


def test_a_row_that_the_chain_does_not_have_lets_nobody_in(journal: JournalWriter, where: str) -> None:
    """Somebody who can write one table makes themselves an admin."""
    with closing(open_reader(where)) as reader:
        (ada, browser) = reader.tokens()
        forged = [
            replace(ada, id="eve", digest="e" * 64, role="admin", team=""),
            replace(ada, id="eve2", digest="f" * 64, number=1_000),
        ]
        for row in forged:
            values = (row.id, row.digest, row.role, row.team, 0, "", "", row.number, row.part)
            journal.db.run("insert into tokens values (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
        assert reader.tokens() == [ada, browser]
        journal.db.run("update tokens set role = 'admin', team = '' where id = 'ada'")
        assert reader.tokens() == [browser]
        journal.db.run("update tokens set expires_at = 0 where id = 'ada-b'")
        assert reader.tokens() == []
