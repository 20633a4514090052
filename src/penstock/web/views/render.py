"""Renders templates and serves static files; both are read from disk once."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from penstock.core.values import value

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}


@value
class File:
    content: bytes
    media_type: str
    digest: str


def page(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    """Everything but `Markup` is escaped, and an undefined name is an error."""
    made = Environment(
        loader=PackageLoader("penstock.web.views"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["asset"] = asset
    return made


def asset(name: str) -> str:
    """The file's URL with a digest of its content, so that browsers may cache it for ever."""
    return f"/static/{name}?{static()[name].digest}"


@cache
def static() -> dict[str, File]:
    """All static files by name; nothing else is served, whatever the path."""
    assets = dict(_found(files("penstock.web.views") / "static", ""))
    assets |= dict(_found(files("penstock") / "assets" / "fonts", "fonts/"))
    tokens = (files("penstock") / "assets" / "tokens.css").read_bytes()  # shared with the reports
    assets["style.css"] = _file(tokens + assets["style.css"].content, TYPES["css"])
    return assets


def _found(folder: Traversable, prefix: str) -> list[tuple[str, File]]:
    made: list[tuple[str, File]] = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            made += _found(path, f"{prefix}{path.name}/")
        elif media_type := TYPES.get(path.name.rpartition(".")[2]):
            made.append((f"{prefix}{path.name}", _file(path.read_bytes(), media_type)))
    return made


def _file(content: bytes, media_type: str) -> File:
    return File(content, media_type, sha256(content).hexdigest()[:12])
