"""The life cycles of a job, an attempt and a node: every phase, and every transition with its meaning.

`fold/transitions` changes a phase only along these edges; any other change is a bug and raises. `docs/lifecycle.md` is
generated from these tables.
"""

from typing import Final, Literal, TypeAlias

JobPhase: TypeAlias = Literal["waiting", "placed", "leaving", "paused", "done", "failed", "refused", "cancelled"]
AttemptPhase: TypeAlias = Literal["promised", "starting", "running", "stopping", "over"]
NodePhase: TypeAlias = Literal["asked", "idle", "busy", "returning", "gone"]

JOB: Final[dict[JobPhase, dict[JobPhase, str]]] = {
    "waiting": {
        "placed": "the engine promised it GPUs, and holds the money if they are rented",
        "refused": "no offer is large enough, no rule allows one, or an approval that it needs is denied",
        "failed": "its attempt ended before it was stopped, and it had run as long as its class may",
        "cancelled": "a person cancelled it before it ran",
    },
    "placed": {
        "waiting": "it was preempted, or the site could not start it; it keeps its checkpoint and its turn",
        "leaving": "its attempt was told to stop: to move, to make room, at a cap, or by a person",
        "paused": "its lease ended with no money to renew it; the attempt ended at its own deadline",
        "done": "it succeeded",
        "failed": "its own program failed",
    },
    "leaving": {
        "placed": "it stopped, and the stop had promised its next GPUs",
        "waiting": "it stopped, and is queued again",
        "paused": "it stopped because a cap was reached; it waits for money or for owned GPUs",
        "done": "it succeeded before the stop reached it",
        "failed": "it failed before the stop reached it, or had run as long as its class may",
        "cancelled": "it stopped because a person cancelled it",
    },
    "paused": {
        "placed": "there is money again, or owned GPUs are free",
        "refused": "the offers that could run it are gone or no longer allowed, or an approval that it needs is denied",
        "failed": "its attempt ended at its own deadline, and it had run as long as its class may",
        "cancelled": "a person cancelled it",
    },
    "done": {},
    "failed": {},
    "refused": {},
    "cancelled": {},
}

ATTEMPT: Final[dict[AttemptPhase, dict[AttemptPhase, str]]] = {
    "promised": {
        "starting": "its nodes are ready, its data is copied, and the jobs that make room are gone",
        "over": "its nodes were refused or reclaimed, or its job was stopped, before it began",
    },
    "starting": {
        "running": "the site reports that it runs",
        "stopping": "it was told to stop before the site answered",
        "over": "the site could not start it, or it was preempted, or it ended before the site reported its start",
    },
    "running": {
        "stopping": "it was told to checkpoint and stop",
        "over": "it ended, was preempted, or reached its own deadline",
    },
    "stopping": {
        "over": "the site reports that it is gone",
    },
    "over": {},
}

NODE: Final[dict[NodePhase, dict[NodePhase, str]]] = {
    "asked": {
        "idle": "the provider reports that it is ready; it is billed since the request",
        "returning": "no job needs it any more; the engine returns it before it was ready",
        "gone": "the provider had none, or reclaimed it while it started",
    },
    "idle": {
        "busy": "an attempt starts on it",
        "returning": "no attempt runs on it, and keeping it does not pay",
        "gone": "the provider reclaimed it, or its own deadline passed",
    },
    "busy": {
        "idle": "the last attempt on it is over",
        "gone": "the provider reclaimed it; its attempts are preempted",
    },
    "returning": {
        "gone": "the provider reports that it bills no more",
    },
    "gone": {},
}

ENDED: Final[tuple[JobPhase, ...]] = ("done", "failed", "refused", "cancelled")


class Broken(AssertionError):
    """An invariant does not hold: a bug. The message has the story of the job, attempt or node."""


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
    head = (
        "# Life cycles\n\n"
        "The phases of a job, an attempt and a node inside the core, and every transition between them. Users see the\n"
        "[states](operations.md#states) instead. `make docs` generates this page from `core/model/lifecycle.py`.\n\n"
    )
    tables = (("A job", JOB), ("An attempt", ATTEMPT), ("A node", NODE))
    return head + "\n".join(diagram(name, dict(table)) for name, table in tables)  # type: ignore[arg-type]  # Literal keys are strings
