"""docs/faults.md is true: each row's tests exist under these names, and each seeded mistake is in its table."""

import re

from bench import cloud_mistakes, kube_mistakes
from bench.mistakes import MISTAKES
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
#: Without 18, pods that use GPUs without asking for them, and 23, transfers of data.
ROWS = [*range(1, 18), *range(19, 23), *range(24, 31)]


def test_every_row_names_its_tests_and_each_of_them_exists() -> None:
    files = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in files for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE)}
    rows = re.findall(r"^\| (\d*) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
    named = {row: re.findall(r"`(test_\w+)`", tests) for row, tests in rows}
    assert all(named.values()), named
    assert {name for tests in named.values() for name in tests} - there == set()
    assert [row for row in ROWS if str(row) not in named] == []


def test_every_test_that_is_named_with_its_file_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)
    assert len(named) > 10
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path}::{name}"


def test_no_test_named_by_row_is_missing_from_the_table() -> None:
    files = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    by_row = {name for text in files for name in re.findall(r"def (test_(?:row|fault)_\d+_\w+)\(", text)}
    assert by_row - set(re.findall(r"`(test_\w+)`", PAGE)) == set()


def test_the_mistakes_are_those_of_the_benches() -> None:
    tables = [part.partition("\n\n")[0] for part in PAGE.split("| mistake | what it does |")]
    _, here, clusters, clouds = tables
    assert re.findall(r"^\| `(\w+)` \|", here, re.MULTILINE) == list(MISTAKES)
    assert re.findall(r"^\| `(\w+)` \|", clusters, re.MULTILINE) == list(kube_mistakes.MISTAKES)
    assert re.findall(r"^\| `(\w+)` \|", clouds, re.MULTILINE) == list(cloud_mistakes.MISTAKES)
