"""What an installation brings: the package stays small, and the lock pins all that `make demo` and `make test` install.

`make lock` writes it: versions and hashes for every supported Python and platform, told apart by environment markers,
and no address, so that whoever installs from it uses an index of their own.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT

#: Of `pip install penstock`, itself included; with pip and setuptools, which a fresh venv has, it stays below 30.
MOST_PACKAGES = 27
MOST_MB = 60  #: on disk, with bytecode, without pip and setuptools
LOCKS = {"demo": ROOT / "requirements" / "demo.txt", "dev": ROOT / "requirements" / "dev.txt"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_the_package_brings_few_others_and_no_heavy_one() -> None:
    packages = closure("penstock")
    assert len(packages) <= MOST_PACKAGES, sorted(packages)
    assert not {"numpy", "rich", "pygments"} & packages


def test_the_package_and_what_it_brings_take_little_room() -> None:
    sizes = {name: size_of(name) for name in closure("penstock")}
    assert sum(sizes.values()) <= MOST_MB * 1_000_000, sorted(sizes.items(), key=lambda entry: -entry[1])[:8]


@pytest.mark.parametrize("extra", LOCKS)
def test_every_line_of_the_lock_is_one_version_with_hashes_and_no_address(extra: str) -> None:
    text = LOCKS[extra].read_text("utf-8")
    assert "://" not in text
    assert "@" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE), "an option such as an index"
    for line in pins(text):
        requirement, *hashes = line.split(" --hash=")
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", requirement), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


@pytest.mark.parametrize("extra", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS, ids="-".join)
def test_the_lock_has_every_dependency_once_within_the_ranges(
    extra: str, python: str, platform: tuple[str, str]
) -> None:
    where = here() | {"python_version": python, "python_full_version": f"{python}.0"}
    where |= {"sys_platform": platform[0], "platform_machine": platform[1]}
    locked = chosen(LOCKS[extra], where)
    for requirement in [*declared(extra), *map(Requirement, PROJECT["build-system"]["requires"])]:
        if requirement.marker is None or requirement.marker.evaluate(where):
            assert locked[canonicalize_name(requirement.name)] in requirement.specifier, str(requirement)


def test_both_locks_agree_and_what_is_installed_here_is_what_they_say() -> None:
    demo, dev = (chosen(LOCKS[name], here()) for name in ("demo", "dev"))
    assert demo.items() <= dev.items()
    missing = (closure("penstock", "demo") | closure("penstock", "dev")) - {"penstock"} - dev.keys()
    assert missing == set()


def test_the_build_backend_is_locked_as_it_is_asked_for() -> None:
    """The project is built without build isolation, which would fetch whatever is newest."""
    assert set(PROJECT["build-system"]["requires"]) <= set(PROJECT["dependency-groups"]["build"])


# --- what is declared ------------------------------------------------------------------------------------------------


def declared(extra: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for, with the extras that an extra names."""
    yield from map(Requirement, PROJECT["project"]["dependencies"])
    for line in PROJECT["project"]["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name != "penstock":
            yield requirement
        for inner in sorted(requirement.extras) if requirement.name == "penstock" else ():
            yield from declared(inner)


def closure(name: str, *extras: str) -> set[str]:
    """This distribution and all that it brings, by the metadata of what is installed here."""
    names: set[str] = set()
    asked = [(name, frozenset(extras))]
    done: set[tuple[str, frozenset[str]]] = set()
    while asked:
        pair = asked.pop()
        if pair in done:
            continue
        done.add(pair)
        names.add(canonicalize_name(pair[0]))
        for requirement in map(Requirement, requirements_of(pair[0])):
            wanted = requirement.marker
            if wanted is None or any(wanted.evaluate({"extra": extra}) for extra in (pair[1] or {""})):
                asked.append((requirement.name, frozenset(requirement.extras)))
    return names


def requirements_of(name: str) -> list[str]:
    """Ours are read from pyproject.toml: an editable install may be older."""
    if name != "penstock":
        return distribution(name).requires or []
    project = PROJECT["project"]
    optional = [
        f"{line} ; extra == '{extra}'" if ";" not in line else f"{line} and extra == '{extra}'"
        for extra, lines in project["optional-dependencies"].items()
        for line in lines
    ]
    return [*project["dependencies"], *optional]


def size_of(name: str) -> int:
    if name == "penstock":
        files = [path for path in (ROOT / "src" / "penstock").rglob("*") if path.is_file()]
    else:
        files = [Path(str(file.locate())) for file in distribution(name).files or []]
    return sum(path.stat().st_size for path in files if path.exists())


def here() -> dict[str, str]:
    """What environment markers are asked about."""
    return {name: str(value) for name, value in default_environment().items()} | {"extra": ""}


# --- what is locked --------------------------------------------------------------------------------------------------


def pins(text: str) -> list[str]:
    """One line for each version, with its hashes."""
    joined = re.sub(r" \\\n\s*", " ", text)
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def chosen(lock: Path, where: dict[str, str]) -> dict[str, Version]:
    """By name, what pip takes there; never two of one name."""
    versions: dict[str, Version] = {}
    for line in pins(lock.read_text("utf-8")):
        requirement = Requirement(line.partition(" --hash=")[0])
        if requirement.marker is None or requirement.marker.evaluate(where):
            assert requirement.name not in versions, line
            versions[requirement.name] = Version(str(requirement.specifier).removeprefix("=="))
    return versions
