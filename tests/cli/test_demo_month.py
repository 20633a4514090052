"""`penstock demo --month` checks what it claims: true is exit code 0, one untrue claim is exit code 1."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main as cli
from penstock.cli import terminal
from penstock.journal import redecide as again

SMALL = ["demo", "--month", "--jobs", "700"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no processes: these loads are over before one has started


def test_the_tale_is_true_and_its_stories_are_what_why_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(SMALL) == 0
    stdout = capsys.readouterr().out
    assert "NOT TRUE" not in stdout
    assert stdout.count("  true: ") == 7
    assert Path("penstock-demo/compare.html").is_file()
    assert "The picture: penstock-demo/compare.html\nTry next:\n" in stdout
    own = terminal.program()
    pasted = stdout[stdout.index("Try next:\n") :].splitlines()[1:3]
    for line in pasted:  # "penstock: command not found" was the answer: `make demo` puts it on no PATH
        assert line.startswith(f"  {own} "), line
        done = subprocess.run(["sh", "-c", line], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    commands = re.findall(r"^\$ penstock (why \S+ --journal \S+)$", stdout, re.MULTILINE)
    assert len(commands) == 3
    stories = []
    for command in commands:
        assert cli.main(command.split()) == 0
        stories.append(capsys.readouterr().out)
        assert f"$ penstock {command}\n{stories[-1]}\n" in stdout
    waited, burst, resumed = stories
    assert re.search(r"Starts on lab/owned.*after .* in the queue", waited)
    assert re.search(r"Bursts to .*it was queued for .*, and its policy allows", burst)
    assert re.search(r"Bursts to .*/spot.*Preempted: its node was reclaimed;.*Resumes after", resumed, re.DOTALL)
    assert all("Succeeded." in story for story in stories)


def test_json_is_one_line_and_a_second_run_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for _ in range(2):
        assert cli.main([*SMALL, "--json", "--out", "o"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        lines.append(json.loads(line))
    assert lines[0] == lines[1]
    assert lines[0]["jobs"] == 700
    assert lines[0]["true"] is True
    assert set(lines[0]["stories"]) == {"waited", "burst", "resumed"}
    assert lines[0]["least_cost"] < lines[0]["burst_at_once_cost"]
    assert lines[0]["picture"] == "o/compare.html"


def test_a_claim_that_is_untrue_is_said_and_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(again, "redecide", lambda *_, **__: again.RedecideReport(5, 4, 1, ()))
    assert cli.main(SMALL) == 1
    stdout = capsys.readouterr().out
    assert "  NOT TRUE: 4 promises, decided again, are the same" in stdout
    assert stdout.count("  true: ") == 6


def test_a_month_too_quiet_for_the_stories_does_not_claim_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--month", "--jobs", "3", "--json"]) == 1
    line = json.loads(capsys.readouterr().out)
    assert line["true"] is False
    assert line["claims"]["each of the three stories happened"] is False
    assert line["claims"]["every job ran to its end, once"] is True


def test_a_folder_that_cannot_be_written_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert cli.main(["demo", "--month", "--out", "taken"]) == 2
    assert capsys.readouterr() == (
        "",
        "Error: Cannot write to taken: File exists. Name another folder with --out.\n",
    )


def test_what_stands_in_the_journals_place_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("o/month.journal").mkdir(parents=True)
    assert cli.main(["demo", "--month", "--out", "o"]) == 2
    captured: Any = capsys.readouterr()
    assert captured.err.startswith("Error: Cannot replace o/month.journal: ")


@pytest.mark.slow
def test_the_whole_month_ends_well_within_a_minute_without_a_terminal(tmp_path: Path) -> None:
    """In a process of its own, so with workers of its own, as people run it."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from penstock.cli.main import main; sys.exit(main(['demo', '--month']))"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,  # the promise is a minute on two idle cores; a busy machine is not a broken demo
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
