"""What a compiled CEL expression consists of: names it reads, literals in it, loops. `expressions` asks.

cel-expr-python gives an expression only as the bytes of `cel.expr.CheckedExpr` (a protocol buffer, in an `Any`). The
few fields that we need are read from these bytes directly, so that nothing but that package has to be installed.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from penstock.core.values import value

Message: TypeAlias = list[tuple[int, bytes | int]]  #: field numbers with their values, in order

# Field numbers of google.protobuf.Any and of cel/expr/checked.proto and syntax.proto.
ANY_VALUE: Final = 2
REFERENCES, EXPR = 2, 4  #: of CheckedExpr
ENTRY_VALUE: Final = 2  #: of a map's entry
REFERENCE_NAME: Final = 1
CONST, SELECT, CALL, LIST, STRUCT, COMPREHENSION = 3, 5, 6, 7, 8, 9  #: of Expr
CONST_STRING: Final = 6
#: Parts of these that are expressions themselves.
INNER: Final[dict[int, tuple[int, ...]]] = {SELECT: (1,), CALL: (1, 3), LIST: (1,)}
STRUCT_ENTRY: Final = 2
OF_ENTRY: Final = (3, 4)


@value
class Syntax:
    reads: tuple[str, ...]  # variables and functions by name, sorted
    texts: tuple[str, ...]  # literals, as they come
    loops: bool  # a macro over a list: exists, all, map, filter


def syntax_of(serialized: bytes) -> Syntax:
    checked = _message(_one(_message(serialized), ANY_VALUE))
    names = [_one(_message(_one(_message(entry), ENTRY_VALUE)), REFERENCE_NAME) for entry in _all(checked, REFERENCES)]
    texts, loops = _walk(_one(checked, EXPR))
    return Syntax(tuple(sorted({name.decode() for name in names if name})), tuple(texts), loops)


def _walk(expr: bytes) -> tuple[list[str], bool]:
    """Literals, and whether there is a loop anywhere. Without recursion: `1 + 1 + ...` nests as deep as it is long."""
    texts: list[str] = []
    loops = False
    left = [expr]
    while left:
        for number, part in _message(left.pop()):
            if isinstance(part, int):
                continue
            if number == CONST:
                texts += [text.decode() for text in _all(_message(part), CONST_STRING)]
            elif number == COMPREHENSION:
                loops = True
            elif number == STRUCT:
                entries = [_message(entry) for entry in _all(_message(part), STRUCT_ENTRY)]
                left += [inner for entry in entries for field in OF_ENTRY for inner in _all(entry, field)]
            elif number in INNER:
                inside = _message(part)
                left += [inner for field in INNER[number] for inner in _all(inside, field)]
    return texts, loops


# --- protocol buffers ------------------------------------------------------------------------------------------------


def _all(message: Message, number: int) -> list[bytes]:
    return [part for field, part in message if field == number and isinstance(part, bytes)]


def _one(message: Message, number: int) -> bytes:
    """The last one wins, as the format says."""
    parts = _all(message, number)
    return parts[-1] if parts else b""


def _message(data: bytes) -> Message:
    return list(_fields(data))


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            whole, at = _varint(data, at)
            yield number, whole
            continue
        if wire == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}[wire]
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
