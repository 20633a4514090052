"""What a changed manifest changes: the merge patch of a re-apply, and the difference that people read. Pure. `applying`
calls it.

As `kubectl apply` does it, an annotation keeps the manifest as it was last applied. So what others write to the object
stays, and what a person takes out of the manifest goes.
"""

import difflib
import json
from typing import Any, Final

import yaml

from penstock.kube.references import Json, part

LAST: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Metadata that the server writes with every change.
SERVERS: Final = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
HIDDEN: Final = "***"


def last_applied(live: Json) -> Json:
    """The manifest as it was last applied; empty if nobody applied it."""
    try:
        manifest = json.loads(part(part(live, "metadata"), "annotations").get(LAST, "{}"))
    except ValueError:
        return {}
    return manifest if isinstance(manifest, dict) else {}


def noted(manifest: Json, written: Json) -> Json:
    """`manifest` with a note of what was `written` by its author."""
    metadata = part(manifest, "metadata")
    text = json.dumps(_without_note(written), separators=(",", ":")) + "\n"
    return {**manifest, "metadata": {**metadata, "annotations": {**part(metadata, "annotations"), LAST: text}}}


def merge_patch(last: Json, new: Json, live: Json) -> Json:
    """The patch that makes `live` what `new` says, without what only `last` says. A list is one thing: it is sent if
    its author changed it, and the server says whether that makes a difference.
    """
    patch: Json = {key: None for key in last if key not in new and key in live}
    for key, wanted in new.items():
        if wanted is None:
            continue
        current, before = live.get(key), last.get(key)
        if isinstance(wanted, dict):
            inner = merge_patch(_dict(before), wanted, _dict(current))
            patch.update({key: inner} if inner or not isinstance(current, dict) else {})
        elif wanted != (before if isinstance(wanted, list) else current):
            patch[key] = wanted
    return patch


def difference(live: Json, then: Json, name: str) -> str:
    """A unified diff; empty if nothing changes that a person wrote. Values of Secrets are not shown."""
    before, after = _readable(live), _readable(then)
    if before == after:
        return ""
    if live.get("kind") == "Secret":
        _hide(before, after)
    lines = difflib.unified_diff(
        yaml.safe_dump(before).splitlines(),
        yaml.safe_dump(after).splitlines(),
        f"live/{name}",
        f"applied/{name}",
        "",
        "",
        3,
        "",
    )
    return "\n".join(lines)


def _readable(obj: Json) -> Json:
    bare = _without_note(obj)
    metadata = {key: inner for key, inner in part(bare, "metadata").items() if key not in SERVERS}
    return {**{key: inner for key, inner in bare.items() if key != "status"}, "metadata": metadata}


def _without_note(obj: Json) -> Json:
    metadata = part(obj, "metadata")
    if LAST not in part(metadata, "annotations"):
        return obj
    notes = {key: text for key, text in metadata["annotations"].items() if key != LAST}
    return {**obj, "metadata": {**metadata, "annotations": notes}}


def _hide(before: Json, after: Json) -> None:
    for key in ("data", "stringData"):
        old, new = part(before, key), part(after, key)
        for holder, other, word in ((before, new, "before"), (after, old, "after")):
            shown = {
                name: HIDDEN if other.get(name) == text else f"{HIDDEN} ({word})"
                for name, text in part(holder, key).items()
            }
            holder.update({key: shown} if shown else {})


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
