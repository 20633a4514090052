"""Tests that prove that other tests can fail: each run of CI takes some of them, and all take their turn."""

import hashlib
import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def some_of(cases: Iterable[T], count: int) -> list[T]:
    """`count` of the cases, others in each parallel run; all of them in a run with one worker, as when a person looks
    for the reason of a failure.
    """
    run, all_cases = os.environ.get("PYTEST_XDIST_TESTRUNUID"), list(cases)
    if run is None:
        return all_cases
    order = sorted(range(len(all_cases)), key=lambda k: hashlib.sha256(f"{run} {k}".encode()).digest())
    return [all_cases[k] for k in order[:count]]
