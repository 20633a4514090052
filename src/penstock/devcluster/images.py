"""Builds container images without a registry or a builder: OCI archives written with the standard library.

BUSYBOX is a static busybox (also the pause container); PYTHON is Debian's Python on top, with this tree's
`penstock.sdk`. `kubelet_nodes` imports them into every node; pods that use them say `imagePullPolicy: Never`.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import penstock
from penstock.core.errors import BadInput
from penstock.devcluster.programs import Say, cache

BUSYBOX: Final = "penstock.dev/busybox:1"
PYTHON: Final = "penstock.dev/python:3"
#: Debian's dependencies of python3 that no running Python needs.
NOT_NEEDED: Final = re.compile(r"perl|libperl|dpkg|tar$|install-info|mailcap|mime-support|media-types")
LEFT_OUT: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian")
PATH: Final = "PATH=/usr/bin:/bin:/usr/sbin:/sbin"
OCI: Final = "application/vnd.oci.image"
SLEEPS: Final = {"Env": [PATH], "Cmd": ["sleep", "2147483647"]}


def archive(target: Path) -> Path:
    """One file with both images, for `ctr images import`."""
    base, python = layers()
    with tempfile.TemporaryDirectory() as work:
        ours = tarred(Path(work) / "ours.tar", _put_sdk)
        images = {BUSYBOX: [base], PYTHON: [base, python, ours]}
        write_archive(target, images)
    return target


def are_available() -> bool:
    return all(path.exists() for path in layers())


def build(say: Say) -> None:
    """Build the constant layers into the cache."""
    base, python = layers()
    base.parent.mkdir(parents=True, exist_ok=True)
    if not base.exists():
        tarred(base, _put_busybox)
    if not python.exists():
        say("Making an image with Python of Debian's packages: about 12 s")
        tarred(python, _put_python)


def layers() -> tuple[Path, Path]:
    return cache() / "images-2" / "busybox.tar", cache() / "images-2" / "python.tar"


# --- what is in them -------------------------------------------------------------------------------------------------


def _put_busybox(root: Path) -> None:
    program = shutil.which("busybox")
    if program is None:
        raise BadInput("No busybox: apt-get install busybox-static")
    (root / "bin").mkdir()
    shutil.copy(program, root / "bin" / "busybox")
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    for name in set(listed.stdout.split()) - {"busybox"}:
        (root / "bin" / name).symlink_to("busybox")
    (root / "tmp").mkdir(mode=0o1777)
    (root / "etc").mkdir()
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n")


def _put_python(root: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)  # apt downloads as a user of its own
        _run(["apt-get", "download", "-q", *_python_packages()], cwd=work)
        for package in sorted(Path(work).glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(root)])
    for place in LEFT_OUT:
        shutil.rmtree(root / place, ignore_errors=True)
    (root / "usr/bin/python").symlink_to("python3")


def _python_packages() -> list[str]:
    without = [f"--no-{what}" for what in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    output = _run(["apt-cache", "depends", "--recurse", *without, "python3"])
    named = {line.strip() for line in output.splitlines() if line[:1].isalnum()}
    return sorted({name for name in named if not NOT_NEEDED.match(name)} | {"tzdata"})


def _put_sdk(root: Path) -> None:
    """Our current `penstock.sdk`, so that a job in a pod runs the code under test."""
    site = root / "usr/lib/python3/dist-packages"
    ours = Path(penstock.__file__).parent
    shutil.copytree(ours / "sdk", site / "penstock" / "sdk", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ours / "__init__.py", site / "penstock")


def _run(command: Sequence[str], cwd: str | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise BadInput(
            f"The image for real pods is made of Debian's packages, and there is no {command[0]} here."
        ) from None
    except subprocess.CalledProcessError as error:
        raise BadInput(f"{' '.join(command[:3])}: {error.stderr.strip()[-300:]}") from None
    return done.stdout


# --- how they are written: the OCI image layout ----------------------------------------------------------------------


def tarred(target: Path, put: Callable[[Path], None]) -> Path:
    new = target.with_suffix(".new")
    with tempfile.TemporaryDirectory() as work:
        put(Path(work))
        with tarfile.open(new, "w") as made:
            for path in sorted(Path(work).iterdir()):
                made.add(path, path.name, filter=_of_root)
    new.rename(target)
    return target


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def write_archive(target: Path, images: Mapping[str, Sequence[Path]], config: Mapping[str, Any] = SLEEPS) -> None:
    """Each image by its name and layers; all run as `config` says."""
    with tarfile.open(target, "w") as made:
        blobs = _Blobs(made)
        listed = []
        for name, layers in images.items():
            manifest = blobs.add_json(_manifest(blobs, layers, config), f"{OCI}.manifest.v1+json")
            listed.append(manifest | {"annotations": {"io.containerd.image.name": name}})
        blobs.write("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        blobs.write("index.json", json.dumps({"schemaVersion": 2, "manifests": listed}).encode())


def _manifest(blobs: "_Blobs", layers: Sequence[Path], runs: Mapping[str, Any]) -> dict[str, Any]:
    added = [blobs.add_file(layer, f"{OCI}.layer.v1.tar") for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": runs,
        "rootfs": {"type": "layers", "diff_ids": [blob["digest"] for blob in added]},
    }
    about = blobs.add_json(config, f"{OCI}.config.v1+json")
    return {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": about, "layers": added}


class _Blobs:
    """Blobs by digest; each is stored once."""

    def __init__(self, made: tarfile.TarFile) -> None:
        self.made, self.there = made, set[str]()

    def add_json(self, document: dict[str, Any], kind: str) -> dict[str, Any]:
        text = json.dumps(document).encode()
        digest = hashlib.sha256(text).hexdigest()
        self.write(f"blobs/sha256/{digest}", text)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(text)}

    def add_file(self, path: Path, kind: str) -> dict[str, Any]:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest not in self.there:
            self.there.add(digest)
            self.made.add(path, f"blobs/sha256/{digest}")
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": path.stat().st_size}

    def write(self, name: str, text: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        self.made.addfile(entry, io.BytesIO(text))
