"""Which classes stand above which, by what a policy file says of preemption. `fold/governed` asks once for each policy.

A class stands above those whose jobs it may stop. Classes that may stop each other, also by way of others, stop none of
each other's jobs: they would take turns for ever.
"""

from penstock.core.model.governance import ClassRule


def stoppable(classes: tuple[ClassRule, ...]) -> dict[str, tuple[str, ...]]:
    """By class, of those that stop any: the classes whose jobs it may stop."""
    said = {rule.name: rule.preempts for rule in classes}
    stops = {
        name: tuple([other for other in others if other != name and name not in _reached(said, other)])
        for name, others in said.items()
    }
    return {name: others for name, others in stops.items() if others}


def heights(stops: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """How many classes stand in a row below each, of those that have any below them. `stops` has no circle."""
    known: dict[str, int] = {}
    for name in stops:
        _height(stops, name, known)
    return known


def _height(stops: dict[str, tuple[str, ...]], name: str, known: dict[str, int]) -> int:
    if name in stops and name not in known:
        known[name] = 1 + max([_height(stops, other, known) for other in stops[name]])
    return known.get(name, 0)


def _reached(stops: dict[str, tuple[str, ...]], name: str) -> list[str]:
    """All whose jobs it stops, itself or by way of others."""
    left, seen = [name], dict[str, None]()
    while left:
        for other in stops.get(left.pop(), ()):
            if other not in seen:
                seen[other] = None
                left.append(other)
    return list(seen)
