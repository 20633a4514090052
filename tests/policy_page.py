"""docs/policy.md, made of the classes that read the file; `make docs` writes it, tests/test_docs.py compares it."""

import json
import re
from collections.abc import Iterator

from penstock.config.convert import Section, explained
from penstock.policy.fields import JOB, OFFER, QUOTE, SITE, TEAM, Field
from penstock.policy.schema import json_schema
from penstock.policy.sections import PolicyFileSection
from tests.config.tables import levels
from tests.conftest import ROOT

SCHEMA = ROOT / "examples" / "policy.schema.json"
EXAMPLE = ROOT / "examples" / "policy.yaml"
CASES = ROOT / "examples" / "policy_test.yaml"

HEAD = """# The policy file

The policy file says who may spend how much, what may run where, and which data may go where. The [sites
file](sites.md) says what exists. Start Penstock with both, and the policy holds for every job:

    penstock up --sites sites.yaml --policy policy.yaml

`simulate`, `compare` and `shadow` read the same file with `--policy`, so you can try it on last month's jobs first.
[examples/policy.yaml](../examples/policy.yaml) is a complete one, for
[examples/sites.yaml](../examples/sites.yaml); `make docs` generates this page from the code that reads the file.

The file is YAML, and values are written [as in the sites file](sites.md#how-to-write-values); times of day are in
quotes. A misspelt or repeated key is an error; Penstock ignores nothing silently. It lists every error with line
and key, and the policy in force stays. A file of a newer `version` than Penstock knows is refused.

- Deny wins over allow. A class of data without a rule goes nowhere. A rule that fails denies, and the reason says so.
- Every verdict names its rule with file and line, in `penstock why`, `plan`, on the page and on a Kubernetes Job.
- What was in force is in the journal: a replay needs no file.

The sites file's `policy`, `caps`, `teams` and `data_rules` are the old place of what is here. They work for a
release, with a notice. If both files say the same, that is an error that names the lines to delete.

For completion and checks in your editor, begin the file with this line; [the
schema](../examples/policy.schema.json) is what `penstock policy schema` prints:

    # yaml-language-server: $schema=policy.schema.json
"""

COMMANDS = """## Try it before it is live

`penstock policy check` finds errors, and warns of what is probably not meant: a rule that never matches or that
denies everything, two rules that contradict, classes that preempt each other, a class for which no offer is left, a
name that no site has, a cap below what is spent (`--journal`). Rules are judged by trying them on jobs and offers; each
warning says on how many.

`penstock policy test` runs the cases in `policy_test.yaml` beside the policy, and exits with 1 if one fails. A case
is a job with the keys of a [job file](jobs.md), offers under `at` (all, if left out), and `expect`, `allowed` or
`denied`; `rule` is a part of what a verdict against it says.

`penstock policy explain` shows every offer: allowed, or the first rule against it and all others. With `--sites` the
files answer; without it a running Penstock does, for a job that it knows and by the policy in force.

## A worked example

A finance firm gives its data scientists self-service bursting. It caps rent at €50,000 a month, rents spot only,
keeps regulated data where the law wants it, and inference on its own GPUs."""


def page() -> str:
    parts = [HEAD, *_levels(), _rules(), COMMANDS, *_example()]
    return "\n".join(parts)


def schema() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


def _levels() -> Iterator[str]:
    seen: set[type[Section]] = set()
    for place, kind in levels("", PolicyFileSection):
        if kind in seen:
            continue
        seen.add(kind)
        rows = [f"| `{name}` | {says.what} | {says.otherwise} |" for name, says in explained(kind).items()]
        about = " ".join((kind.__doc__ or "").split())
        table = "\n".join(["| key | what | if left out |", "| --- | --- | --- |", *rows])
        yield f"## {place or 'The file'}\n\n{about}\n\n{table}\n"


def _rules() -> str:
    rows = [f"| `{field.name}` | {_kind(field)} | {field.meaning} |" for field in (*JOB, *OFFER, *SITE, *TEAM)]
    quotes = [f"| `{field.name}` | {_kind(field)} | {field.meaning}; approvals only |" for field in QUOTE]
    table = "\n".join(["| name | kind | what |", "| --- | --- | --- |", *rows, *quotes])
    return f"""## What a condition may read

Conditions are written in [CEL](https://cel.dev), the language of Kubernetes' admission policies, and need the
[extra](install.md#extras) `policy`. `==`, `!=`, `<`, `>`, `in`, `&&`, `||`, `!`, `startsWith`, `endsWith`, `contains`
and `matches` are there. Loops over lists (`exists`, `all`) are not: a condition cannot take long. An amount is compared
with `4` or `4.50`, and multiplied by `2.0`. A condition has at most 2,000 characters, and a file at most 500
conditions with 50,000 characters; no list or group of keys of a file has more than 1,000 entries.

{table}
"""


def _kind(field: Field) -> str:
    return {"text": "text", "whole": "whole number", "amount": "amount", "truth": "true or false", "texts": "list"}[
        field.kind
    ]


def _example() -> Iterator[str]:
    sites = re.sub(r"\n+$", "\n", (ROOT / "examples" / "sites.yaml").read_text("utf-8"))
    yield f"<!-- file: policy.yaml -->\n```yaml\n{EXAMPLE.read_text('utf-8')}```\n"
    yield f"Its cases:\n\n<!-- file: policy_test.yaml -->\n```yaml\n{CASES.read_text('utf-8')}```\n"
    yield f"<details><summary>sites.yaml</summary>\n\n<!-- file: sites.yaml -->\n```yaml\n{sites}```\n\n</details>\n"
    yield f"<!-- file: job.yaml -->\n```yaml\n{JOB_FILE}```\n"
    yield "<!-- run -->\n```console\n" + "".join(f"{command}\n?\n" for command in SAID) + "```\n"


JOB_FILE = """name: scan-model
command: python train.py
class: training
team: vision
gpus: 8
checkpoint_every: 15m
data: [scans]
"""
#: Their answers are filled in where the page is tried, in tests/test_docs.py.
SAID = (
    "$ penstock policy check policy.yaml --sites sites.yaml",
    "$ penstock policy test policy.yaml",
    "$ penstock policy explain --job job.yaml --policy policy.yaml --sites sites.yaml",
)
