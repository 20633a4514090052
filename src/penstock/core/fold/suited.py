"""Which nodes of a standing offer suit a job, where its nodes are unequal: a label, a taint, or too little of something
may keep a job off a node with free GPUs. Part of `apply`; decisions ask `suited` for the pool as such a job sees it.

A site says which nodes do not meet a need that jobs have (`NodesUnsuited`). Where all nodes are alike it says nothing,
and a job sees the pool itself.
"""

from penstock.core.fold.pool import Pool
from penstock.core.fold.state import Shape, State
from penstock.core.ids import site_of
from penstock.core.model.types import NODE_WITH, TOLERATES


def count_unsuited(pool: Pool) -> None:
    """Call when the names of its nodes change, too."""
    pool.barred = {}
    for need, (names, only) in pool.unsuited.items():
        listed = set(names)
        pool.barred[need] = sum([1 << node for node, name in enumerate(pool.names) if (name in listed) != only])


def note_barred(state: State, shape: Shape) -> None:
    """Call when the shape is judged: anything that changes the answer voids its verdict."""
    shape.barred = {}
    for offer_id, pool in state.pools.items():
        if (pool.barred or shape.unfit) and (bits := barred(pool, shape, offer_id)):
            shape.barred[offer_id] = bits


def barred(pool: Pool, shape: Shape, offer_id: str) -> int:
    """The nodes that do not suit jobs of this shape."""
    bits = 0
    for need in needs_there(shape, offer_id) if pool.barred else ():
        bits |= pool.barred.get(need, 0)
    for offer, names in shape.unfit:
        if offer == offer_id:
            bits |= sum([1 << node for node, name in enumerate(pool.names) if name in names])
    return bits


def needs_there(shape: Shape, offer_id: str) -> list[str]:
    """The needs that decide which of the offer's nodes suit the shape. The empty one: it tolerates no taints. Away from
    home its labels and tolerations are replaced by those of the offer.
    """
    spec = shape.spec
    if site_of(offer_id) != spec.home:
        return ["", *[need for need in spec.needs if need.startswith(NODE_WITH)]]
    tolerates = any(need.startswith(TOLERATES) for need in spec.needs)
    return list(spec.needs) if tolerates else ["", *spec.needs]


def suited(state: State, shape: Shape, offer_id: str) -> Pool:
    """The pool as jobs of this shape see it."""
    pool = state.pools[offer_id]
    bits = shape.barred.get(offer_id, 0) if shape.barred else 0
    return pool.without(bits) if bits else pool


def for_anybody(pool: Pool) -> Pool:
    """The pool as jobs see it that need nothing of its nodes and tolerate nothing."""
    bits = pool.barred.get("", 0) if pool.barred else 0
    return pool.without(bits) if bits else pool


# --- in words ---------------------------------------------------------------------------------------------------------


def why_barred(pool: Pool, shape: Shape, offer_id: str, bits: int) -> str:
    """How many nodes do not suit the shape, and why."""
    size, left = pool.size, pool.size - bits.bit_count()
    needs = [(pool.barred.get(need, 0).bit_count(), need) for need in needs_there(shape, offer_id)]
    parts = [_lacking(count, need) for count, need in needs if count]
    tried = sum([len(names) for offer, names in shape.unfit if offer == offer_id])
    if tried:
        parts.append(f"{tried} could not take it")
    which = f"none of the {size} nodes of {offer_id} suits it"
    if left:
        which = f"only {left} of the {size} nodes of {offer_id} {'suits' if left == 1 else 'suit'} it"
        which = f"{which}, and it needs {shape.spec.gpus} GPUs"
    return f"{which}: {', '.join(parts)}"


def _lacking(count: int, need: str) -> str:
    have, lack = ("has", "lacks") if count == 1 else ("have", "lack")
    if not need or need.startswith(TOLERATES):
        return f"{count} {have} taints that it does not tolerate"
    if need.startswith(NODE_WITH):
        return f"{count} {have} less than {need.removeprefix(NODE_WITH)}"
    return f"{count} {lack} {need.removesuffix(' or node selector affinity')}"
