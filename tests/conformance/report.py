"""What a run found: the table that people read, JSON for programs, and docs/conformance.md. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from tests.conformance.comparing import Allowed, Difference
from tests.conformance.ground import MODES
from tests.conformance.running import Outcome


def wrong(outcome: Outcome, allowed: list[Allowed]) -> list[Difference]:
    """Differences of all modes that nothing allows, each at its first instant; a lost plain run is one, too."""
    differences = [diff for mode in ("plain", *MODES) for diff in outcome.unexplained(allowed, mode)]
    return list(
        {(diff.mode, diff.field, str(diff.plain), str(diff.ours)): diff for diff in reversed(differences)}.values()
    )[::-1]


def table(outcomes: Sequence[Outcome], allowed: list[Allowed], rotten: Sequence[Allowed]) -> str:
    lines = [f"{'manifest':44} {'at home':12} {'burst':12} {'moved':12} differences"]
    for outcome in outcomes:
        differences = wrong(outcome, allowed)
        cells = " ".join(f"{_cell(outcome, mode, allowed):12}" for mode in MODES)
        name = outcome.case.name + (f", {outcome.on}" if outcome.on != "kwok" else "")
        lines.append(f"{name:44} {cells} {len(differences) or ''}".rstrip())
        lines += [
            f"    {diff.mode}, {diff.instant}: {diff.field} is {diff.ours!r}, plain {diff.plain!r}"
            for diff in differences
        ]
    lines += [f"no longer occurs: {entry.field} ({entry.reason})" for entry in rotten]
    bad = sum(bool(wrong(outcome, allowed)) for outcome in outcomes)
    lines.append(
        f"{len(outcomes)} manifests, {bad} of them differ in what nothing allows; {len(allowed)} allowed differences"
    )
    return "\n".join(lines)


def _cell(outcome: Outcome, mode: str, allowed: list[Allowed]) -> str:
    trace = outcome.traces.get(mode)
    if trace is None:
        return ""
    if trace.stays:
        return "stays home"
    return "differs" if outcome.unexplained(allowed, mode) else "same"


def as_json(outcomes: Sequence[Outcome], allowed: list[Allowed], rotten: Sequence[Allowed]) -> str:
    rows = [
        {
            "manifest": outcome.case.name,
            "on": outcome.on,
            **{mode: _cell(outcome, mode, allowed) for mode in MODES},
            "differences": [asdict(diff) for diff in wrong(outcome, allowed)],
        }
        for outcome in outcomes
    ]
    return json.dumps({"manifests": rows, "rotten": [asdict(entry) for entry in rotten]}, indent=1)
