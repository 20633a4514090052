"""The lives of a job, an attempt and a node: every edge there is, each with what it means.

`apply` moves things only along these edges (a move that is not here is a bug and raises). `docs/lifecycle.md` draws
them from these tables.
"""

from typing import Final, Literal, TypeAlias

JobPhase: TypeAlias = Literal["waiting", "placed", "leaving", "paused", "done", "failed", "refused", "cancelled"]
AttemptPhase: TypeAlias = Literal["promised", "starting", "running", "stopping", "over"]
NodePhase: TypeAlias = Literal["asked", "idle", "busy", "returning", "gone"]

JOB: Final[dict[JobPhase, dict[JobPhase, str]]] = {
    "waiting": {
        "placed": "a place was promised, and the money for it is held",
        "refused": "nothing that exists or is allowed could ever run it",
        "cancelled": "a person took it back before it ran",
    },
    "placed": {
        "waiting": "its capacity was lost, or the site had none after all; it keeps its checkpoint and its turn",
        "leaving": "its attempt was told to stop: moved, preempted, displaced, out of budget or cancelled",
        "paused": "its lease ended with no money to renew it; the thing stopped by itself",
        "done": "it ran to its end",
        "failed": "it ended by its own fault",
    },
    "leaving": {
        "placed": "it stopped, and its next place was promised with the stop",
        "waiting": "it stopped, and waits for its turn again",
        "paused": "it stopped because a cap binds; it waits for money or for owned GPUs",
        "done": "it ended by itself before the stop reached it",
        "failed": "it failed before the stop reached it",
        "cancelled": "it stopped because a person asked",
    },
    "paused": {
        "placed": "there is money again, or owned GPUs are free",
        "refused": "what could run it is gone, or no longer allowed",
        "cancelled": "a person took it back",
    },
    "done": {},
    "failed": {},
    "refused": {},
    "cancelled": {},
}

ATTEMPT: Final[dict[AttemptPhase, dict[AttemptPhase, str]]] = {
    "promised": {
        "starting": "its nodes are ready, its data has landed and whoever was there before is gone",
        "over": "its nodes were refused or lost, or its job was stopped, before it began",
    },
    "starting": {
        "running": "the site says it runs",
        "stopping": "told to stop before the site answered",
        "over": "the site had no capacity, or the thing was lost, or it ended before we heard that it began",
    },
    "running": {
        "stopping": "told to checkpoint and stop",
        "over": "it ended, or was lost, or its own deadline passed",
    },
    "stopping": {
        "over": "the site says that it is gone",
    },
    "over": {},
}

NODE: Final[dict[NodePhase, dict[NodePhase, str]]] = {
    "asked": {
        "idle": "the provider says it is ready; it has been billed since it was asked for",
        "returning": "nobody needs it any more; it is given back before it was ready",
        "gone": "the provider had none, or took it away while it started",
    },
    "idle": {
        "busy": "an attempt starts on it",
        "returning": "nothing runs on it and keeping it does not pay",
        "gone": "lost, or its own deadline passed",
    },
    "busy": {
        "idle": "the last that ran on it is over",
        "gone": "lost, with what ran on it",
    },
    "returning": {
        "gone": "the provider says that it bills no more",
    },
    "gone": {},
}

ENDED: Final[tuple[JobPhase, ...]] = ("done", "failed", "refused", "cancelled")


class Broken(AssertionError):
    """An invariant does not hold: a bug, told with the story of the thing it concerns."""


def diagram(name: str, table: dict[str, dict[str, str]]) -> str:
    """One table as a Mermaid state diagram with its edges explained below."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {next(iter(table))}"]
    lines += [f"    {a} --> {b}" for a, edges in table.items() for b in edges]
    lines += [f"    {a} --> [*]" for a, edges in table.items() if not edges]
    lines += ["```", ""]
    lines += [f"- **{a} → {b}**: {why}." for a, edges in table.items() for b, why in edges.items()]
    return f"## {name}\n\n" + "\n".join(lines) + "\n"


def document() -> str:
    """The text of docs/lifecycle.md."""
    head = "# Lives\n\nDrawn from the tables in `core/model/lifecycle.py`; `make docs` writes this page anew.\n\n"
    tables = (("A job", JOB), ("An attempt", ATTEMPT), ("A node", NODE))
    return head + "\n".join(diagram(name, dict(table)) for name, table in tables)  # type: ignore[arg-type]  # Literal keys are strings
