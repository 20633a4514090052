"""Parses progress and checkpoints that a job prints. Every driver that reads logs uses it. Standard library only: the
supervisor imports it.

An attempt's marks are a plain record: `step` and `of`, `checkpoint_ms` (how long it had run by then) and
`checkpoint_step`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

#: Lines that a job prints or writes to its report. Any prefix is allowed, since loggers add times.
MARK: Final = re.compile(rb"penstock: (?:step (\d{1,15})(?: of (\d{1,15}))?|checkpoint(?: step (\d{1,15}))?)")
THOUSAND: Final = 1_000


def note(marks: dict[str, Any], text: bytes, ran_ms: Callable[[], int]) -> None:
    """Add what these lines report. `ran_ms`: how long the job had run when it printed them."""
    for match in MARK.finditer(text):
        step, of, saved = (None if part is None else int(part) for part in match.groups())
        if step is None:
            marks["checkpoint_ms"] = ran_ms()
            marks["checkpoint_step"] = marks.get("step", 0) if saved is None else saved
        else:
            marks["step"] = step
        if of is not None:
            marks["of"] = of


def has_finished(marks: Mapping[str, Any]) -> bool:
    """True if its last step is done: then a stop lost no work."""
    return "of" in marks and marks.get("step") == marks["of"]


def kept_ms(marks: Mapping[str, Any], resume_ms: int, speed_permille: int) -> int:
    """Work that survives: what it resumed with, plus its work until the last checkpoint."""
    ran_ms: int = marks.get("checkpoint_ms", 0)
    return resume_ms + ran_ms * speed_permille // THOUSAND


def steps(marks: Mapping[str, Any]) -> tuple[int, int] | None:
    """The last step that it reported, and of how many; 0 if it did not say."""
    return (marks["step"], marks.get("of", 0)) if "step" in marks else None


def permille(marks: Mapping[str, Any]) -> int:
    of, step = marks.get("of", 0), marks.get("step", 0)
    return min(THOUSAND, THOUSAND * step // of) if of else 0
