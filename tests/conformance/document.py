"""docs/conformance.md, generated from the tables of this folder. Pure; `make docs` writes it."""

from tests.conformance import cases, comparing
from tests.conformance.cases import Case
from tests.conformance.comparing import Allowed

HEAD = """# Conformance

A home Job should look to its user as a plain Job does. `make conformance` checks this: it applies each manifest of
`tests/conformance/manifests` as it is, and with the label, and compares the two.

- **Plain**: the cluster's own controller runs the Job. **At home**: the same Job with the label, and owned GPUs are
  free. **Burst**: owned GPUs are full. **Moved**: it bursts, its pods are evicted, and it runs again at home.
- Each of these uses another one of the three [ways to make a home Job](kubernetes.md#home-jobs). At home:
  `kubectl penstock apply`. Burst: the label alone, which the cluster's admission policy completes. Moved: the fields
  written by hand.
- A user's view of the Job is compared field by field: metadata, spec, status, Events, and one of its pods. It is
  compared when the Job was created, when its pods run, after each thing that happens to a pod or that the user does,
  and at the end.
- On kwok's nodes the suite plays the kubelet, so each pod ends when and how `cases.yaml` says. The manifests in the
  column "real pods" also run on real ones, where they do what their commands say.
- A Job has time to come to look the same. A difference counts if it stays, and it fails the run unless the second
  table allows it.
- An allowed difference that no longer occurs fails the run, too.

`python -m tests.conformance --only NAME` runs some manifests, `--quick` those that CI runs, and `--json` prints every
difference. The program exits with code 1 if a run failed. `make docs` generates this page."""

MANIFESTS = """## Manifests

| manifest | what it covers | elsewhere | real pods | in CI |
| --- | --- | --- | --- | --- |"""

ALLOWED = """## Allowed differences

`*` stands for any text, and an empty cell for anything.

| field | plain | here | where | why |
| --- | --- | --- | --- | --- |"""


def document() -> str:
    manifests = "\n".join([MANIFESTS, *map(_case_row, cases.read())])
    allowed = "\n".join([ALLOWED, *map(_allowed_row, comparing.read())])
    return f"{HEAD}\n\n{manifests}\n\n{allowed}\n"


def _case_row(case: Case) -> str:
    elsewhere = f"stays home: {case.stays}" if case.stays else "bursts"
    return (
        f"| {case.name} | {case.covers} | {elsewhere} | {'yes' if case.real else ''} | {'yes' if case.quick else ''} |"
    )


def _allowed_row(entry: Allowed) -> str:
    return f"| `{entry.field}` | {_said(entry.plain)} | {_said(entry.ours)} | {_where(entry)} | {entry.reason} |"


def _said(text: str) -> str:
    return "" if text == "*" else text if text == comparing.ABSENT else f"`{text}`"


def _where(entry: Allowed) -> str:
    groups = (entry.manifests, entry.modes, entry.instants)
    return "; ".join(", ".join(group) for group in groups if group != ("*",)).replace("*", r"\*")
