"""Options of commands that simulate: which trace they read, and what the simulation knows and costs. `simulate` and
`compare` have them; `scenario_options` makes a scenario of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def reads_trace(command: F) -> F:
    """Adds --generate, --format and --column."""
    options = [
        click.option(
            "--generate",
            type=click.IntRange(1),
            metavar="JOBS",
            help="Generate this many jobs instead of reading a trace.",
        ),
        click.option(
            "--format",
            "form",
            metavar="F",
            help="Trace format: penstock, csv, sacct or kubernetes.  [default: detected]",
        ),
        click.option(
            "--column",
            "columns",
            multiple=True,
            metavar="FIELD=NAME",
            help="For csv: which column holds which field; repeatable.",
        ),
    ]
    return _with(command, options)


def simulates(command: F) -> F:
    """Adds --knowledge, --costs and --seed."""
    options = [
        click.option(
            "--knowledge",
            type=click.Choice(["e0", "e1", "e2"]),
            default="e2",
            show_default=True,
            help="Run times known: e0 exact, e1 wrong estimates, e2 learned from history.",
        ),
        click.option(
            "--costs",
            type=click.Choice(["l0", "l1", "l2"]),
            default="l1",
            show_default=True,
            help="Cloud model: l0 GPU-hours; l1 instances and starts; l2 also spot, data, egress.",
        ),
        click.option("--seed", type=int, default=0, show_default=True),
    ]
    return _with(command, options)


def _with(command: F, options: Sequence[Callable[[Any], Any]]) -> F:
    for option in reversed(options):  # click shows the last one added first
        command = option(command)
    return command
