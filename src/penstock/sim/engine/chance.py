"""Random numbers keyed by their subject: two policies meet the same world, in whatever order they ask."""

import math
from hashlib import blake2b


def uniform(*key: object) -> float:
    """A number in (0, 1), equal for equal keys on every machine."""
    raw = blake2b("\x1f".join(map(str, key)).encode(), digest_size=8).digest()
    return (int.from_bytes(raw, "big") + 0.5) / 2.0**64


def normal(*key: object) -> float:
    u, v = uniform(*key, "u"), uniform(*key, "v")
    return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)


def exponential(mean: float, *key: object) -> float:
    return -mean * math.log(uniform(*key))
