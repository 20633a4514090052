"""Shared by commands that talk to a cluster themselves: which cluster, which Job, one request at a time."""

import asyncio
import math
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.core.errors import BadInput

if TYPE_CHECKING:
    from penstock.kube.client import Cluster

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Json = dict[str, Any]
MOST_PARTS = 100_000  #: words, lists and keys of a file, each alias written out


def reaches(command: F) -> F:
    """Adds the options that name a cluster, with kubectl's names."""
    options = [
        click.option("--kubeconfig", default="", metavar="FILE", help="As for kubectl.  [default: $KUBECONFIG]"),
        click.option("--context", default="", help="As for kubectl.  [default: the current one]"),
        click.option("-n", "--namespace", default="", help="As for kubectl.  [default: the context's]"),
        click.option(
            "--allow-exec",
            multiple=True,
            metavar="NAME",
            help="A login program the kubeconfig may run, like aws; repeatable.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def ask(where: Json, question: "Callable[[Cluster], Awaitable[T]]") -> T:
    """Connects, asks and closes; an error becomes one sentence."""
    from penstock.kube.access import Access, connect
    from penstock.kube.errors import Forbidden, KubeError

    async def asked() -> T:
        cluster = connect(Access(where["kubeconfig"], where["context"], allow_exec=tuple(where["allow_exec"])))
        try:
            return await question(cluster)
        finally:
            await cluster.close()

    try:
        return asyncio.run(asked())
    except Forbidden as error:
        raise BadInput(f"The cluster does not let you {error.verb} {error.resource}: {error}") from None
    except KubeError as error:
        raise BadInput(f"The cluster says: {error}") from None


def manifest_from(path: str, *, templates: bool = False) -> Json:
    """Reads one Job; with `templates`, also the Job that a CronJob would create. Raises `BadInput` otherwise."""
    from penstock.front.home_kinds import JOB, jobs_in, kind_of

    jobs = [job for document in documents(path) if templates or kind_of(document) == JOB for job in jobs_in(document)]
    if len(jobs) != 1:
        raise BadInput(f"{path}: the file must hold exactly one Job of batch/v1, and holds {len(jobs)}.")
    return jobs[0]


def documents(path: str) -> list[Json]:
    """Reads the objects of a YAML or JSON file; `-` is standard input."""
    parts = [document for text in split(bounded_text(path)) if (document := parsed(text, path)) is not None]
    lists = [
        document.get("items") if document.get("kind") == "List" else [document]
        for document in parts
        if isinstance(document, dict)
    ]
    flat = [manifest for manifests in lists for manifest in manifests or ()]
    if len(lists) != len(parts) or not all(isinstance(manifest, dict) for manifest in flat):
        raise BadInput(f"{path}: this is not a Kubernetes object; it needs 'kind' and 'metadata'.")
    return flat


def bounded_text(path: str) -> str:
    """Reads a file of bounded size as text; `-` is standard input."""
    from penstock.config.document import MAX_BYTES, read_bytes

    raw = sys.stdin.buffer.read(MAX_BYTES + 1) if path == "-" else read_bytes(path)
    if len(raw) > MAX_BYTES:
        raise BadInput(f"{path}: more than {MAX_BYTES:,} bytes; this cannot be a Job.")
    try:
        return raw.decode("utf-8-sig")
    except ValueError as error:
        raise BadInput(f"{path}: not YAML ({' '.join(str(error).split())[:200]}).") from None


def split(text: str) -> list[str]:
    """Splits a file at its `---` lines. Text before the first one is a document if it is not empty."""
    texts = re.split(r"^---(?=\s|$)", text, flags=re.MULTILINE)
    before = [line for line in texts[0].splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return texts if before or len(texts) == 1 else texts[1:]


def parsed(text: str, path: str) -> Any:
    """Parses one YAML document into JSON's types; None if it is empty."""
    import yaml

    from penstock.config.document import LOADER, excess

    try:
        if beyond := excess(text, "Job"):
            raise BadInput(f"{path}: {beyond}.")
        document = yaml.load(text, Loader=LOADER)
    except BadInput:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not YAML ({' '.join(str(error).split())[:200]}).") from None
    _check_is_json([document], path)
    return document


def _check_is_json(documents: list[object], path: str) -> None:
    """Refuses what JSON cannot express, and aliases that contain themselves."""
    left, seen = list(documents), 0
    while left:
        item = left.pop()
        seen += 1
        if seen > MOST_PARTS:
            raise BadInput(f"{path}: more than {MOST_PARTS:,} words, lists and keys; this cannot be a Job.")
        if isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            left += item
        elif not isinstance(item, str | int | float | None) or (isinstance(item, float) and not math.isfinite(item)):
            raise BadInput(f"{path}: {str(item)[:60]!r} is not JSON, as a Job must be; write it as text, in quotes.")


def is_manifest(path: str) -> bool:
    """True for a Kubernetes object; our own job files have no `kind`."""
    try:
        return any(document.get("kind") for document in documents(path))
    except BadInput:
        return False  # the reader of job files says what is wrong with it
