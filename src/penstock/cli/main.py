"""`penstock`: the table of commands, and how a run ends. Called by the console script.

A command's module is imported only when that command is asked for, so this file imports nothing heavy:
`penstock --help` is what people wait for most often.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from penstock import __version__
from penstock.core.errors import BadInput

#: Name -> module, first line of its command's docstring. Each module has a click command called `command`.
COMMANDS: dict[str, tuple[str, str]] = {
    "simulate": ("penstock.cli.simulate", "Run a trace of jobs through the engine: waits, cost, use."),
    "compare": ("penstock.cli.compare", "Run the same jobs under several policies, side by side."),
    "why": ("penstock.cli.why", "Say why a job is where it is, from a journal."),
    "replay": ("penstock.cli.replay", "Rebuild the state from a journal and verify its chain."),
    "redecide": ("penstock.cli.redecide", "Decide a journal's facts again and list what would differ."),
    "journal": ("penstock.cli.journal", "Look at a journal, check it, or make its tables anew."),
    "demo": ("penstock.cli.demo", "Show what Penstock does, on a small made-up cluster."),
}

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
READER_GONE = 141  # 128 + SIGPIPE, likewise


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. What a person can cause is one message; a traceback is a bug."""
    try:
        answer = run(args)
        sys.stdout.flush()  # here, not at interpreter exit, so that a closed pipe is noticed below
    except click.ClickException as error:
        error.show()
        return BAD_INPUT
    except BadInput as error:
        click.echo(f"Error: {error}", err=True)
        return BAD_INPUT
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return READER_GONE
    return answer


def run(args: Sequence[str] | None) -> int:
    """The command's exit code: what it passed to `ctx.exit` or returned, and 0 if that was nothing."""
    if "_PENSTOCK_COMPLETE" in os.environ:
        penstock.main(prog_name="penstock")  # a shell asks how a word may go on; click answers and exits
    # Otherwise not through click's `main`: it takes any EOFError for ^C, and a trace cut short would end in silence.
    try:
        with penstock.make_context("penstock", list(sys.argv[1:] if args is None else args)) as context:
            code = penstock.invoke(context)
    except click.exceptions.Exit as asked:
        return asked.exit_code
    return code if isinstance(code, int) else 0


def _discard_output() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, or Python complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LazyGroup(click.Group):
    """Lists commands from `COMMANDS`; imports one only when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's signature)
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (as above)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="penstock", message="%(prog)s %(version)s")
def penstock() -> None:
    """Fill the GPUs you own first; rent just enough beside them."""
