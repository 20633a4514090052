"""Money and time as whole numbers, so that two machines, and a replay next year, count the same.

Money is micro-units of the organisation's currency, time is milliseconds; both are plain `int` with a name.
Every rounding of money goes up: a cap that holds must not be saved by half a cent.
"""

import re
from decimal import Decimal
from typing import Final, TypeAlias

from penstock.core.errors import BadInput

Money: TypeAlias = int  #: micro-units of the organisation's currency
Instant: TypeAlias = int  #: milliseconds since the installation's (or the trace's) zero
Millis: TypeAlias = int  #: a duration

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MICRO: Final = 1_000_000  #: micro-units in one unit of currency
GB: Final = 1_000_000_000
PERMILLE: Final = 1_000  #: speeds and shares are whole thousandths

#: Later than anything: "not by the clock, only by an event".
NEVER: Final[Instant] = 1 << 62

# What comes in is bounded, so that all that is stored of it fits into 64 bits. `ledger` denies a sum beyond its bound.
MOST_MONEY: Final[Money] = 10**18  #: in the books of one scope and period, and of a cap: a million million units
MOST_PER_HOUR: Final[Money] = 10**15  #: the price of one node's hour: a thousand million units
MOST_PER_GB: Final[Money] = 10**12  #: the price of moving one GB: a million units
MOST_BYTES: Final = 10**18  #: the size of a data set or an output: 1,000 PB
LONGEST_MS: Final[Millis] = 3_650 * DAY  #: any duration that somebody tells
MOST_GPUS: Final = 1_000_000  #: of one offer, node or count that somebody tells
MOST_GPUS_ASKED: Final = 100_000  #: by one submission, all jobs of its array together
MOST_COPIES: Final = 1_000  #: members of an array of jobs
MOST_NODES: Final = 1_000  #: rented for one attempt; each is a hold of its own


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def cost_of(per_hour: Money, ms: Millis) -> Money:
    """What `ms` at an hourly price costs, rounded up."""
    return -(-per_hour * ms // HOUR)


def step_up(ms: Millis, step: Millis) -> Millis:
    """The next whole billing step."""
    return -(-ms // step) * step


def money(text: str) -> Money:
    """`money("3.10")` is 3,100,000: what a person typed, exactly. A comma only between thousands."""
    typed = text.strip()
    if not re.fullmatch(r"-?(\d{1,15}|\d{1,3}(,\d{3}){1,4})(\.\d{1,6})?", typed):
        raise BadInput(f"'{text}' is not an amount of money; write it like 1500 or 12.50.")
    amount = int(Decimal(typed.replace(",", "")) * MICRO)
    if abs(amount) > MOST_MONEY:
        raise BadInput(f"'{text}' is too much; an amount is at most {MOST_MONEY // MICRO:,}.")
    return amount
