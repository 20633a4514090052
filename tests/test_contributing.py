"""CONTRIBUTING.md is true: its examples are applied to a copy of the tree, where their stories, the linters and the
type checker pass; and each costs as many files as its table says.

A `diff` block begins with `+++ PATH`; `@@` stands between two places of the file. A `python` block that begins with
`# PATH` is a whole new file.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_docs import LINK

GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCK = re.compile(r"^```(diff|python)\n(?:\+\+\+|#) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Tests that find what somebody forgot to say of a new event, reason, action, command or module.
WATCHFUL = [
    "tests/core/model/test_actions.py",
    "tests/core/model/test_events.py",
    "tests/journal/test_codec.py",
    "tests/explain/test_event_words.py",
    "tests/explain/test_story.py",
    "tests/test_layers.py",
    "tests/test_docs.py::test_every_command_has_a_section_that_names_all_its_options",
]


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """By what is added: kind, path and text of each block."""
    parts = re.split(r"^### (.+)$", GUIDE, flags=re.MULTILINE)[1:]
    return {title.lower(): BLOCK.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def test_each_costs_as_many_files_as_the_guide_says() -> None:
    says = {what: int(files) for what, files in re.findall(r"^\| (an? \w+) \| (\d+) \|$", GUIDE, re.MULTILINE)}
    costs = {what: len({path for _, path, _ in blocks if not _is_test(path)}) for what, blocks in sections().items()}
    assert says == costs
    assert costs["an action"] <= 5


def test_links_of_the_guide_lead_somewhere() -> None:
    assert [target for target, _ in LINK.findall(GUIDE) if not (ROOT / target).exists()] == []


@pytest.mark.slow
def test_the_examples_work(tmp_path: Path) -> None:
    _copy(tmp_path)
    blocks = [block for blocks in sections().values() for block in blocks]
    for kind, path, text in blocks:
        if kind == "diff":
            (tmp_path / path).write_text(changed((tmp_path / path).read_text("utf-8"), text), "utf-8")
        else:
            (tmp_path / path).write_text(text.lstrip("\n"), "utf-8")
    touched = list(dict.fromkeys(path for _, path, _ in blocks if path.endswith(".py")))
    _run(tmp_path, "ruff", "format", "--check", "--quiet", *touched)
    _run(tmp_path, "ruff", "check", "--quiet", *touched)
    _run(tmp_path, "pytest", "-q", *filter(_is_test, touched), *WATCHFUL)
    _run(tmp_path, "mypy", "--no-error-summary", *touched)


def changed(old: str, diff: str) -> str:
    """The file with every place of the diff changed; each must be found, and found once."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = [line or " " for line in hunk.splitlines()]
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        assert f"\n{old}".count(f"\n{before}") == 1, f"not found, or more than once:\n{before}"
        old = f"\n{old}".replace(f"\n{before}", f"\n{after}")[1:]
    return old


def _is_test(path: str) -> bool:
    return path.startswith("tests/")


def _copy(folder: Path) -> None:
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    if (ROOT / ".mypy_cache").exists():  # the linters ran: only what the examples change is checked again
        shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder / name)


def _run(folder: Path, tool: str, *args: str) -> None:
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    command = [sys.executable, "-m", tool, *args]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{tool} in the changed copy:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


# --- the test's own tool ---------------------------------------------------------------------------------------------


def test_a_place_that_is_not_there_or_twice_is_found_out() -> None:
    assert changed("a\nb\n", " a\n+x\n b\n") == "a\nx\nb\n"
    assert changed("a\nb\n", "-a\n+x\n@@\n-b\n+y\n") == "x\ny\n"
    for wrong in (" c\n+x\n", " a\n"):
        with pytest.raises(AssertionError, match="not found, or more than once"):
            changed("a\nb\na\n", wrong)
