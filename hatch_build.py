"""Compiles the engine and the simulated world into the wheel, where PENSTOCK_COMPILE=1 asks for it.

    make wheel                       # dist/penstock-...-cp311-...-linux_x86_64.whl, about a minute of gcc
    pip install dist/penstock-*.whl

The same decisions, journals and digests, at about twice the speed (docs/decisions/0009). Nothing but the wheel knows of
it: an editable install, and a wheel built without the variable, are plain Python.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Left as they are: what inherits from a built-in exception, and the decorator that mypyc replaces by its own.
PLAIN = ("__init__", "lifecycle", "values")
WORLD = ("sim/engine/simulator.py", "sim/engine/world.py")
IMPORTS = (ast.Import, ast.ImportFrom)
KNOWN = """
from dataclasses import dataclass
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
"""
SETUP = """
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify({arguments!r}, opt_level="1", multi_file=True, group_name="penstock")
setup(name="penstock", ext_modules=modules)
"""


class CompiledCore(BuildHookInterface[Any]):
    def dependencies(self) -> list[str]:
        return ["mypy>=2.4,<3", "setuptools>=77"] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not wanted() or version == "editable":
            return
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-compiled-"))
        build_data |= {"pure_python": False, "infer_tag": True}
        build_data["force_include"] |= {
            str(library): str(library.relative_to(self.folder)) for library in compiled(Path(self.root), self.folder)
        }

    def finalize(self, *_: object) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


def wanted() -> bool:
    return os.environ.get("PENSTOCK_COMPILE") == "1"


def compiled(root: Path, folder: Path) -> list[Path]:
    """The libraries, in `folder` as they belong beside the package."""
    package = folder / "penstock"
    shutil.copytree(root / "src" / "penstock", package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    modules = [file for file in sorted(package.glob("core/**/*.py")) if file.stem not in PLAIN]
    modules += [package / name for name in WORLD]
    for file in modules:
        file.write_text(for_mypyc(file.read_text(), packed=file.is_relative_to(package / "core")))
    arguments = [f"--config-file={root / 'pyproject.toml'}", *(str(file.relative_to(folder)) for file in modules)]
    (folder / "setup.py").write_text(SETUP.format(arguments=arguments))
    build = [sys.executable, "setup.py", "build_ext", "--inplace", f"--parallel={os.cpu_count() or 1}"]
    subprocess.run(build, cwd=folder, check=True)
    return [*folder.glob("*.so"), *package.rglob("*.so")]


def for_mypyc(source: str, packed: bool) -> str:
    """What mypyc wants said: a dataclass in as many words (it gives slots by itself) with an `__init__` it can compile,
    and, of what is `packed` into snapshots, that it may be made without. It forgets half of the types of fields, and
    journals are read by those: so they are told again, as text.
    """
    module = ast.parse(source)
    classes = [one for one in module.body if isinstance(one, ast.ClassDef) and not one.bases]
    if not classes:
        return source
    lines, first = source.splitlines(keepends=True), next(one for one in module.body if isinstance(one, IMPORTS))
    for one in reversed(classes):
        if is_value(one):
            lines.insert(fields_of(one)[-1].end_lineno or 0, init_of(one))
        if packed:
            begins = min([one.lineno, *(name.lineno for name in one.decorator_list)])
            lines.insert(begins - 1, "@mypyc_attr(allow_interpreted_subclasses=True)\n")
    lines.insert(first.lineno - 1, KNOWN)
    changed = re.sub(r"^@value$", "@dataclass(init=False, unsafe_hash=True)", "".join(lines), flags=re.MULTILINE)
    return changed + "".join(told_again(one) for one in classes if is_value(one))


def is_value(one: ast.ClassDef) -> bool:
    return any(ast.unparse(name) == "value" for name in one.decorator_list)


def fields_of(one: ast.ClassDef) -> list[ast.AnnAssign]:
    return [field for field in one.body if isinstance(field, ast.AnnAssign)]


def init_of(one: ast.ClassDef) -> str:
    asked = [ast.unparse(field) for field in fields_of(one)]
    names = [ast.unparse(field.target) for field in fields_of(one)]
    lines = [
        f"    def __init__(self, {', '.join(asked)}) -> None:",
        *(f"        self.{name} = {name}" for name in names),
    ]
    return "\n" + "\n".join(lines) + "\n"


def told_again(one: ast.ClassDef) -> str:
    types = {ast.unparse(field.target): ast.unparse(field.annotation) for field in fields_of(one)}
    return f"getattr({one.name}, '__annotations__').update({types!r})\n"
