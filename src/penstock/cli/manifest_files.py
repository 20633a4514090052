"""Reads manifests as `kubectl -f` does: files, folders, standard input, several documents in one, lists in lists. What
cannot be read is a document, too, with what is wrong and where.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.cli.clusters import bounded_text, parsed, split
from penstock.core.errors import BadInput

Json = dict[str, Any]
ENDINGS: Final = (".json", ".yaml", ".yml")


@dataclass(slots=True)
class ManifestDocument:
    """One object. `error`: why there is none; the rest of its file was not read."""

    place: str  # "job.yaml, document 2"
    manifest: Json = field(default_factory=dict)
    error: str = ""


def documents(paths: Iterable[str], *, recursive: bool = False) -> Iterator[ManifestDocument]:
    """All objects in the order of the paths."""
    for path in paths:
        for file in _files(path, recursive=recursive):
            yield from _of_file(file)


def _files(path: str, *, recursive: bool) -> list[str]:
    """A folder's files by name; with `recursive`, those of its folders, too."""
    if path == "-" or not os.path.isdir(path):
        return [path]
    paths = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        paths += [os.path.join(folder, name) for name in sorted(names) if name.endswith(ENDINGS)]
        if not recursive:
            break
    if not paths:
        raise BadInput(f"{path}: no file in this folder ends in {', '.join(ENDINGS)}.")
    return paths


def _of_file(path: str) -> Iterator[ManifestDocument]:
    """One document after another, up to the first that is not YAML."""
    name = "standard input" if path == "-" else path
    try:
        texts = split(bounded_text(path))
    except BadInput as error:
        yield ManifestDocument(name, error=str(error).removeprefix(f"{path}: "))
        return
    for number, text in enumerate(texts, start=1):
        place = f"{name}, document {number}"
        try:
            document = parsed(text, name)
        except BadInput as error:
            last = "" if number == len(texts) else " The documents after it in this file were not read."
            yield ManifestDocument(place, error=str(error).removeprefix(f"{name}: ") + last)
            return
        if document is not None:
            yield from _objects(document, place)


def _objects(document: object, place: str) -> Iterator[ManifestDocument]:
    """The object itself, or the items of a list."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        yield ManifestDocument(
            place, error="this is not a Kubernetes object; it needs 'apiVersion', 'kind' and 'metadata'."
        )
    elif document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for k, item in enumerate(document["items"], start=1):
            yield from _objects(item, f"{place}, item {k}")
    else:
        yield ManifestDocument(place, document)
