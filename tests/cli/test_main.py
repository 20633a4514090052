"""The table of commands is true, help is quick, and whatever a person does wrong ends in one message."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from penstock import __version__
from penstock.cli import main as cli
from penstock.core.errors import BadInput
from penstock.extras import install

HEAVY = {"rich", "msgspec", "numpy", "yaml", "asyncio"}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_exists_and_its_line_in_help_is_its_docstring(name: str) -> None:
    _, line = cli.COMMANDS[name]
    command = cli.load(name)
    assert command.name == name
    assert (command.help or "").splitlines()[:1] == [line]


def test_help_lists_all_commands_and_imports_nothing_heavy() -> None:
    done = python(
        "import sys; from penstock.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    assert all(f"  {name} " in done.stdout for name in cli.COMMANDS)
    assert not HEAVY & set(done.stderr.split())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize("args", [["simluate"], ["--no-such-option"], []])
def test_wrong_usage_is_a_message_and_exit_code_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: penstock" in captured.err
    assert "Traceback" not in captured.err


def test_bad_input_is_its_sentence_and_exit_code_2(command: "Run", capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise BadInput("jobs.csv, row 3: gpus must be a whole number.")

    assert command(fail) == 2
    assert capsys.readouterr() == ("", "Error: jobs.csv, row 3: gpus must be a whole number.\n")


def test_a_package_that_is_not_installed_is_a_message_that_names_its_extra(
    command: "Run", capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'google.auth'", name="google.auth")

    assert command(fail) == 2
    assert capsys.readouterr() == (
        "",
        f"Error: This command needs the package google, which is not installed: {install('gke')}\n",
    )


def test_a_module_that_no_extra_has_is_a_bug_and_stays_one(command: "Run") -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'penstock.nothing'", name="penstock.nothing")

    with pytest.raises(ModuleNotFoundError):
        command(fail)


def test_a_bad_file_is_all_its_errors_for_people_and_for_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("gpus: two\ncommand: x\nclass: very big\n")
    message = (
        f"Error: {path}: 2 errors.\n"
        f"{path}, line 1, gpus: 'two' is not a whole number from 1 to 100,000.\n"
        f"{path}, line 3, class: 'very big' is not a name: "
        "up to 63 letters, digits, '-', '_' and '.', without spaces or slashes.\n"
    )
    assert cli.main(["submit", str(path)]) == 2
    assert capsys.readouterr() == ("", message)
    assert cli.main(["submit", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err == message
    answer = json.loads(captured.out)
    assert answer["more"] == 0
    assert [(error["file"], error["line"], error["key"]) for error in answer["errors"]] == [
        (str(path), 1, "gpus"),
        (str(path), 3, "class"),
    ]
    assert answer["errors"][0]["message"] == "'two' is not a whole number from 1 to 100,000."


def test_an_interrupt_is_quiet(command: "Run", capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert command(interrupted) == 130
    assert capsys.readouterr() == ("", "")


def test_a_bug_is_not_hidden(command: "Run") -> None:
    """Click's own main takes an EOFError, which a trace cut short raises, for ^C."""

    def cut_short() -> None:
        raise EOFError("compressed file ended")

    with pytest.raises(EOFError):
        command(cut_short)


def test_a_command_may_return_or_exit_with_a_code(command: "Run") -> None:
    assert command(lambda: None) == 0
    assert command(lambda: 1) == 1
    assert command(lambda: click.get_current_context().exit(3)) == 3


@pytest.mark.parametrize("lines", [1, 100_000])  # the pipe is found closed when flushing at the end; when printing
def test_a_closed_pipe_is_quiet(lines: int) -> None:
    program = f"""
import sys
from penstock.cli import main as cli
cli.penstock.invoke = lambda context: print("line\\n" * {lines})
sys.stdin.read()
sys.exit(cli.main(["demo"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # nobody reads; only then may the program go on
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_shell_can_complete_commands() -> None:
    done = python(
        "from penstock.cli.main import main; main()",
        _PENSTOCK_COMPLETE="bash_complete",
        COMP_WORDS="penstock --ver",
        COMP_CWORD="1",
    )
    assert "--version" in done.stdout


Run = Callable[[Callable[[], object]], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a function as if it were the command `demo`."""

    def run(body: Callable[[], object]) -> int:
        monkeypatch.setattr(cli.penstock, "get_command", lambda _ctx, _name: click.command("demo")(body))
        return cli.main(["demo"])

    return run


def python(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ | env, capture_output=True, text=True, check=False, timeout=60
    )


EXAMPLE = re.compile(r"^ +penstock (.+)$", re.MULTILINE)


@pytest.mark.parametrize("name", ["budget", "jobs", "plan", "run", "submit", "why"])
def test_the_help_ends_with_examples_that_the_command_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No help of some 75 had one."""
    assert cli.main([name, "--help"]) == 0
    lines = EXAMPLE.findall(capsys.readouterr().out.partition("Examples:\n")[2])
    assert len(lines) >= 2
    for line in lines:
        command, *words = shlex.split(line)
        assert command == name
        cli.load(name).make_context(name, words)  # which refuses an option or a value that there is not
