"""Scalar types of the files (money, durations, names, ...): each has a class, a form in words, and a parser for human
units.
"""

import math
import re
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.config.document import shown
from penstock.core.units import (
    DAY,
    HOUR,
    LONGEST_MS,
    MICRO,
    MINUTE,
    MOST_BYTES,
    MOST_COPIES,
    MOST_GPUS,
    MOST_GPUS_ASKED,
    MOST_MONEY,
    SECOND,
)


def scalar(kind: type, content: object) -> object:
    """Called by `convert` for every scalar; a ValueError becomes its error, with the place added."""
    form, reader = SCALARS[kind]
    if not isinstance(content, str):
        raise ValueError(f"this must be {form}; it is {'empty' if content is None else 'a list or has keys'}")
    read = reader(content)
    if read is None:
        raise ValueError(f"{shown(content)} is not {form}")
    return read


class Amount(Fraction):
    """Money exactly as typed. It is rounded once, up, when it has become a price of a node in our currency."""


class Ceiling:
    """The most a provider can charge; `amount` None: what the same node costs on demand."""

    def __init__(self, amount: Amount | None) -> None:
        self.amount = amount


class Count(int): ...


class JobGpus(int): ...


class Copies(int): ...


class Number(int): ...


class Grams(int): ...


class Duration(int): ...


class Interval(Duration): ...


class Size(int): ...


class Percent(int):
    """In millionths."""


class Rate(int):
    """In millionths."""


class Flag(int): ...


class Name(str):
    __slots__ = ()


class Text(str):
    __slots__ = ()


class Profile(str):
    __slots__ = ()


class Scope(str):
    __slots__ = ()


class Currency(str):
    __slots__ = ()


class Day(str):
    __slots__ = ()


class Word(str):
    """A part of a command, or what a variable is set to: anything a process can be given."""

    __slots__ = ()


class Priority(int): ...


class NamespacePath(str):
    """A Kubernetes namespace of every front door, or with its site of that one."""

    __slots__ = ()


class NamePattern(str):
    """A name of somebody else's, or the beginning of several: `eu-*`."""

    __slots__ = ()


class TimeOfDay(int):
    """In minutes since midnight."""


class TimeZone(str):
    __slots__ = ()


class Role(str):
    """As tokens have it, without `role:`."""

    __slots__ = ()


class CelText(str):
    """A condition in CEL. Whether it can be compiled, `policy.expressions` says."""

    __slots__ = ()


NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,12})?"
SPAN: Final = re.compile("".join(rf"(?:({NUMBER}) ?{unit} ?)?" for unit in ("d", "h", "m", "s", "ms")))
SPAN_MS: Final = (DAY, HOUR, MINUTE, SECOND, 1)
SIZE: Final = re.compile(rf"({NUMBER}) ?([KMGTP])(i?)B")
LARGEST: Final = MOST_MONEY // MICRO  #: amounts in units of currency


def _amount(text: str) -> Amount | None:
    number = _number(text)
    return Amount(number) if number is not None and number <= LARGEST else None


def _number(text: str) -> Fraction | None:
    return Fraction(text) if re.fullmatch(NUMBER, text) else None


def _ceiling(text: str) -> Ceiling | None:
    amount = None if text == "on_demand" else _amount(text)
    return Ceiling(amount) if amount is not None or text == "on_demand" else None


def _whole(text: str, least: int, most: int) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,12}", text) and least <= int(text) <= most else None


def _count(text: str) -> Count | None:
    return None if (number := _whole(text, 1, MOST_GPUS)) is None else Count(number)


def _job_gpus(text: str) -> JobGpus | None:
    return None if (number := _whole(text, 1, MOST_GPUS_ASKED)) is None else JobGpus(number)


def _copies(text: str) -> Copies | None:
    return None if (number := _whole(text, 1, MOST_COPIES)) is None else Copies(number)


def _number_from_zero(text: str) -> Number | None:
    return None if (number := _whole(text, 0, MOST_GPUS)) is None else Number(number)


def _grams(text: str) -> Grams | None:
    return None if (number := _whole(text, 0, 5_000)) is None else Grams(number)


def _duration(text: str) -> Duration | None:
    match = SPAN.fullmatch(text)
    if not match or not any(match.groups()):
        return None
    parts = [(part, unit) for part, unit in zip(match.groups(), SPAN_MS, strict=True) if part]
    ms = sum((int(part) if part.isdigit() else Fraction(part)) * unit for part, unit in parts)  # few need a fraction
    return Duration(int(ms)) if ms == int(ms) and ms <= LONGEST_MS else None


def _interval(text: str) -> Interval | None:
    return Interval(ms) if (ms := _duration(text)) else None


def _size(text: str) -> Size | None:
    match = SIZE.fullmatch(text)
    if not match:
        return None
    number, prefix, binary = match.groups()
    size = Fraction(number) * (1024 if binary else 1000) ** (1 + "KMGTP".index(prefix))
    return Size(math.ceil(size)) if 0 < size <= MOST_BYTES else None


def _percent(text: str) -> Percent | None:
    number = _number(text[:-1].strip()) if text.endswith("%") else None
    return Percent(math.ceil(number * MICRO / 100)) if number is not None and number <= 100 else None


def _rate(text: str) -> Rate | None:
    """Rounded up to the millionth that is kept on record, so that the record gives the price again."""
    number = _number(text)
    return Rate(math.ceil(number * MICRO)) if number and number <= MICRO else None


def _flag(text: str) -> Flag | None:
    return Flag(text == "true") if text in ("true", "false") else None


def _name(text: str) -> Name | None:
    return Name(text) if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text) else None


def _text(text: str) -> Text | None:
    return Text(text) if 0 < len(text) <= 200 and text.isprintable() and text == text.strip() else None


def _profile(text: str) -> Profile | None:
    return Profile(text) if re.fullmatch(r"([0-9]c\.)?[0-9]g\.[0-9]{1,3}gb(\+[a-z.]{1,10})?", text) else None


def _scope(text: str) -> Scope | None:
    kind, _, whose = text.partition(":")
    named = kind in ("team", "project") and _text(whose) is not None
    return Scope(text) if named or text == "org" else None


def _word(text: str) -> Word | None:
    return Word(text) if len(text) <= 32_000 and "\0" not in text and _is_encodable(text) else None


def _is_encodable(text: str) -> bool:
    """Half of a surrogate pair, which JSON can spell, cannot be given to a process."""
    return text.isascii() or not any(0xD800 <= ord(letter) < 0xE000 for letter in text)


def _priority(text: str) -> Priority | None:
    return Priority(text) if re.fullmatch("-?[0-9]{1,4}", text) and abs(int(text)) <= 1000 else None


def _namespace_path(text: str) -> NamespacePath | None:
    site, _, namespace = text.rpartition("/")
    is_site = _name(site) is not None if "/" in text else True
    return NamespacePath(text) if is_site and re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace) else None


def _name_pattern(text: str) -> NamePattern | None:
    return NamePattern(text) if _text(text) is not None and "*" not in text[:-1] else None


def _time_of_day(text: str) -> TimeOfDay | None:
    match = re.fullmatch("([01][0-9]|2[0-3]):([0-5][0-9])|(24):(00)", text)
    hours, minutes = [part for part in match.groups() if part] if match else ("", "")
    return TimeOfDay(60 * int(hours) + int(minutes)) if match else None


def _time_zone(text: str) -> TimeZone | None:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return TimeZone(text)


#: Roles of tokens that answer requests (`web/tokens`); nobody could ever have another one.
MAY_APPROVE: Final = ("approver", "operator", "admin")


def _role(text: str) -> Role | None:
    kind, _, name = text.partition(":")
    return Role(name) if kind == "role" and name in MAY_APPROVE else None


def _cel_text(text: str) -> CelText | None:
    return CelText(text) if text.strip() else None


def _currency(text: str) -> Currency | None:
    return Currency(text) if re.fullmatch("[A-Z]{3}", text) else None


def _day(text: str) -> Day | None:
    try:
        return Day(text) if date.fromisoformat(text).isoformat() == text else None
    except ValueError:
        return None


#: class -> (what it is in words, how to read one: None if it is not one)
SCALARS: Final[dict[type, tuple[str, Callable[[str], object]]]] = {
    Amount: (f"an amount of money like 1500 or 12.50, from 0 to {LARGEST:,}", _amount),
    Ceiling: (f"an amount of money like 12.50, from 0 to {LARGEST:,}, or the word on_demand", _ceiling),
    Count: (f"a whole number from 1 to {MOST_GPUS:,}", _count),
    JobGpus: (f"a whole number from 1 to {MOST_GPUS_ASKED:,}", _job_gpus),
    Copies: (f"a whole number from 1 to {MOST_COPIES:,}", _copies),
    Number: (f"a whole number from 0 to {MOST_GPUS:,}", _number_from_zero),
    Grams: ("a whole number from 0 to 5,000", _grams),
    Duration: ("a duration like 90s, 5m, 1h30m or 2d, at most ten years", _duration),
    Interval: ("a duration above zero like 90s, 5m, 1h30m or 2d, at most ten years", _interval),
    Size: ("a size above zero like 500MB, 200GB or 1.5TB, at most 1,000PB", _size),
    Percent: ("a percentage like 2% or 1.5%, from 0% to 100%", _percent),
    Rate: ("an exchange rate above zero like 0.92, at most 1,000,000", _rate),
    Flag: ("true or false", _flag),
    Name: ("a name: up to 63 letters, digits, '-', '_' and '.', without spaces or slashes", _name),
    Text: ("a text: one line of up to 200 characters", _text),
    Profile: ("a MIG profile like 1g.10gb", _profile),
    Scope: ("a scope: org, team:NAME or project:NAME", _scope),
    Currency: ("a currency code: three capital letters like EUR", _currency),
    Day: ("a date like 2026-08-22", _day),
    Word: ("a text of up to 32,000 characters without zero bytes", _word),
    NamespacePath: ("a namespace, of every front door or of one: NAMESPACE or SITE/NAMESPACE", _namespace_path),
    Priority: ("a whole number from -1000 to 1000", _priority),
    NamePattern: ("a name, or its beginning and a * like eu-*", _name_pattern),
    TimeOfDay: ("a time of day like 08:00 or 22:30, in quotes, at most 24:00", _time_of_day),
    TimeZone: ("a time zone like Europe/Berlin or UTC", _time_zone),
    Role: ("a role that may approve: role:approver, role:operator or role:admin", _role),
    CelText: ("a condition in CEL, which may not be empty", _cel_text),
}
