"""Numbers as people write them: money, durations, instants, counts. One place, so that every page says the same."""

from datetime import UTC, datetime
from typing import Final

from penstock.core.units import DAY, HOUR, MINUTE, SECOND, Instant

CENT: Final = 10_000  #: micro-units
#: Instants from here on, the year 2000, are of the calendar; no trace is that long.
CALENDAR: Final = 10_957 * DAY
SYMBOLS: Final = {"USD": "$", "EUR": "€", "GBP": "£"}


def money(micro: int, currency: str) -> str:
    """Micro-units as people write them, to the cent: `$1,284.10`, `CHF 1.00`, `-$0.30`. Half a cent rounds up."""
    cents = (abs(micro) + CENT // 2) // CENT
    sign = "-" if micro < 0 and cents else ""
    symbol = SYMBOLS.get(currency, f"{currency} ")
    return f"{sign}{symbol}{cents // 100:,}.{cents % 100:02}"


def exact_money(micro: int, currency: str) -> str:
    """To the micro-unit where cents do not say it all: `$1,284.10`, `$0.000009`."""
    if micro % CENT == 0:
        return money(micro, currency)
    whole, rest = divmod(abs(micro), 1_000_000)
    return f"{'-' if micro < 0 else ''}{SYMBOLS.get(currency, f'{currency} ')}{whole:,}.{rest:06}"


def plain_money(micro: int) -> str:
    """As commands take it, to the micro-unit: `1284.1`."""
    whole, rest = divmod(micro, 1_000_000)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")


def duration(ms: int) -> str:
    """`45 s`, `9 min`, `2 h 14 min`; from a day on whole hours, `31 h`. Rounds half up, to the last unit shown."""
    if ms < 0:
        return f"-{duration(-ms)}"
    if 0 < ms < SECOND:
        return "under 1 s"
    # Each limit is met by the rounded value: 59.7 s is a minute, not 60 s.
    if (seconds := _rounded(ms, SECOND)) < 60:
        return f"{seconds} s"
    if (minutes := _rounded(ms, MINUTE)) < DAY // MINUTE:
        return _hours_and_minutes(*divmod(minutes, 60))
    return f"{_rounded(ms, HOUR):,} h"


def instant(at: Instant, *, seconds: bool = False) -> str:
    """`day 3, 14:05`: simulated time counts days from the trace's first midnight. Live: `2026-11-16 14:05 UTC`."""
    if CALENDAR <= at < 100 * CALENDAR:
        moment = datetime.fromtimestamp(at / SECOND, UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if seconds else f"{moment:%Y-%m-%d %H:%M} UTC"
    day, rest = divmod(at, DAY)
    minutes = rest // MINUTE
    exact = f":{rest % MINUTE // SECOND:02}" if seconds else ""
    return f"day {day + 1}, {minutes // 60:02}:{minutes % 60:02}{exact}"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 GPU`, `2 GPUs`, `1,200 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def are(number: int, noun: str) -> str:
    """`1 job is`, `2 jobs are`."""
    return f"{count(number, noun)} {'is' if number == 1 else 'are'}"


def were(number: int, noun: str) -> str:
    """`1 GPU was`, `2 GPUs were`."""
    return f"{count(number, noun)} {'was' if number == 1 else 'were'}"


def _rounded(ms: int, unit_ms: int) -> int:
    return (ms + unit_ms // 2) // unit_ms


def _hours_and_minutes(hours: int, minutes: int) -> str:
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    return " ".join(part for part in parts if part)
