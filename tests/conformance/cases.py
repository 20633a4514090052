"""The cases: what each manifest in `manifests/` covers, and what its pods do. `cases.yaml` is the table.

On kwok the suite plays the kubelet, so a case says what happens to its pods, one step after another:

    exit 3                 the oldest pod that runs ends with this code
    index 2 exit 1         the pod of this index does
    all exit 0             every pod that runs does
    restart 1              the containers of the oldest pod end with this code and start again in place
    out of memory          the oldest pod is killed for it
    suspend, resume        the user does that to the Job
    parallelism 3          the user changes it
    wait                   the cluster itself ends it: its deadline passes
    delete                 the user deletes the Job
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

HERE: Final = Path(__file__).parent
MANIFESTS: Final = HERE / "manifests"
Json = dict[str, Any]
#: How the first instant looks that is compared: its pods run, wait for a node, or there are none.
Begins = Literal["running", "pending", "idle"]
Real = Literal["", "ended", "pending"]


@dataclass(frozen=True)
class Case:
    name: str
    covers: str
    steps: tuple[str, ...]
    begins: Begins
    stays: str  #: why it never bursts; empty: it bursts
    moves: int | None  #: after how many steps it is moved in between; None: never
    real: Real  #: how it stands in the end on real pods, which do what their commands say; empty: not run there
    quick: bool  #: among the few that CI runs

    def documents(self) -> list[Json]:
        """What a user applies, in that order; a List is its items."""
        documents = yaml.safe_load_all((MANIFESTS / f"{self.name}.yaml").read_text("utf-8"))
        return [copy.deepcopy(item) for document in documents if document for item in _items(document)]


def _items(document: Json) -> Iterator[Json]:
    yield from document["items"] if document["kind"] == "List" else [document]


def read() -> list[Case]:
    """All cases, in the order of the table."""
    rows: list[Json] = yaml.safe_load((HERE / "cases.yaml").read_text("utf-8"))
    return [_case(row) for row in rows]


def _case(row: Json) -> Case:
    return Case(
        name=row["manifest"],
        covers=row["covers"],
        steps=tuple(row.get("steps", ())),
        begins=row.get("begins", "running"),
        stays=row.get("stays", ""),
        moves=row.get("moves", 0) if not row.get("stays") else None,
        real=row.get("real", ""),
        quick=bool(row.get("quick")),
    )
