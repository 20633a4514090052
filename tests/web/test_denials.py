"""Denied requests are counted in bounded space: strangers and people apart."""

import stat
from pathlib import Path

from penstock.web.denials import KEEP_SECONDS, MOST_LINES, REST, Denials
from tests.awaiting import story


def test_a_thousand_addresses_more_change_nothing_but_a_sum(tmp_path: Path) -> None:
    now = [1.0]
    denials = Denials(tmp_path / "denied.json", lambda: now[0])
    denials.count_token("82fafb8d07be", "POST /v1/pause", "viewer may not operate")
    for k in range(5 * MOST_LINES):
        denials.count_stranger(f"10.{k >> 16}.{k >> 8 & 255}.{k & 255}", "GET /" + "x" * 100_000, "no token")
    assert len(denials.strangers) <= MOST_LINES
    assert sum(line.requests for line in denials.strangers.values()) == 5 * MOST_LINES
    assert denials.strangers[REST].requests >= 4 * MOST_LINES
    assert list(denials.tokens) == ["82fafb8d07be"]
    denials.save()
    assert (tmp_path / "denied.json").stat().st_size < 600 * MOST_LINES
    assert stat.S_IMODE((tmp_path / "denied.json").stat().st_mode) == 0o600
    again = Denials(tmp_path / "denied.json", lambda: now[0])
    assert again.lines() == denials.lines()


def test_a_machine_with_many_addresses_is_one_line(tmp_path: Path) -> None:
    denials = Denials(tmp_path / "denied.json", lambda: 1.0)
    for address in ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.1", "", "unix"):
        denials.count_stranger(address, "GET /", "no token")
    assert {source: line.requests for source, line in denials.strangers.items()} == {
        "2001:db8::/64": 2,
        "2001:db8:0:1::/64": 1,
        "192.0.2.1": 2,
        "": 1,
        "unix": 1,
    }
    assert denials.forget("2001:db8::5") == 1
    assert denials.forget("192.0.2.1") == 1
    assert denials.forget("192.0.2.1") == 0


def test_an_address_is_forgotten_after_a_while_and_a_damaged_file_begins_anew(tmp_path: Path) -> None:
    now = [1.0]
    denials = Denials(tmp_path / "denied.json", lambda: now[0])
    denials.count_stranger("192.0.2.1", "GET /", "no token")
    now[0] += KEEP_SECONDS + 1
    denials.save()
    assert "192.0.2.1" not in (tmp_path / "denied.json").read_text()
    for damage in (b"", b"{", b"[]", b'{"strangers": [1]}', b"\xff"):
        (tmp_path / "denied.json").write_bytes(damage)
        assert Denials(tmp_path / "denied.json", lambda: 1.0).lines() == []


@story
async def test_counts_are_written_at_the_end(tmp_path: Path) -> None:
    denials = Denials(tmp_path / "denied.json", lambda: 1.0)
    async with denials.saved():
        denials.count_stranger("192.0.2.1", "GET /", "no token")
    assert "192.0.2.1" in (tmp_path / "denied.json").read_text()
