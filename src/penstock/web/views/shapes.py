"""GPU cells and meters as SVG. Pure functions from numbers to markup; templates place the result.

Sizes are attributes and percentages, never style attributes: the content security policy forbids those.
"""

from typing import Final

from markupsafe import Markup

BUSY, STARTING, IDLE, LOST = "b", "s", "i", "l"  # one letter a GPU
SAY: Final = {BUSY: "busy", STARTING: "starting", IDLE: "idle", LOST: "lost"}
LARGE_UP_TO, MEDIUM_UP_TO = 64, 512  #: GPUs on the page; all marks have one size
MOST_MARKS: Final = 4_096  #: of one offer; beyond that one mark per GPU is unreadable
NODES_A_BLOCK: Final = 32


def size_for(gpus: int) -> str:
    return "l" if gpus <= LARGE_UP_TO else "m" if gpus <= MEDIUM_UP_TO else "s"


def gpus(term: str, nodes: list[str], size: str) -> Markup:
    """One mark per GPU, one group per node; `nodes` holds the letters above."""
    flat = "".join(nodes)
    says = ", ".join(f"{flat.count(letter):,} {word}" for letter, word in SAY.items() if letter in flat)
    return Markup('<div class="gpus {} {}" role="img" aria-label="{:,} GPUs: {}">{}</div>').format(
        size, term, len(flat), says or "none", _marks(term, nodes, size)
    )


def _marks(term: str, nodes: list[str], size: str) -> Markup:
    if sum(map(len, nodes)) > MOST_MARKS:
        return _proportions(term, "".join(nodes))
    if size == "s":
        blocks = (nodes[first : first + NODES_A_BLOCK] for first in range(0, len(nodes), NODES_A_BLOCK))
        return Markup("").join(_columns(block) for block in blocks)
    return Markup("").join(_node(node, term, size) for node in nodes)


def _node(cells: str, term: str, size: str) -> Markup:
    width, height, gap, rows = {"m": (8, 8, 2, 2), "l": (12, 18, 3, 1)}[size]
    # Column first, so that a half-used node shows as a half-filled block.
    places = [(k // rows * (width + gap), k % rows * (height + gap)) for k in range(len(cells))]
    body = Markup("").join(
        _cell(letter, x, y, width, height, term) for letter, (x, y) in zip(cells, places, strict=True)
    )
    whole = -(-len(cells) // rows) * (width + gap) - gap, min(rows, len(cells)) * (height + gap) - gap
    return Markup('<svg width="{}" height="{}" aria-hidden="true">{}</svg>').format(*whole, body)


def _cell(letter: str, x: int, y: int, width: int, height: int, term: str) -> Markup:
    if letter == BUSY:
        return Markup('<rect class="g-busy" x="{}" y="{}" width="{}" height="{}"/>').format(x, y, width, height)
    if letter == LOST:
        side, top = width - 3, y + (height - width) / 2 + 1.5
        return Markup('<path class="g-lost" d="M{} {}l{s} {s}m0 -{s}l-{s} {s}"/>').format(x + 1.5, top, s=side)
    shape = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"{}/>')
    hatch = Markup(' fill="url(#h-{})"').format(term) if letter == STARTING else ""
    return shape.format("g-start" if hatch else "g-idle", x + 0.5, y + 0.5, width - 1, height - 1, hatch)


#: Too small for texture, so shape tells: square busy, bar starting, dot idle; lost is a gap with a tick above its node.
SMALL: Final = {
    BUSY: "M{x} {y}h3v3h-3z",
    STARTING: "M{x} {mid}h3v1h-3z",
    IDLE: "M{right} {mid}h1v1h-1z",
    LOST: "M{left} -7h4l-2 4z",
}


def _columns(nodes: list[str]) -> Markup:
    marks: dict[str, dict[str, None]] = {"g-busy": {}, "gs-lost": {}}  # a dict: a lost node has one tick, not eight
    for column, node in enumerate(nodes):
        for row, letter in enumerate(node):
            x, y = column * 4, row * 4
            mark = SMALL[letter].format(x=x, y=y, mid=y + 1, right=x + 1, left=x - 0.5)
            marks["gs-lost" if letter == LOST else "g-busy"][mark] = None
    body = Markup("").join(Markup('<path class="{}" d="{}"/>').format(k, "".join(v)) for k, v in marks.items() if v)
    size = len(nodes) * 4 - 1, max(map(len, nodes)) * 4 - 1
    return Markup('<svg width="{}" height="{}" aria-hidden="true">{}</svg>').format(*size, body)


def _proportions(term: str, cells: str) -> Markup:
    """One bar for all of them."""
    body, at = Markup(""), 0.0
    for letter, look in ((BUSY, "g-busy"), (STARTING, "g-start"), (IDLE, "g-idle"), (LOST, "gs-lost")):
        share = cells.count(letter) / len(cells) * 100
        hatch = Markup(' fill="url(#h-{})"').format(term) if letter == STARTING else ""
        if share:
            piece = Markup('<rect class="{}" x="{:.2f}%" width="{:.2f}%" y="1" height="14"{}/>')
            body += piece.format(look, at, share, hatch)
        at += share
    return Markup('<svg class="bar" aria-hidden="true">{}</svg>').format(body)


def meter(spent: int, held: int, cap: int, says: str) -> Markup:
    """Spent solid, held hatched, the cap as an end stop. If more than the cap is committed, the meter is full, not
    longer.
    """
    total = max(1, cap)
    solid = min(100.0, spent / total * 100)
    hatched = min(100.0 - solid, held / total * 100)
    return Markup(
        '<svg class="meter" role="img" aria-label="{}"><rect class="m-bg" width="100%" height="12"/>'
        '<rect class="m-spent" width="{:.2f}%" height="12"/>'
        '<rect fill="url(#h-held)" x="{:.2f}%" width="{:.2f}%" height="12"/>'
        '<line class="m-cap" x1="100%" x2="100%" y1="-3" y2="15"/></svg>'
    ).format(says, solid, solid, hatched)
