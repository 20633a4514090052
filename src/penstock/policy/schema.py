"""The policy file as JSON Schema, for editors that complete and check YAML. `penstock policy schema` prints it;
examples/policy.schema.json is this.
"""

import types
from typing import Any, Final, Literal, get_args, get_origin

from penstock.config.convert import Section, explained, keys_of
from penstock.config.scalars import (
    MAY_APPROVE,
    SCALARS,
    Amount,
    CelText,
    Count,
    Currency,
    Duration,
    Flag,
    Interval,
    Name,
    NamePattern,
    NamespacePath,
    Percent,
    Priority,
    Role,
    Size,
    Text,
    TimeOfDay,
    TimeZone,
)
from penstock.policy.sections import VERSION, PolicyFileSection

SPAN: Final = r"^(?=[0-9])([0-9.]+ ?d ?)?([0-9.]+ ?h ?)?([0-9.]+ ?m ?)?([0-9.]+ ?s ?)?([0-9.]+ ?ms ?)?$"
WORD: Final[dict[str, Any]] = {"type": "string", "minLength": 1}
#: What YAML makes of each scalar as people write it. The reader is stricter in places, and says so in a sentence.
FORMS: Final[dict[type, dict[str, Any]]] = {
    Amount: {"type": "number", "minimum": 0},
    Count: {"type": "integer", "minimum": 1},
    Priority: {"type": "integer", "minimum": -1000, "maximum": 1000},
    Flag: {"type": "boolean"},
    Duration: {"type": "string", "pattern": SPAN},
    Interval: {"type": "string", "pattern": SPAN},
    Size: {"type": "string", "pattern": r"^[0-9.]+ ?[KMGTP]i?B$"},
    Percent: {"type": "string", "pattern": r"^[0-9.]+ ?%$"},
    Name: {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"},
    NamePattern: {"type": "string", "pattern": r"^[^*]+\*?$|^\*$"},
    NamespacePath: {"type": "string", "pattern": "^([A-Za-z0-9._-]+/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$"},
    Currency: {"type": "string", "pattern": "^[A-Z]{3}$"},
    TimeOfDay: {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$"},
    TimeZone: WORD,
    Role: {"enum": [f"role:{name}" for name in MAY_APPROVE]},
    CelText: WORD,
    Text: {**WORD, "maxLength": 200},
}


def json_schema() -> dict[str, Any]:
    """Whole: nothing in it refers to elsewhere."""
    schema = _object(PolicyFileSection)
    schema["properties"]["version"] = {"const": VERSION, "description": "The version of this file's form."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock policy file",
        **schema,
    }


def _object(kind: type[Section]) -> dict[str, Any]:
    keys, says = keys_of(kind), explained(kind)
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {name: _described(_schema(key.hint), *says[name]) for name, key in keys.items()},
        "required": [name for name, key in keys.items() if key.required],
        "additionalProperties": False,
    }


def _described(schema: dict[str, Any], meaning: str, otherwise: str) -> dict[str, Any]:
    """What an editor shows beside the key."""
    left_out = "Needed." if otherwise == "needed" else f"If left out: {otherwise}."
    return {**schema, "description": f"{meaning[:1].upper()}{meaning[1:]}. {left_out}"}


def _schema(hint: Any) -> dict[str, Any]:
    args = [arg for arg in get_args(hint) if arg not in (type(None), ...)]
    match get_origin(hint):
        case None if issubclass(hint, Section):
            return _object(hint)
        case None:
            assert hint in SCALARS
            return dict(FORMS[hint])
        case types.UnionType:
            return _schema(args[0])
        case origin if origin is tuple:
            return {"type": "array", "items": _schema(args[0])}
        case origin if origin is dict:
            return {"type": "object", "propertyNames": _schema(args[0]), "additionalProperties": _schema(args[1])}
        case origin:
            assert origin is Literal
            return {"enum": args}
