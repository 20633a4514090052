"""Encodes events as JSON and decodes them. An event is `[kind, fields]`; a reason inside it has its own `kind`.

Decoders are built once from the classes' type hints, so a new field needs no change here. A job's `spec` and a wait
omit fields with default values, because they are the bulk of a journal.

A row names the engine version that wrote it. When an event's meaning changes, raise `VERSION` and add to `UPCAST` how
older bodies are read; a field with a default needs neither.
"""

import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.core.engine import VERSION
from penstock.core.errors import BadInput
from penstock.core.model.events import FACTS, PROMISES, Event, JobSubmitted, WaitPromised
from penstock.core.model.reasons import REASONS
from penstock.core.model.types import JobSpec

KINDS: Final[dict[str, type]] = {cls.__name__: cls for cls in FACTS + PROMISES}
_ENCODER: Final = msgspec.json.Encoder()
_PARTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def _wait_of_1(body: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had a wait's scope, patience and forecast only in its reason."""
    why = body["because"]
    match why["kind"]:
        case "CapBinds" | "RateBinds" | "Paced":
            return {**body, "scope": why["scope"]}
        case "WaitsForOwned":
            return {**body, "patience_ms": why["patience_ms"]}
        case "WaitWorth":
            foretold = {"about_ms": why.get("about_ms", 0), "worst_ms": why.get("worst_ms", 0)}
            return {**body, "patience_ms": why["patience_ms"], **foretold}
        case _:
            return body


#: (kind, version) -> a function that turns its body into the next version's.
UPCAST: Final[dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]]] = {("WaitPromised", 1): _wait_of_1}


def encode(events: Sequence[Event]) -> bytes:
    return _ENCODER.encode([(type(event).__name__, _body(event)) for event in events]) if events else b"[]"


def _body(event: Event) -> object:
    if type(event) is JobSubmitted:
        body = {"at": event.at, "number": event.number, "job": event.job, "spec": _spec(event.spec)}
        has_more = event.retries or event.details
        return body | {"retries": event.retries, "details": event.details} if has_more else body
    if type(event) is WaitPromised:
        return _wait(event)
    return event


def _without_usual(cls: Any) -> Callable[[Any], dict[str, object]]:
    """An encoder for this class that omits fields with default values."""
    names = tuple([f.name for f in fields(cls)])
    usual = tuple([... if f.default is MISSING else f.default for f in fields(cls)])
    values_of = attrgetter(*names)

    def body(event: Any) -> dict[str, object]:
        values = values_of(event)
        return dict(compress(zip(names, values, strict=True), map(ne, values, usual)))

    return body


_spec: Final = _without_usual(JobSpec)
_wait: Final = _without_usual(WaitPromised)


def decode(row: bytes, version: int = VERSION) -> tuple[Any, ...]:
    """The events of one row. Unknown events are refused, never guessed."""
    return tuple(_event(kind, body, version) for kind, body in msgspec.json.decode(row))


def decode_some(row: bytes, parts: Collection[int], version: int = VERSION) -> tuple[Any, ...]:
    """Only these of a row's events, in order: a row may have a hundred thousand, and a page shows twenty."""
    wanted = [msgspec.json.decode(raw) for part, raw in enumerate(_PARTS.decode(row)) if part in parts]
    return tuple(_event(kind, body, version) for kind, body in wanted)


def count(row: bytes) -> int:
    return len(_PARTS.decode(row))


def _event(kind: str, body: dict[str, Any], version: int) -> Any:
    for older in range(version, VERSION):
        if (kind, older) in UPCAST:
            body = UPCAST[kind, older](body)
    cls = KINDS.get(kind)
    if cls is None:
        raise BadInput(f"The journal holds an event '{kind}' that this version does not know; use a newer Penstock.")
    if cls is JobSubmitted:
        body = {**body, "spec": _origin_apart(body["spec"])}
    return reader(cls)(body)


def _origin_apart(spec: dict[str, Any]) -> dict[str, Any]:
    """A job's spec in today's form. Older versions wrote a home Job's origin as its user, `SITE:UID`; the real user is
    unknown, so the job belongs to its team.
    """
    site = spec.get("home", "")
    if not site or "origin" in spec or not spec.get("user", "").startswith(f"{site}:"):
        return spec
    uid = spec["user"].removeprefix(f"{site}:")
    return {**spec, "user": spec.get("team", JobSpec(1).team), "origin": {"site": site, "uid": uid}}


@cache
def reader(cls: Any) -> Callable[[Any], Any]:
    """A decoder for this type from plain JSON. If no field needs conversion, it is the constructor itself."""
    if is_dataclass(cls):
        hints = get_type_hints(cls)
        convert = {name: make for name, hint in hints.items() if (make := reader(hint)) is not _as_is}
        return lambda body: cls(**{k: convert[k](v) if k in convert else v for k, v in body.items()})  # type: ignore[operator]  # cls is a class here
    origin, args = get_origin(cls), get_args(cls)
    if origin is tuple:
        return _tuple_reader(args)
    if origin in (Union, types.UnionType):
        return _union_reader(args)
    if origin is Literal or cls in (int, str, bool, float, type(None)):
        return _as_is
    raise TypeError(f"a journal cannot hold {cls}")


def _as_is(body: Any) -> Any:
    return body


def _tuple_reader(args: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(args) == 2 and args[1] is Ellipsis:
        item_reader = reader(args[0])
        return tuple if item_reader is _as_is else (lambda body: tuple(item_reader(item) for item in body))
    each = [reader(arg) for arg in args]
    return lambda body: tuple(make(item) for make, item in zip(each, body, strict=True))


def _union_reader(args: tuple[Any, ...]) -> Callable[[Any], Any]:
    classes: list[Any] = [arg for arg in args if is_dataclass(arg)]
    if not classes:
        return _as_is
    if len(classes) == 1:
        make = reader(classes[0])
        return lambda body: None if body is None else make(body)
    return lambda body: reader(REASONS[body["kind"]])(body)
