"""Any event, reason or other value, made from the classes' own type hints: a new field needs nothing here."""

import dataclasses
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from penstock.core.model import events as e
from penstock.core.model.reasons import REASONS

WORDS = st.sampled_from(["", "a", "a.1", "lab/owned/3", "b/0.2/n1", "org", "month 1", 'é "quoted"', "\u2028"])
NUMBERS = st.integers(-(2**62), 2**62) | st.integers(0, 9)


@cache
def made(kind: Any) -> st.SearchStrategy[Any]:
    """Values of this type."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        make: Any = kind
        return st.builds(make, **{name: made(hint) for name, hint in hints.items()})
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is ...:
        return st.lists(made(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(made, args))
    if origin in (Union, types.UnionType):
        return st.one_of(*map(made, args))
    return {int: NUMBERS, str: WORDS, bool: st.booleans(), type(None): st.none()}[kind]


def facts() -> st.SearchStrategy[e.Fact]:
    return st.one_of(*map(made, e.FACTS))


def events() -> st.SearchStrategy[e.Event]:
    return st.one_of(*map(made, e.FACTS + e.PROMISES))


def reasons() -> st.SearchStrategy[Any]:
    return st.one_of(*map(made, REASONS.values()))
