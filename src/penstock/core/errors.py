"""The errors a person may cause: input that cannot be used. Everything else that is raised is a bug."""

from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_SHOWN: Final = 20  #: errors of one file in one message; machines get them all


class BadInput(ValueError):
    """One sentence that names file, row and field where there are any, and says what to do. Exit code 2."""


class FileError(NamedTuple):
    """One error in a file: where it is and what to do about it."""

    file: str
    line: int | None  # None: an error of the whole file, or of something that has no lines
    key: str  # like `sites[0].offers[1].kill (lab/spot)`, or `item 7` of a list of Jobs; may be empty
    message: str  # a sentence

    def __str__(self) -> str:
        line = [] if self.line is None else [f"line {self.line}"]
        return f"{', '.join([self.file, *line, *([self.key] if self.key else [])])}: {self.message}"


class BadFile(BadInput):
    """All errors of one file, by line. A reader that gives up on very many of them says how many `more` there are."""

    def __init__(self, errors: Sequence[FileError], more: int = 0) -> None:
        self.errors = tuple(sorted(errors, key=lambda error: error.line or 0))  # stable: as found within a line
        self.more = more
        super().__init__(_told(self.errors, more))


def _told(errors: tuple[FileError, ...], more: int) -> str:
    if len(errors) + more == 1:
        return str(errors[0])
    left = len(errors) + more - len(errors[:MOST_SHOWN])
    lines = [f"{errors[0].file}: {len(errors) + more:,} errors.", *(str(error) for error in errors[:MOST_SHOWN])]
    return "\n".join([*lines, *([f"And {left:,} more."] if left else [])])
