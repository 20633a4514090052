"""The engine out of a compiled wheel (`make wheel`) is the same engine: it writes the same rows, and each of the two
replays and decides the other's journal anew.
"""

import json
import shutil
from pathlib import Path

import pytest

from bench import compiled
from tests import compiling
from tests.compiling import python
from tests.conftest import Part

RUNS = (
    ("compute", "l0", "e0"),
    ("power", "l1", "e1"),
    ("nowait", "l2", "e2"),
    ("penstock", "l1", "e2"),
    ("penstock", "l2", "e2"),
)
PACKED = """
from penstock.core.engine import replay
from penstock.core.model.events import JobSubmitted
from penstock.core.model.types import JobSpec
from penstock.core.plan import plan
from penstock.core.decide.rules import BuiltInRules
from penstock.journal.open import read
from penstock.live.snapshot import pack, unpack
import penstock.core.fold.state, pickle, sys
engine = replay((row.at, row.inputs, row.outputs) for row in read(sys.argv[1]))
state = engine.state
assert penstock.core.fold.state.__file__.endswith(".so")
assert unpack(pack(state)).digest() == state.digest()
submitted = JobSubmitted(state.at, state.numbered + 1, "x", JobSpec(1))
planned = plan(unpack(pack(state)), BuiltInRules(), submitted)
assert pickle.loads(pickle.dumps(planned)) == planned
assert planned.decision == engine.handle(submitted).outputs[-1]
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = compiling.package(tmp_path_factory.mktemp("compiled"))
    if built is None:
        pytest.skip(Part.COMPILER)
    return built


def test_the_libraries_are_built_anew_when_a_module_of_theirs_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the core got sub-packages, their changes went unseen: tests and benches ran libraries of older sources."""
    shutil.copytree(compiled.ROOT / "src", tmp_path / "src")
    shutil.copy(compiled.ROOT / "hatch_build.py", tmp_path)
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    core, world = tmp_path / "src/penstock/core", tmp_path / "src/penstock/sim/engine/world.py"
    fingerprints = {compiled.fingerprint()}
    changed = [*core.rglob("*.py"), world]
    for module in changed:
        module.write_text(module.read_text() + "# changed\n")
        fingerprints.add(compiled.fingerprint())
    assert len(fingerprints) == len(changed) + 1


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "costs", "knowledge"), RUNS)
def test_the_compiled_engine_writes_the_same_journal(
    package: Path, tmp_path: Path, policy: str, costs: str, knowledge: str
) -> None:
    wanted = ["--generate", "600", "--policy", policy, "--costs", costs, "--knowledge", knowledge]
    for name, where in (("plain", None), ("compiled", package)):
        penstock(where, "simulate", *wanted, "--journal", str(tmp_path / name))
    reports = [
        penstock(where, "replay", str(tmp_path / name), "--check", "--json")
        for name in ("plain", "compiled")
        for where in (None, package)
    ]
    assert len({each["digest"] for each in reports}) == 1
    heads = [penstock(None, "journal", "verify", str(tmp_path / name), "--json") for name in ("plain", "compiled")]
    assert heads[0] == heads[1]


@pytest.mark.slow
def test_each_decides_the_others_journal_anew_packs_its_own_state_and_plans(package: Path, tmp_path: Path) -> None:
    for where in (None, package):
        file = str(tmp_path / ("compiled" if where else "plain"))
        penstock(where, "simulate", "--generate", "600", "--costs", "l2", "--journal", file)
        other = None if where else package
        assert penstock(other, "redecide", file, "--json")["different"] == 0
    python(package, "-c", PACKED, str(tmp_path / "compiled"))


def penstock(package: Path | None, *arguments: str) -> dict[str, object]:
    stdout = python(package, "-m", "penstock.cli", *arguments)
    return dict(json.loads(stdout)) if "--json" in arguments else {}
