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
from penstock.core.errors import BadFile, BadInput

#: Name -> module (and, where it holds several, the command's name in it), first line of the command's docstring.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("penstock.cli.up", "Start Penstock here, in the foreground."),
    "open": ("penstock.cli.open", "Print a link that lets a browser in, once."),
    "submit": ("penstock.cli.ask:submit", "Submit a job from a YAML file, or a Kubernetes Job to its cluster."),
    "run": ("penstock.cli.ask:run", "Submit a command and follow it; ends as the job ends."),
    "plan": ("penstock.cli.ask:plan", "Say where a job would run and what it would cost; spends nothing."),
    "jobs": ("penstock.cli.jobs:jobs", "List jobs, newest first."),
    "job": ("penstock.cli.jobs:job", "Show one job with its attempts."),
    "why": ("penstock.cli.why", "Say why a job is where it is, a line for each decision."),
    "logs": ("penstock.cli.logs", "Print what a job printed."),
    "exec": ("penstock.cli.exec", "Run a command where a job runs; ends as it ends."),
    "cancel": ("penstock.cli.wish:cancel", "Cancel jobs; what runs is told to stop."),
    "retry": ("penstock.cli.wish:retry", "Submit an ended job again, as a new one."),
    "move": ("penstock.cli.wish:move", "Move a running job to another offer, with its checkpoint."),
    "sites": ("penstock.cli.places:sites", "List sites with their GPUs: busy, starting, idle, lost."),
    "offers": ("penstock.cli.places:offers", "List offers: prices, starts, losses, how hard caps are there."),
    "budget": ("penstock.cli.spending:budget", "Show caps, what is spent and what is held; or set caps."),
    "exposure": ("penstock.cli.spending:exposure", "Say what would still be spent if Penstock died now."),
    "costs": ("penstock.cli.spending:costs", "Show GPU time and money by day, offer and team."),
    "events": ("penstock.cli.events", "Show what happened, oldest first; -f goes on."),
    "pause": ("penstock.cli.wish:pause", "Start nothing new; what runs goes on."),
    "resume": ("penstock.cli.wish:resume", "Start things again after a pause."),
    "token": ("penstock.cli.token", "Make, list and revoke tokens."),
    "doctor": ("penstock.cli.doctor", "Check this machine's Penstock and say what to do."),
    "kubectl": ("penstock.cli.kubectl", "Speak of Jobs as kubectl does; also `kubectl penstock`."),
    "manifests": ("penstock.cli.manifests", "Print rights and admission policies to apply to a cluster."),
    "leave": ("penstock.cli.leave", "Give every Kubernetes Job back, and leave no mark on the clusters."),
    "portability": ("penstock.cli.portability", "Say which Jobs could leave a cluster, and what keeps the others."),
    "shadow": ("penstock.cli.shadow", "Say what Penstock would have done with a cluster's Jobs; only looks."),
    "simulate": ("penstock.cli.simulate", "Run a trace of jobs through the engine: waits, cost, use."),
    "compare": ("penstock.cli.compare", "Run the same jobs under several policies, side by side."),
    "replay": ("penstock.cli.replay", "Rebuild the state from a journal and verify its chain."),
    "redecide": ("penstock.cli.redecide", "Decide a journal's facts again and list what would differ."),
    "journal": ("penstock.cli.journal", "Look at a journal, check it, or make its tables anew."),
    "demo": ("penstock.cli.demo", "Show what Penstock does: ten small trainings on this machine."),
    "dev-cluster": ("penstock.cli.dev_cluster", "Start Kubernetes clusters on this machine, to try things on."),
    "completion": ("penstock.cli.completion", 'Print shell completion: eval "$(penstock completion bash)".'),
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
        return max(error.exit_code, BAD_INPUT)
    except BadInput as error:
        if isinstance(error, BadFile) and _asks_for_json(args):
            click.echo(_as_json(error))
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


def _asks_for_json(args: Sequence[str] | None) -> bool:
    """Whatever follows `--` is somebody else's command."""
    words = list(sys.argv[1:] if args is None else args)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _as_json(bad: BadFile) -> str:
    """All errors of a file, also those that a message leaves out."""
    import json

    return json.dumps({"errors": [error._asdict() for error in bad.errors], "more": bad.more})


def _discard_output() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, or Python complains when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load(name: str) -> click.Command:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute or "command")
    assert isinstance(command, click.Command)
    return command


class LazyGroup(click.Group):
    """Lists commands from `COMMANDS`; imports one only when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's signature)
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (as above)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="penstock", message="%(prog)s %(version)s")
def penstock() -> None:
    """Fill the GPUs you own first; rent just enough beside them."""
