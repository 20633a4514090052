"""Prints answers as a table, a wide table, JSON or YAML (`-o`). All commands use it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
FORMS: Final = ("table", "wide", "json", "yaml")


def examples(*lines: str) -> str:
    """The end of a command's help: what people type. A line by itself each, which click would join."""
    return "\n".join(["\b", "Examples:", *(f"  penstock {line}" for line in lines)])


def listed(command: F) -> F:
    """Adds `-o`, which `--json` is short for."""
    option = click.option("-o", "--output", type=click.Choice(FORMS), default="table", help="Output format.")
    return option(command)


def answer(content: Any, output: str, draw: Callable[[bool], None]) -> None:
    """Print what the server said, or have it drawn; `draw` is told whether there is room for more columns."""
    if output == "json":
        print_json(content)
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), nl=False)
    else:
        draw(output == "wide")


def print_json(content: object) -> None:
    from penstock.cli import terminal

    terminal.print_json(content)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    from penstock.cli import terminal

    if rows:
        terminal.table(title, columns, [[safe(cell) for cell in row] for row in rows])
    else:
        click.echo(empty)


def safe(cell: object) -> str:
    """Escapes unprintable characters as Python does, so that no name can move the cursor or end the line."""
    text = str(cell)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def moment(at: int | None) -> str:
    """In the time of whoever reads: `14:05:07` today, `Nov 14 14:05` before."""
    if at is None:
        return "-"
    then = datetime.fromtimestamp(at / 1000).astimezone()
    today = then.date() == datetime.now().astimezone().date()
    return then.strftime("%H:%M:%S" if today else "%b %d %H:%M")


def money(micro: int | None, currency: str) -> str:
    from penstock.formatting import money as words

    return "-" if micro is None else words(micro, currency)


def span(ms: int | None) -> str:
    from penstock.formatting import duration

    return "-" if ms is None else duration(ms)
