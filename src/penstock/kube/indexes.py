"""Sets of a Job's completion indexes, written as Kubernetes writes them: `0-3,7`. Pure. The front door and the
Kubernetes driver use it.
"""

import re
from collections.abc import Iterable
from typing import Final

MOST: Final = 100_000  #: indexes that Kubernetes allows in one Job
_PART: Final = re.compile("([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def read(text: str) -> set[int]:
    """The indexes of the text; parts that are none are left out."""
    indexes: set[int] = set()
    for piece in text.split(","):
        if match := _PART.fullmatch(piece.strip()):
            first, last = int(match[1]), int(match[2] or match[1])
            indexes.update(range(first, min(last, MOST) + 1))
    return indexes


def write(indexes: Iterable[int]) -> str:
    """Sorted, runs as `first-last`; two neighbours as `1,2`, as the Job controller does."""
    parts: list[str] = []
    for first, last in _runs(sorted(set(indexes))):
        parts.append(str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}")
    return ",".join(parts)


def together(*texts: str) -> str:
    """All indexes that any of the texts has."""
    nonempty = [text for text in texts if text]
    return nonempty[0] if len(nonempty) == 1 else write(set[int]().union(*map(read, nonempty)))


def _runs(indexes: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], index
        else:
            runs.append((index, index))
    return runs
