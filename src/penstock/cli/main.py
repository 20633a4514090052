"""`penstock`: the table of commands, and how a run ends. Called by the console script.

A command's module is imported only when that command is asked for, so this file imports nothing heavy:
`penstock --help` is what people wait for most often.
"""

import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from penstock import __version__
from penstock.core.errors import BadFile, BadInput

#: Name -> module (and, where it holds several, the command's name in it), first line of the command's docstring.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("penstock.cli.up", "Start the Penstock server in the foreground."),
    "open": ("penstock.cli.open", "Print a one-time login link for the browser."),
    "submit": ("penstock.cli.submit:submit", "Submit a job from a YAML file, or a Kubernetes Job to its cluster."),
    "run": ("penstock.cli.submit:run", "Run a command as a job, print its output, and exit as it exits."),
    "plan": ("penstock.cli.submit:plan", "Show where a job would run and what it would cost; starts nothing."),
    "jobs": ("penstock.cli.jobs:jobs", "List jobs, newest first."),
    "job": ("penstock.cli.jobs:job", "Show one job with its attempts."),
    "why": ("penstock.cli.why", "Explain where a job runs or why it is queued, one line per decision."),
    "logs": ("penstock.cli.logs", "Print a job's output."),
    "exec": ("penstock.cli.exec", "Run a command inside a running job, and exit as it exits."),
    "cancel": ("penstock.cli.control:cancel", "Cancel jobs; running ones are stopped first."),
    "retry": ("penstock.cli.control:retry", "Submit an ended job again as a new job."),
    "move": ("penstock.cli.control:move", "Move a running job to another offer, with its checkpoint."),
    "sites": ("penstock.cli.sites:sites", "List sites and how many of their GPUs are busy, starting, idle or lost."),
    "offers": (
        "penstock.cli.sites:offers",
        "List offers: prices, start times, preemption rates, and whether caps hold there.",
    ),
    "nodes": ("penstock.cli.nodes", "List rented nodes: for whom, until when, and what they cost."),
    "cluster": ("penstock.cli.cluster", "Have a site's transient cluster up, list them, or send one away."),
    "budget": ("penstock.cli.spending:budget", "Show budgets: caps, spent and held money; or set caps."),
    "approvals": ("penstock.cli.approvals", "List what waits for a person; approve or deny it."),
    "exposure": ("penstock.cli.spending:exposure", "Show the most that would still be spent if Penstock died now."),
    "costs": ("penstock.cli.spending:costs", "Show GPU hours and costs by day, offer and team."),
    "events": ("penstock.cli.events", "Show events, oldest first; -f follows."),
    "pause": ("penstock.cli.control:pause", "Pause new starts; running jobs continue."),
    "resume": ("penstock.cli.control:resume", "Resume new starts after a pause."),
    "token": ("penstock.cli.token", "Create, list and revoke API tokens."),
    "audit": ("penstock.cli.audit", "Show who did what, and erase addresses and words."),
    "doctor": ("penstock.cli.doctor", "Check this machine's Penstock and say how to fix what is wrong."),
    "kubectl": ("penstock.cli.kubectl", "Work with Kubernetes Jobs; also runs as `kubectl penstock`."),
    "connect": ("penstock.cli.connect", "Connect a cluster: make Penstock's account there and write the site."),
    "disconnect": (
        "penstock.cli.disconnect",
        "Undo connect: remove account, rights and admission policies.",
    ),
    "manifests": ("penstock.cli.manifests", "Print RBAC and admission policies for a cluster, to apply with kubectl."),
    "watchman": (
        "penstock.cli.watchman",
        "End rented objects past their deadline; a pod in the management cluster runs it.",
    ),
    "leave": ("penstock.cli.leave", "Uninstall from clusters: return every Job to Kubernetes and remove all traces."),
    "portability": (
        "penstock.cli.portability",
        "Show which Jobs of a cluster could burst, and what blocks the others.",
    ),
    "policy": ("penstock.cli.policy", "Check, test, explain, compare, export and apply a policy file."),
    "assess": ("penstock.cli.assess", "Assess a month of your own: GPUs used, waits, demand; read only."),
    "pilot": ("penstock.cli.pilot", "Follow the job that is burst first: its baseline, and the same figures after."),
    "apply": ("penstock.cli.sites_apply", "Apply a sites file to the running Penstock: all of it, or nothing."),
    "shadow": ("penstock.cli.shadow", "Show what Penstock would have done with a cluster's Jobs; read only."),
    "simulate": ("penstock.cli.simulate", "Simulate a trace of jobs: waits, costs, GPU use."),
    "compare": ("penstock.cli.compare", "Compare policies on the same jobs, side by side."),
    "replay": ("penstock.cli.replay", "Rebuild the state from a journal and verify its hash chain."),
    "redecide": ("penstock.cli.redecide", "Replay a journal's facts and list decisions this version would change."),
    "journal": ("penstock.cli.journal", "Inspect a journal, verify it, rebuild its tables, or restore a backup."),
    "demo": ("penstock.cli.demo", "Run the demo: ten small trainings on this machine."),
    "dev-cluster": ("penstock.cli.dev_cluster", "Start Kubernetes clusters on this machine, for tests."),
    "completion": ("penstock.cli.completion", 'Print shell completion: eval "$(penstock completion bash)".'),
}

BAD_INPUT = 2
#: An address of PostgreSQL with a password, before the host or among the parameters.
PASSWORD = re.compile(r"postgres(ql)?://([^/?#]*:[^/?#@]+@|.*[?&](ssl)?password=)")
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
        return _refuse(error, args)
    except ModuleNotFoundError as error:
        from penstock.extras import not_installed

        if (advice := not_installed(error)) is None:
            raise
        return _refuse(advice, args)
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
    _refuse_passwords(list(sys.argv[1:] if args is None else args))
    # Otherwise not through click's `main`: it takes any EOFError for ^C, and a trace cut short would end in silence.
    try:
        with penstock.make_context("penstock", list(sys.argv[1:] if args is None else args)) as context:
            code = _understood(context)
    except click.exceptions.Exit as asked:
        return asked.exit_code
    return code if isinstance(code, int) else 0


def _understood(context: click.Context) -> object:
    """What the command returns. What a server of another version says, or none of ours, is no bug of the command."""
    try:
        return penstock.invoke(context)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        from penstock.cli.client import ANSWERED, UNANSWERED, Failed

        if isinstance(error, BadInput) or ANSWERED not in context.meta:
            raise
        raise Failed(
            f"{context.meta[ANSWERED]} answered what this command does not understand ({type(error).__name__}:"
            f" {str(error)[:200]}); is it a Penstock, and of this version? See: penstock --version",
            UNANSWERED,
        ) from error


def _refuse(error: BadInput, args: Sequence[str] | None) -> int:
    """Says what is wrong; the exit code."""
    from penstock.cli.output import safe

    if isinstance(error, BadFile) and _asks_for_json(args):
        click.echo(_as_json(error))
    click.echo("\n".join(safe(line) for line in f"Error: {error}".split("\n")), err=True)
    return BAD_INPUT


def _refuse_passwords(words: list[str]) -> None:
    """Refuses a password on the command line: `ps` shows it to everybody on the machine."""
    own = words[: words.index("--")] if "--" in words else words
    if any(PASSWORD.search(word) for word in own):
        raise BadInput(
            "Everybody on this machine can read a command's words, and so the database's password; leave it out of the"
            " address, and give it in PGPASSWORD or ~/.pgpass, or give the whole address in PENSTOCK_JOURNAL."
        )


def _asks_for_json(args: Sequence[str] | None) -> bool:
    """True if --json was given to us, and not to a command after `--`."""
    words = list(sys.argv[1:] if args is None else args)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _as_json(bad: BadFile) -> str:
    """All errors of a file, also those that a message leaves out."""
    import json

    return json.dumps({"errors": [error._asdict() for error in bad.errors], "more": bad.more})


def _discard_output() -> None:
    """Discards buffered output after the reader has gone; otherwise Python reports an error at exit."""
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
