"""The documents are true: what they run is run, what they name exists, and what can be generated is generated.

As a program (`make docs`) this file writes what its tests compare: docs/lifecycle.md, docs/vocabulary.md,
docs/conformance.md, docs/policy.md with its schema, docs/compare.svg, and the answers of every block below
`<!-- run -->`. Blocks below `<!-- file: NAME -->` are the files that those commands read.
"""

import contextlib
import io
import os
import pkgutil
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest

import penstock
from penstock.cli.main import COMMANDS, load, main
from penstock.core import values
from penstock.core.model import actions, events, lifecycle, reasons
from tests import policy_page
from tests.conformance.document import document
from tests.conftest import ROOT
from tests.test_layers import CORE, drawing

DOCS = ROOT / "docs"
PICTURE = DOCS / "compare.svg"
PICTURE_COMMAND = "penstock compare --generate 3000 --costs l0 --knowledge e0"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
SOURCES = sorted(
    path
    for folder in ("src", "deploy", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix in {"", ".py", ".txt", ".yaml", ".json", ".tpl"}
)
#: Where commands and options are promised to people.
MANUAL = [ROOT / "README.md", DOCS / "operations.md"]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# --- what is run -----------------------------------------------------------------------------------------------------

RUN = re.compile(
    r"<!-- file: (?P<file>[\w.-]+) -->\n```\w*\n(?P<content>.*?)^```\n"
    r"|<!-- run -->\n```python\n(?P<python>.*?)^```\n(?:\n```text\n(?P<said>.*?)^```\n)?"
    r"|<!-- run -->\n```console\n(?P<console>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
LAYERS = re.compile(r"<!-- layers -->\n.*?<!-- end of layers -->\n", re.DOTALL)
LEDE = re.compile(r"(?<=<!-- lede -->\n).*\n")
#: The rest of what is printed is left out: long, or different on every machine.
AND_SO_ON = "...\n"


@each_page
def test_what_a_page_runs_says_what_the_page_says(page: Path) -> None:
    text = page.read_text("utf-8")
    assert fresh(text) == text, "run `make docs`, and read the page again: does it still make sense?"


def fresh(text: str) -> str:
    """The page with the answers that its blocks give today. They share one folder, and Python's share their names."""
    names: dict[str, Any] = {"__name__": "docs"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = RUN.sub(lambda match: _run(match, names), text)
    return LEDE.sub(lambda _: f"{lede(PICTURE.read_text('utf-8'))}\n", text)


def _run(match: re.Match[str], names: dict[str, Any]) -> str:
    if match["file"]:
        Path(match["file"]).write_text(match["content"])
        return match[0]
    if match["console"]:
        return f"<!-- run -->\n```console\n{''.join(_answered(match['console']))}```\n"
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        exec(compile(match["python"], "a block in docs", "exec"), names)
    answer = f"\n```text\n{stdout.getvalue()}```\n" if stdout.getvalue() else ""
    return f"<!-- run -->\n```python\n{match['python']}```\n{answer}"


def _answered(block: str) -> Iterator[str]:
    """Each `$ command` with its answer. A command that shows none in the page is run, and its answer not compared."""
    for shown in re.split(r"^(?=\$ )", block, flags=re.MULTILINE)[1:]:
        command, *old = shown.splitlines(keepends=True)
        yield command
        lines = _said_by(command.removeprefix("$ ")).splitlines(keepends=True)
        if old and old[-1] == AND_SO_ON:
            lines = [*lines[: len(old) - 1], AND_SO_ON]
        yield from lines if old else ()


def _said_by(command: str) -> str:
    program, *args = shlex.split(command, comments=True)
    assert program == "penstock", f"only penstock is run, not {program}"
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        code = main(args)
    assert code == 0, f"{command}: exit code {code}"
    return stdout.getvalue()


# --- what is generated -----------------------------------------------------------------------------------------------

VOCABULARY = """# Events, reasons and actions

Every word that the engine hears and says. `make docs` generates this page from the docstrings of
`src/penstock/core/model/events.py`, `src/penstock/core/model/reasons.py` and `src/penstock/core/model/actions.py`;
[the design](design.md#facts-promises-reasons) says how they work together."""


def test_the_policy_files_page_and_schema_are_made_of_its_keys() -> None:
    assert (DOCS / "policy.md").read_text("utf-8") == fresh(policy_page.page()), "run `make docs`"
    assert policy_page.SCHEMA.read_text("utf-8") == policy_page.schema(), "run `make docs`"


def test_lives_are_drawn_from_the_tables() -> None:
    assert (DOCS / "lifecycle.md").read_text("utf-8") == lifecycle.document(), "run `make docs`"


def test_the_vocabulary_is_that_of_the_core() -> None:
    assert (DOCS / "vocabulary.md").read_text("utf-8") == vocabulary(), "run `make docs`"


def vocabulary() -> str:
    """Every event, reason and action, as its docstring explains it."""
    listed = {
        "Facts": (events.FACTS, "What happened. Drivers, people and the clock say so, and the engine takes them in."),
        "Promises": (events.PROMISES, "What the engine decided. A promise is a fact once it is written."),
        "Reasons": (tuple(reasons.REASONS.values()), "Why. Each promise that needs one carries it, with its numbers."),
    }
    parts = [VOCABULARY]
    for title, (kinds, about) in listed.items():
        rows = [f"| `{kind.__name__}` | {explained(kind)} | {fields_of(kind)} |" for kind in kinds]
        parts.append(
            "\n".join([f"## {title}\n\n{about}\n", "| name | meaning | carries |", "| --- | --- | --- |", *rows])
        )
    rows = [
        f"| `{kind.__name__}` | {explained(kind)} | {', '.join(f'`{fact.__name__}`' for fact in facts) or 'its end'} |"
        for kind, facts in actions.ANSWERS.items()
    ]
    about = "What to do. Each is idempotent by its id, and is repeated after a crash until a fact answers it."
    parts.append(
        "\n".join([f"## Actions\n\n{about}\n", "| name | meaning | answered by |", "| --- | --- | --- |", *rows])
    )
    return "\n\n".join(parts) + "\n"


def explained(kind: type) -> str:
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


def fields_of(kind: type) -> str:
    return ", ".join(f"`{field.name}`" for field in fields(kind) if field.name not in ("at", "kind", "because"))


@pytest.mark.slow
def test_the_picture_shows_what_is_measured_today() -> None:
    """Its words and numbers; the last digit of a line's place may differ from machine to machine."""
    assert words_in(PICTURE.read_text("utf-8")) == words_in(drawn()), "run `make docs`"


def test_the_layers_are_drawn_from_the_imports() -> None:
    page = (DOCS / "design.md").read_text("utf-8")
    assert with_layers(page) == page, "run `make docs`"


def with_layers(page: str) -> str:
    return LAYERS.sub(lambda _: f"<!-- layers -->\n{drawing()}<!-- end of layers -->\n", page)


def test_the_command_behind_the_picture_is_named() -> None:
    assert PICTURE_COMMAND in MANUAL[0].read_text("utf-8")


def drawn() -> str:
    with tempfile.TemporaryDirectory() as folder:
        _said_by(f"{PICTURE_COMMAND} --out {folder}")
        return (Path(folder) / "compare.svg").read_text("utf-8")


def words_in(svg: str) -> list[str]:
    return [text for text, _ in _texts(svg)]


def lede(svg: str) -> str:
    return " ".join(text for text, kind in _texts(svg) if "lede" in kind.split())


def _texts(svg: str) -> list[tuple[str, str]]:
    elements = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [("".join(text.itertext()).replace("\xa0", " "), text.get("class", "")) for text in elements]


# --- what is named ---------------------------------------------------------------------------------------------------

CODE = re.compile(r"^```\w*\n(.*?)^```$|(?<!`)`([^`\n]+)`(?!`)", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
CLASS = re.compile(r"(?<![\w./])[A-Z][a-z]+(?:[A-Z][a-z]+)+(?![\w/])")
#: Class-like words of others: what they are.
KUBERNETES_WORDS = (
    *("DeadlineExceeded", "BackoffLimitExceeded", "PodFailurePolicy", "MaxFailedIndexesExceeded", "FailedIndexes"),
    *("SuccessPolicy", "CompletionsReached", "DisruptionTarget", "OnFailure", "JobSuspended", "JobResumed"),
)
AUTOSCALERS_WORDS = (
    *("BookingExpired", "CapacityRevoked"),
    "FailedScaleUp",
    "InsufficientCapacityError",
    "NodeClassNotReady",
    "NotTriggerScaleUp",
    "TriggeredScaleUp",
    "WhenEmpty",
)
CLOUDS_WORDS = (
    *(
        "CreateNodegroup",
        "DescribeNodegroup",
        "ListNodegroups",
        "DeleteNodegroup",
        "TagResource",
        "PassRole",
        "ReceiveMessage",
        "DeleteMessage",
    ),
    *("AsgInstanceLaunchFailures", "InsufficientInstanceCapacity", "UnfulfillableCapacity", "VcpuLimitExceeded"),
    *("MaxSpotInstanceCountExceeded", "ResourceLimitExceededException", "InsufficientFreeAddresses"),
    *("SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed", "QuotaExceeded", "OperationNotAllowed"),
    *("AzureLinux",),
)
SYSTEMDS_KEYS = ("ExecStart", "KillMode", "RestartSec", "StateDirectory", "TimeoutStopSec", "WantedBy")
NOT_OURS = {
    **dict.fromkeys(CLOUDS_WORDS, "words of AWS' and Azure's APIs"),
    "InsufficientCapacityError": "an Event of Karpenter's",
    "WhenEmpty": "of a NodePool of Karpenter's",
    "ToBeDeletedByClusterAutoscaler": "a taint of cluster-autoscaler's",
    "DeletionCandidateOfClusterAutoscaler": "another",
    "ElapsedRaw": "a column of Slurm's",
    "JobName": "another",
    "SubmitTime": "a column somebody has",
    "QueuedAtSite": "a reason of our Events in Kubernetes",
    **dict.fromkeys(SYSTEMDS_KEYS, "of a unit of systemd"),
    **dict.fromkeys(KUBERNETES_WORDS, "words of a Job of Kubernetes'"),
    **dict.fromkeys(AUTOSCALERS_WORDS, "words of Karpenter and cluster-autoscaler, in Events and conditions"),
    **dict.fromkeys(("NoSchedule", "NoExecute", "PreferNoSchedule"), "what a taint of Kubernetes' does"),
}


def test_every_command_has_a_section_that_names_all_its_options() -> None:
    sections = dict(
        re.findall(r"^### penstock ([\w-]+)\n(.*?)(?=^##)", MANUAL[1].read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
    assert list(sections) == list(COMMANDS)
    for name in COMMANDS:
        missing = options_of(name) - {"--help"} - set(OPTION.findall(sections[name]))
        assert not missing, f"penstock {name}: {', '.join(sorted(missing))} is not in docs/operations.md"


@pytest.mark.parametrize("page", MANUAL, ids=lambda page: page.name)
def test_every_command_and_option_named_exists(page: Path) -> None:
    every = set().union(*map(options_of, ["", *COMMANDS]))
    for line in code_in(page.read_text("utf-8")):
        program, *words = line.removeprefix("$ ").split("#")[0].split() or [""]
        if program.endswith("penstock") and words:
            assert words[0] in COMMANDS or words[0] in ("--help", "--version"), f"no such command: {line}"
            wrong = set(OPTION.findall(line)) - options_of(words[0])
        else:
            wrong = set(OPTION.findall(line)) - every if program.startswith("--") else set()
        assert not wrong, f"no such option: {line}"


@each_page
def test_every_class_named_exists(page: Path) -> None:
    named = {name for line in code_in(page.read_text("utf-8")) for name in CLASS.findall(line)}
    missing = named - our_classes() - NOT_OURS.keys()
    assert not missing, f"not in penstock: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("kind", [*events.FACTS, *events.PROMISES, *reasons.REASONS.values(), *actions.ACTIONS])
def test_every_event_reason_and_action_is_explained(kind: type) -> None:
    """Without a docstring a dataclass has its signature for one."""
    assert not explained(kind).startswith(f"{kind.__name__}("), f"{kind.__name__} has no docstring"


def test_the_files_of_core_are_listed_in_the_order_they_are_read() -> None:
    listed = re.findall(r"^\| `core/([\w/]+)\.py`", (DOCS / "design.md").read_text("utf-8"), re.MULTILINE)
    assert [file.replace("/", ".") for file in listed] == CORE
    core = ROOT / "src/penstock/core"
    there = [path.relative_to(core).with_suffix("").as_posix() for path in core.rglob("[a-z]*.py")]
    assert sorted(listed) == sorted(there)


def test_every_make_target_is_explained_and_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    explained = set(re.findall(r"^\| `make ([a-z0-9-]+)", MANUAL[1].read_text("utf-8"), re.MULTILINE))
    assert explained == targets


@cache
def options_of(command: str) -> set[str]:
    if command not in COMMANDS:
        return {"--help", "--version"}
    loaded = load(command)
    inner = loaded.commands.values() if isinstance(loaded, click.Group) else ()
    params = [param for each_command in (loaded, *inner) for param in each_command.params]
    named = {name for param in params if isinstance(param, click.Option) for name in param.opts}
    return {name for name in named if name.startswith("--")} | {"--help"}


@cache
def our_classes() -> set[str]:
    modules = [import_module(info.name) for info in pkgutil.walk_packages(penstock.__path__, "penstock.")]
    return {name for module in modules for name, value in vars(module).items() if isinstance(value, type)}


def code_in(text: str) -> Iterator[str]:
    for block, inline in CODE.findall(text):
        yield from block.splitlines() if block else [inline]


# --- links, and what a public page must not say ----------------------------------------------------------------------

LINK = re.compile(r"\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
MACHINE = re.compile(r"(?<![\w.$}])/(?:home|root|work|Users|mnt|srv|opt|tmp|var|private)(?=/|\b)|\b[A-Z]:\\")


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in (first or second for first, second in LINK.findall(page.read_text("utf-8"))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target}: there is no {path}"
        assert there.is_relative_to(ROOT), f"{target} leads out of the project"
        assert not anchor or anchor in anchors(there.read_text("utf-8")), f"{target}: no such heading"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    linked = {target for target, _ in LINK.findall(index)}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert pages <= linked, f"docs/README.md has no link to {', '.join(sorted(pages - linked))}"


@each_page
def test_no_page_names_a_place_on_somebodys_machine(page: Path) -> None:
    assert not MACHINE.findall(page.read_text("utf-8"))


@each_page
def test_no_page_has_marks_of_a_merge(page: Path) -> None:
    assert not re.findall("^(?:<{7}|>{7})", page.read_text("utf-8"), re.MULTILINE)


#: By our name alone: on the public index it belongs to another project.
BY_NAME = re.compile(r"pip install (?:-\S+ )*['\"]?penstock(?![\w./-])")


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: path.name)
def test_nobody_is_told_to_install_a_stranger(path: Path) -> None:
    """`pip install 'penstock[kubernetes]'` was the first command of docs/kubernetes.md, and stood in eight messages."""
    assert not BY_NAME.findall(path.read_text("utf-8"))


@pytest.mark.parametrize("line", ["pip install penstock", "pip install -U 'penstock[x]'", 'pip install "penstock" x'])
def test_installing_by_name_is_found(line: str) -> None:
    assert BY_NAME.search(line)
    assert not BY_NAME.search("pip install penstock-0.1.0-py3-none-any.whl")


def anchors(text: str) -> set[str]:
    """Headings as GitHub links to them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


# --- the tests' own tools --------------------------------------------------------------------------------------------


def test_answers_are_replaced_and_cut_where_the_page_cuts_them() -> None:
    page = "<!-- run -->\n```python\nprint(6 * 7)\n```\n\n```text\n41\n```\n"
    assert fresh(page) == page.replace("41", "42")
    cut = "<!-- run -->\n```console\n$ penstock --help\nUsage\n...\n```\n"
    assert "\nUsage: penstock [OPTIONS]" in fresh(cut)
    assert fresh(cut).count("\n") == cut.count("\n")


@pytest.mark.parametrize("path", ["/home/ada/x", "see /tmp/x", "`/root`", "C:\\jobs"])
def test_paths_of_a_machine_are_found(path: str) -> None:
    assert MACHINE.search(path)


@pytest.mark.parametrize("text", ["src/penstock/home/x", "docs/tmp/x", "and/or", "https://x.org/work/1"])
def test_other_paths_are_not(text: str) -> None:
    assert not MACHINE.search(text)


def write() -> None:
    # conftest asks for frozen values, and as a program we had made ours before; the workers must make theirs alike.
    os.environ["PENSTOCK_FROZEN"] = str(int(values.FROZEN))
    (DOCS / "lifecycle.md").write_text(lifecycle.document(), "utf-8")
    (DOCS / "vocabulary.md").write_text(vocabulary(), "utf-8")
    (DOCS / "conformance.md").write_text(document(), "utf-8")
    (DOCS / "policy.md").write_text(fresh(policy_page.page()), "utf-8")
    policy_page.SCHEMA.write_text(policy_page.schema(), "utf-8")
    PICTURE.write_text(drawn(), "utf-8")
    for page in PAGES:
        old = page.read_text("utf-8")
        new = with_layers(fresh(old))
        if new != old:
            page.write_text(new, "utf-8")
            print(f"{page.relative_to(ROOT)} says what is so today")


if __name__ == "__main__":
    write()
