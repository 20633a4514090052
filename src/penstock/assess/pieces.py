"""Pieces of the report's HTML: paragraphs, notes, tables. Every text is escaped here. `sections` calls it."""

import re
from collections.abc import Iterable, Sequence
from html import escape


def paragraph(text: str) -> str:
    return f'<p class="says">{escape(tied(text))}</p>'


def h3(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(tied(note))}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], chosen: Sequence[bool] = (), minor: Sequence[int] = ()
) -> str:
    """The first column names the row."""
    numeric = [k > 0 and bool(rows) and all(_is_number(row[k]) for row in rows) for k in range(len(heads))]

    def kind(k: int) -> str:
        names = " ".join(["num"] * numeric[k] + ["minor"] * (k in minor))
        return f' class="{names}"' if names else ""

    head = "".join(f"<th{kind(k)}>{escape(text)}</th>" for k, text in enumerate(heads))
    body = "".join(
        ('<tr class="chosen">' if chosen and chosen[i] else "<tr>")
        + "".join(
            f'<th scope="row">{_cell(cell)}</th>' if k == 0 else f"<td{kind(k)}>{_cell(cell)}</td>"
            for k, cell in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(rows)
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


class MarkedUp(str):
    """A cell that is HTML already. Told by its type and never by its text: people choose the names of their jobs."""

    __slots__ = ()


def _cell(text: str) -> str:
    return text if isinstance(text, MarkedUp) else escape(tied(text))


def _is_number(text: str) -> bool:
    bare = re.sub(r"^(-|[A-Z]{3} )?[$€£]?", "", text)
    return bare[:1].isdigit() or text in ("", "none", "unknown", "no", "no delay")


def tied(text: str) -> str:
    """A number keeps to its unit, and the date of a time to itself. Dates in names stay as somebody typed them."""
    text = re.sub(r"\b(\d{4})-(\d\d)-(\d\d)(?= \d\d:\d\d UTC)", "\\1\u2011\\2\u2011\\3", text)
    return re.sub(r"(?<=\d) (?=(?:%|s|min|h|days?|GPUs?|GPU-h|jobs?|runs?)(?![\w-]))", "\u00a0", text)
