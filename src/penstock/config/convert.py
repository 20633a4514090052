"""Converts plain lists and keys to rows, classes with a field for each key, and collects every error. `sites` and
`jobs` call it.

A row with errors is built anyway, with `UNREAD` for the bad values, so that the rest is still checked.
"""

from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.config.document import UNREAD, Document, unknown
from penstock.config.scalars import SCALARS, scalar


class Section(msgspec.Struct, frozen=True):
    """The keys of one level of a file."""

    renamed: ClassVar[dict[str, str]] = {}  #: old key -> its new name; old keys are still read


R = TypeVar("R", bound=Section)
KINDS: Final[dict[type, str]] = {dict: "a group of keys", list: "a list", str: "a word", NoneType: "empty"}


class Says(NamedTuple):
    """What a key means, for a generated page and for editors: `Annotated[Amount, Says("an amount", "`20`")]`."""

    what: str
    otherwise: str = "needed"  #: what holds if the key is left out


class Key(NamedTuple):
    """A key of a section: its field, its type, and whether it is required."""

    field: str
    hint: Any
    required: bool


@cache
def keys_of(kind: type[Section]) -> dict[str, Key]:
    """By name in the file, in the class's order."""
    hints = get_type_hints(kind)
    return {
        field.encode_name: Key(field.name, hints[field.name], field.required) for field in msgspec.structs.fields(kind)
    }


@cache
def explained(kind: type[Section]) -> dict[str, Says]:
    """What each key of a section says of itself, by its name in the file."""
    hints = get_type_hints(kind, include_extras=True)
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    return {
        names[field]: note
        for field, hint in hints.items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, Says)
    }


def converted(table: object, kind: type[R], page: Document, place: str = "") -> R:
    """A section, whole or with unread parts; the document has the errors."""
    if not isinstance(table, dict):
        return _unexpected(dict, table, page, place)  # type: ignore[no-any-return]  # UNREAD stands for any row
    keys = keys_of(kind)
    fields: dict[str, object] = {}
    for name, content in table.items():
        now = kind.renamed.get(name, name)
        if now in keys:
            if name != now:
                _tell_renamed(name, now, table, page, place)
            fields[keys[now].field] = _value(content, keys[now].hint, page, f"{place}.{name}" if place else name)
        else:
            meant = page.hint(name, keys)
            page.report(place, unknown("unknown key", name, keys, meant), key=name)
            if meant and meant not in table:  # misspelt, so not reported as missing
                fields[keys[meant].field] = UNREAD
    for name, field in _required(kind):
        if field not in fields:
            page.report(place, f"the key '{name}' is missing")
            fields[field] = UNREAD
    return kind(**fields)


@cache
def _required(kind: type[Section]) -> tuple[tuple[str, str], ...]:
    """Keys that must be there, with their fields."""
    return tuple((name, key.field) for name, key in keys_of(kind).items() if key.required)


def _tell_renamed(name: str, now: str, table: dict[str, object], page: Document, place: str) -> None:
    inner = f"{place}.{name}".lstrip(".")
    if now in table:
        page.report(inner, f"this is the old name of '{now}', which is here, too; keep that one")
    line = page.line(inner)
    where = page.name if line is None else f"{page.name}, line {line}"
    page.notices.append(f"{where}: '{name}' is called '{now}' now; the old name works for a release.")


def _value(content: object, hint: Any, page: Document, place: str) -> Any:
    """The value at a place, as its type hint says: scalar, word, section, list or table."""
    if content is UNREAD:
        return UNREAD
    if hint in SCALARS:  # nearly all are
        return _scalar(content, hint, page, place)
    origin, args = _parts(hint)
    if origin in (Union, UnionType):
        return None if content is None and NoneType in args else _value(content, _choice(content, args), page, place)
    if origin is Literal:
        return _word(content, args, page, place)
    if origin is tuple:
        return _list(content, args[0], page, place)
    if origin is dict:
        return _table(content, args, page, place)
    return converted(content, hint, page, place)


def _scalar(content: object, kind: type, page: Document, place: str) -> Any:
    try:
        return scalar(kind, content)
    except ValueError as error:
        page.report(place, str(error))
        return UNREAD


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Origin and arguments of `tuple[Name, ...]` and the like."""
    return get_origin(hint), get_args(hint)


def _choice(content: object, args: tuple[Any, ...]) -> Any:
    """Of a union's members, the one that fits what is there."""
    first, table = _members(args)
    return first if table is None or isinstance(content, str) else table


@cache
def _members(args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The first member of a union beside None, and the first table, if there is one."""
    hints = [arg for arg in args if arg is not NoneType]
    return hints[0], next((hint for hint in hints if get_origin(hint) is dict), None)


def _word(word: object, words: tuple[str, ...], page: Document, place: str) -> Any:
    if not isinstance(word, str):
        return _unexpected(str, word, page, place)
    if word not in words:
        page.report(place, unknown("unknown word", word, words))
        return UNREAD
    return word


def _list(items: object, hint: Any, page: Document, place: str) -> Any:
    if not isinstance(items, list):
        return _unexpected(list, items, page, place)
    return tuple(_value(item, hint, page, f"{place}[{k}]") for k, item in enumerate(items))


def _table(table: object, args: tuple[Any, ...], page: Document, place: str) -> Any:
    if not isinstance(table, dict):
        return _unexpected(dict, table, page, place)
    named, hint = args
    for name in table if named is not str else ():
        _value(name, named, page, f"{place}.{name}")
    return {name: _value(item, hint, page, f"{place}.{name}") for name, item in table.items()}


def _unexpected(kind: type, content: object, page: Document, place: str) -> Any:
    if content is not UNREAD:
        page.report(place, f"this must be {KINDS[kind]}; it is {KINDS[type(content)]}")
    return UNREAD
