"""Tables and progress bars for people. All commands use it; `formatting` writes money and times.

On a terminal rich draws, if the extra `terminal` is installed. Without it, and into a pipe or file, output is plain
text that is never truncated, and rich is not imported.
"""

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a title. A column of numbers, with or without units, is aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    for row in cells:
        if len(row) != len(columns):
            raise ValueError(f"{title}: a row of {len(row)} cells under {len(columns)} columns: {row}")
    right = [_is_numeric([row[i] for row in cells]) for i in range(len(columns))]
    draw = _draw_table if sys.stdout.isatty() and can_draw() else _write_table
    draw(title, columns, cells, right)


def print_json(obj: object) -> None:
    """For other programs: indented JSON on stdout. Dataclasses, enums and the like become what they hold."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(obj), indent=2).decode() + "\n")
    sys.stdout.flush()  # `up --json` keeps running, and the reader of its pipe waits for the address


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs, if a person watches; the block calls `advance(n)` as it goes."""
    if not sys.stderr.isatty() or not can_draw():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # Markup off: `what` may hold brackets, and they are to be seen.
    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda n: bar.advance(task, n)


def program() -> str:
    """What to type for `penstock` here: the plain name if the PATH has this one, else its path from this folder."""
    own = Path(sys.executable).with_name("penstock")
    found = shutil.which("penstock")
    if not own.exists() or (found and Path(found).samefile(own)):
        return "penstock"
    here = Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))


def can_draw() -> bool:
    """Whether rich is installed."""
    return importlib.util.find_spec("rich") is not None


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether each filled cell starts with a number, after a sign or a currency. Words for nothing do not decide."""
    filled = [cell for cell in cells if cell not in ("", "-", "none")]
    return bool(filled) and all(_starts_with_number(cell) for cell in filled)


def _starts_with_number(cell: str) -> bool:
    bare = cell.lstrip("+-")
    if bare[:3].isupper() and bare[3:4] == " ":  # a currency without a symbol: CHF 1.00
        bare = bare[4:]
    return bare.lstrip("$€£")[:1].isdigit()


def _write_table(title: str, columns: Sequence[str], rows: list[list[str]], right: list[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [_line(row, widths, right) for row in (columns, *rows)]
    print(title, *lines, sep="\n")


def _line(row: Sequence[str], widths: list[int], right: list[bool]) -> str:
    padded = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(row, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _draw_table(title: str, columns: Sequence[str], rows: list[list[str]], right: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, to_right in zip(columns, right, strict=True):
        # A number and its unit never part; only words wrap.
        drawn.add_column(Text(name), justify="right" if to_right else "left", no_wrap=to_right)
    for row in rows:
        drawn.add_row(*map(Text, row))  # Text, not str: a cell like "[8]" is no markup
    Console(highlight=False).print(drawn)
