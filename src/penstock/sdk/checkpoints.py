"""Checkpoints in a folder or a bucket, whole or not at all. `penstock.sdk` calls it; nothing else needs to.

A checkpoint is some files and one manifest that lists them with their digests, written last:

    step-000000000180-5f0c.../model        first the files, in a place that nobody has used before
    step-000000000180.json                 then the manifest: from now on there is a checkpoint of step 180

Whoever is killed on the way leaves files that no manifest names; the next `keep` clears them away.
"""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from penstock.sdk.plain_s3 import PlainBucket

MANIFEST: Final = re.compile(r"step-(\d{12})\.json")
BLOCK: Final = 1 << 20


class Damaged(Exception):
    """A checkpoint's file is not what its manifest says."""


class BlobStore(Protocol):
    """Somewhere to put files by name; names have slashes."""

    def put(self, name: str, content: bytes | Path) -> None:
        """All of it or nothing."""

    def blocks(self, name: str) -> Iterator[bytes]: ...

    def names(self) -> list[str]: ...

    def delete(self, name: str) -> None: ...


class Checkpoint:
    def __init__(self, place: BlobStore, manifest: dict[str, Any]) -> None:
        self.place, self.step, self.files = place, int(manifest["step"]), manifest["files"]

    def read(self) -> bytes:
        """What was saved, if that was bytes or a single file."""
        (file,) = self.files
        return b"".join(self._blocks(file))

    def to(self, folder: str | os.PathLike[str]) -> Path:
        """Bring all its files into a folder: beside first, so that a folder of this name is always whole."""
        target = Path(folder)
        aside = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
        for file in self.files:
            path = aside / file["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as out:
                out.writelines(self._blocks(file))
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
        return target

    def _blocks(self, file: dict[str, Any]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for block in self.place.blocks(file["key"]):
            digest.update(block)
            yield block
        if digest.hexdigest() != file["sha256"]:
            raise Damaged(f"{file['key']} of the checkpoint of step {self.step} is damaged; delete its manifest")


class CheckpointStore:
    def __init__(self, place: BlobStore) -> None:
        self.place = place

    def save(self, step: int, content: bytes | Path) -> None:
        stem = f"step-{step:012d}"
        parts = list(_parts(content))
        if not parts:
            raise ValueError(f"{content!r} has no files: there is nothing to save")
        folder = f"{stem}-{uuid.uuid4().hex}"
        files = []
        for name, part in parts:
            key = f"{folder}/{name}"
            self.place.put(key, part)
            files.append({"name": name, "key": key, "sha256": _digest(part)})
        self.place.put(f"{stem}.json", json.dumps({"step": step, "files": files}).encode())

    def latest(self) -> Checkpoint | None:
        newest = max(self._manifests(), default=None)
        return None if newest is None else Checkpoint(self.place, self._manifest(newest))

    def keep(self, count: int) -> None:
        """The newest stay. A manifest goes before its files, so that what is listed is always whole."""
        manifests = sorted(self._manifests(), reverse=True)
        for name in manifests[max(1, count) :]:
            self.place.delete(name)
        used = {file["key"] for name in manifests[: max(1, count)] for file in self._manifest(name)["files"]}
        for name in self.place.names():
            if name.startswith("step-") and "/" in name and name not in used:
                self.place.delete(name)

    def _manifests(self) -> list[str]:
        return [name for name in self.place.names() if MANIFEST.fullmatch(name)]

    def _manifest(self, name: str) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(b"".join(self.place.blocks(name)))
        return manifest


def _parts(content: bytes | Path) -> Iterator[tuple[str, bytes | Path]]:
    if isinstance(content, bytes):
        yield "checkpoint", content
    elif content.is_dir():
        for path in sorted(content.rglob("*")):
            if path.is_file():
                yield path.relative_to(content).as_posix(), path
    else:
        yield content.name, content


def _digest(part: bytes | Path) -> str:
    if isinstance(part, bytes):
        return hashlib.sha256(part).hexdigest()
    with part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- the places -----------------------------------------------------------------------------------------------------


def place(url: str) -> BlobStore:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderBlobs(Path(unquote(parts.path)))
    if not _obstore_will_do():
        if parts.scheme != "s3":
            raise ImportError(f"{parts.scheme}:// needs obstore 0.10 or newer: pip install 'obstore>=0.10'")
        return PlainBucket(parts.netloc, parts.path.strip("/"))
    return BucketBlobs(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"))


def _obstore_will_do() -> bool:
    """A job brings its own packages. Before 0.10, obstore lists names with `%` escaped once more."""
    try:
        return tuple(map(int, importlib.metadata.version("obstore").split(".")[:2])) >= (0, 10)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


class FolderBlobs:
    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, name: str, content: bytes | Path) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with aside.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, BLOCK)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        _sync(path.parent)

    def blocks(self, name: str) -> Iterator[bytes]:
        with (self.root / name).open("rb") as file:
            while block := file.read(BLOCK):
                yield block

    def names(self) -> list[str]:
        return [path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()]

    def delete(self, name: str) -> None:
        path = self.root / name
        path.unlink(missing_ok=True)
        if path.parent != self.root and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _sync(folder: Path) -> None:
    """A rename is on the disk when its folder is."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class BucketBlobs:
    """An object store: `s3://`, and whatever else obstore knows. It takes its access from the usual variables."""

    def __init__(self, bucket: str, prefix: str) -> None:
        import obstore
        from obstore.store import from_url

        plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        self.obstore, self.prefix = obstore, prefix
        self.store = from_url(bucket, client_options={"allow_http": plain})

    def put(self, name: str, content: bytes | Path) -> None:
        self.obstore.put(self.store, self._key(name), content)

    def blocks(self, name: str) -> Iterator[bytes]:
        for block in self.obstore.get(self.store, self._key(name)).stream(min_chunk_size=BLOCK):
            yield bytes(block)

    def names(self) -> list[str]:
        rows = [row for chunk in self.obstore.list(self.store, prefix=self.prefix) for row in chunk]
        return [row["path"].removeprefix(f"{self.prefix}/") for row in rows]

    def delete(self, name: str) -> None:
        self.obstore.delete(self.store, self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"
