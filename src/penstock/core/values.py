"""`@value`: the decorator of every noun, event, reason and action.

To the type checker a value is frozen. At run time it is a plain slotted dataclass, because really freezing it makes
creating one four times as dear (docs/decisions/0002); with PENSTOCK_FROZEN=1, as in our tests, it is frozen for real.

Wide values are made by keyword. The few that every job needs are made by position, from names that tell the field:
plain Python takes twice as long to make a value by keyword.
"""

import os
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
FROZEN = os.environ.get("PENSTOCK_FROZEN") == "1"


@dataclass_transform(frozen_default=True, eq_default=True)
def value(cls: type[T]) -> type[T]:
    made: Any = dataclass(slots=True, frozen=True) if FROZEN else dataclass(slots=True, unsafe_hash=True)
    result: type[T] = made(cls)
    return result
