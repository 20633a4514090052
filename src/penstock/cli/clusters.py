"""Shared by commands that talk to a cluster themselves: which cluster, which Job, one request at a time."""

import asyncio
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


def reaches(command: F) -> F:
    """The options that name a cluster, spelt as kubectl has them."""
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
    """One connection, asked and closed. What goes wrong is one sentence."""
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


def manifest_from(path: str) -> Json:
    """One batch/v1 Job. Anything else is said."""
    found = [document for document in documents(path) if document.get("kind") == "Job"]
    if len(found) != 1:
        raise BadInput(f"{path}: the file must hold exactly one Job of batch/v1, and holds {len(found)}.")
    return found[0]


def documents(path: str) -> list[Json]:
    """The objects of a YAML or JSON file; `-` is what comes in by standard input."""
    import yaml

    from penstock.config.document import MAX_BYTES, read_bytes

    raw = sys.stdin.buffer.read(MAX_BYTES + 1) if path == "-" else read_bytes(path)
    if len(raw) > MAX_BYTES:
        raise BadInput(f"{path}: more than {MAX_BYTES:,} bytes; this cannot be a Job.")
    try:
        found = [document for document in yaml.safe_load_all(raw.decode("utf-8-sig")) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not YAML ({' '.join(str(error).split())[:200]}).") from None
    lists = [
        document.get("items") if document.get("kind") == "List" else [document]
        for document in found
        if isinstance(document, dict)
    ]
    flat = [manifest for some in lists for manifest in some or ()]
    if len(lists) != len(found) or not all(isinstance(manifest, dict) for manifest in flat):
        raise BadInput(f"{path}: this is not a Kubernetes object; it needs 'kind' and 'metadata'.")
    return flat


def is_manifest(path: str) -> bool:
    """A Kubernetes object, and not a job file of ours: those have no `kind`."""
    try:
        return any(document.get("kind") for document in documents(path))
    except BadInput:
        return False  # the reader of job files says what is wrong with it
