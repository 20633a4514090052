"""What people read: numbers as they write them, tables that survive a pipe."""

import enum
import io
import json
import re
import sys
from dataclasses import dataclass
from typing import cast

import pytest

from penstock.cli import terminal as show

#: A terminal's code for a colour; bold and the like stay allowed without colours.
COLOUR = re.compile(r"\x1b\[(\d+;)*([34]\d|9\d|10\d)[;m]")


def test_a_table_in_a_pipe_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "waits for owned: a node ends about 14:05 " * 5 + "[8]"
    show.table("Jobs", ["job", "cost", "reason"], [["a", "$9.10", reason], ["long-name", "$1,284.10", "none"]])
    assert capsys.readouterr().out == (
        f"Jobs\njob             cost  reason\na              $9.10  {reason}\nlong-name  $1,284.10  none\n"
    )


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    show.table("Jobs", ["job", "cost"], [])
    assert capsys.readouterr().out == "Jobs\njob  cost\n"


def test_a_row_that_does_not_fit_its_columns_is_a_bug() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells under 2 columns"):
        show.table("Jobs", ["job", "cost"], [["a"]])


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["$1.00", "-$2.00", "none", ""], True),
        (["CHF 1.00", "+3"], True),
        (["2 h 14 min", "31 h"], True),
        (["12.5 %", 7], True),
        (["a100", "8"], False),
        (["USA 1st", "B"], False),
        (["none", "-"], False),
    ],
)
def test_columns_of_numbers_go_to_the_right(
    cells: list[object], numeric: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    show.table("t", ["a wide head"], [[cell] for cell in cells])
    first = capsys.readouterr().out.splitlines()[2]
    assert first == (str(cells[0]).rjust(11) if numeric else str(cells[0]))


def test_a_table_on_a_terminal_shows_brackets_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    show.table("Jobs [all]", ["job", "cost"], [["[bold]a", "$9.10"]])
    assert "[bold]a" in terminal.getvalue()
    assert "Jobs [all]" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    show.table("Jobs", ["job"], [["a"]])
    with show.progress(2, "jobs") as advance:
        advance(2)
    assert "2/2" in terminal.getvalue()
    assert not COLOUR.search(terminal.getvalue())


def test_progress_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with show.progress(10, "jobs [all]") as advance:
        advance(4)
        advance(6)
    assert "jobs [all]" in terminal.getvalue()
    assert "10/10" in terminal.getvalue()
    assert COLOUR.search(terminal.getvalue())


def test_progress_is_silent_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with show.progress(10, "jobs") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_json_holds_what_values_hold(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_json({"offer": Offer("lab", Term.OWNED), "names": ("ä", None)})
    out = capsys.readouterr().out
    assert json.loads(out) == {"offer": {"site": "lab", "term": "owned"}, "names": ["ä", None]}
    assert out.startswith('{\n  "offer"')
    assert "ä" in out


def test_without_rich_a_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "rich", None)
    show.table("Sites", ["site", "GPUs"], [["lab", 8]])
    with show.progress(2, "points measured") as advance:
        advance(1)
    assert screen.getvalue() == "Sites\nsite  GPUs\nlab      8\n"


def test_json_reaches_a_pipe_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever read the pipe of `penstock up --json` waited for ever, unless Python was told not to buffer."""
    pipe = io.BytesIO()
    monkeypatch.setattr(
        sys, "stdout", io.TextIOWrapper(io.BufferedWriter(cast("io.RawIOBase", pipe)), encoding="utf-8")
    )
    show.print_json({"address": "here"})
    assert pipe.getvalue() == b'{\n  "address": "here"\n}\n'


class Term(enum.Enum):
    OWNED = "owned"


@dataclass(slots=True)
class Offer:
    site: str
    term: Term


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both outputs of the process, as a terminal with colours."""
    # Called inside the test: between a fixture and its test pytest puts its own outputs back.
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    return screen
