"""What is missing is told with a command that installs it, wherever Penstock itself came from."""

import subprocess
import tomllib
from importlib import metadata

import pytest

from penstock.extras import EXTRAS, NOT_INSTALLED, install, packages
from tests.conftest import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
BUNDLES = {"demo", "dev"}
NOT_HERE = {"gpu"}  #: the tests do without
SATISFIED = "Requirement already satisfied: "


def test_each_extra_is_named_for_the_packages_it_installs() -> None:
    assert set(EXTRAS.values()) == DECLARED.keys() - BUNDLES


@pytest.mark.parametrize("extra", sorted(DECLARED.keys() - NOT_HERE))
def test_the_command_for_a_missing_extra_works_as_it_is_printed(extra: str) -> None:
    """Messages said `pip install 'penstock[kubernetes]'`: on the public index that is another project's program, and
    where Penstock came from a checkout it found nothing at all. Here all is installed, so pip has nothing to fetch, and
    says so of each package.
    """
    printed = install(extra)
    assert "penstock[" not in printed
    done = subprocess.run(
        ["sh", "-c", f"{printed} --no-index --disable-pip-version-check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    satisfied = [line for line in done.stdout.splitlines() if line.startswith(SATISFIED) and "(from" not in line]
    assert [line.split()[3] for line in satisfied] == packages(metadata.requires("penstock") or (), extra)


def test_where_penstock_was_never_installed_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", unknown)
    assert install("kubernetes") == NOT_INSTALLED


def test_packages_of_an_extra_are_told_from_all_others() -> None:
    lines = ["click>=8", "uvloop>=0.21; sys_platform != 'win32'", "a[x]>=1; extra == 'one'", 'b; extra == "two"']
    assert [packages(lines, extra) for extra in ("one", "two", "three")] == [["a[x]>=1"], ["b"], []]
