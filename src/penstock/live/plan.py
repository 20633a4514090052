"""What would happen to such a job if it came now: every offer with wait, start, price, risk, or why not.

Nothing is promised and nothing spent: it asks the engine's own quotes, rules and ledger, and changes nothing.
"""

from penstock.core.model import Offer
from penstock.core.units import Millis, Money
from penstock.core.values import value


@value
class Choice:
    """One offer that may run the job, cheapest first among the rented; standing ones come before."""

    offer: Offer
    fits_now: bool  # free standing GPUs, or a rented offer that seems to have room
    wait_ms: Millis  # expected, until it could start there; 0 if it fits now
    start_ms: Millis
    run_ms: Millis
    cost: Money  # expected: start, run, losses, fees, what leaves at the end. Standing GPUs: 0 more
    most: Money  # what would be held at first
    losses_ppm: int  # expected number of losses over the run, in millionths
    copies: tuple[str, ...]  # data sets that would be copied there first
    denied: str = ""  # the scope whose cap forbids it now


@value
class Excluded:
    offer: str
    rule: str
    where: str


@value
class Plan:
    expected_run_ms: Millis
    known: bool  # the run time was stated; otherwise it is an estimate from history
    choices: tuple[Choice, ...]
    excluded: tuple[Excluded, ...]
    answer: str  # what the engine would do now: "start", "wait", "burst" or "refuse"
    offer: str = ""  # where, if it starts or bursts
