"""What a user sees of a Job at one instant, as flat fields that can be compared. Pure.

Names, namespaces, uids and times differ from run to run: each is replaced by a word that says what it is. A time is
`set` or missing; whether it lies in order is a field of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

Json = dict[str, Any]
Fields = dict[str, Any]

TIMES: Final = ("startTime", "completionTime")
#: Written by the API server about its own storage, or by kubectl.
NOTES: Final = (
    "managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink", "name", "namespace",
    "generateName", "ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Of a pod: what its node decides.
CHOSEN: Final = ("nodeName",)
OF_THE_NODE: Final = "topology.kubernetes.io/"
NAMED_BY: Final = ("name", "key", "mountPath", "type", "conditionType")
UID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
RANDOM: Final = re.compile(r"kube-api-access-[a-z0-9]{5}")
ATTEMPT: Final = re.compile(r"\bj\d+\.\d+\b")


class Names:
    """Words for what is called differently in each run."""

    def __init__(self, job: str, namespace: str, executions: Iterable[str] = ()) -> None:
        self.namespace = namespace
        own = "|".join(re.escape(name) for name in sorted({job, *executions}, key=len, reverse=True))
        self.pod = re.compile(rf"\b(?:{own})(-\d+)?-[a-z0-9]{{5}}\b")
        self.job = re.compile(rf"\b(?:{own})\b")

    def plain(self, text: str) -> str:
        text = UID.sub("UID", text.replace(self.namespace, "NAMESPACE"))
        text = self.job.sub("JOB", self.pod.sub("POD", text))
        return RANDOM.sub("kube-api-access", ATTEMPT.sub("ATTEMPT", text))


def job_fields(job: Json, names: Names) -> Fields:
    """Metadata, spec and status of a Job as its user sees it."""
    metadata = {key: value for key, value in job["metadata"].items() if key not in NOTES}
    metadata["annotations"] = {key: text for key, text in (metadata.get("annotations") or {}).items() if key != APPLIED}
    fields = {**flat(metadata, "metadata"), **flat(job["spec"], "spec"), **status_fields(job.get("status") or {})}
    return {field: _worded(value, names) for field, value in fields.items()}


def status_fields(status: Json) -> Fields:
    rest = {key: value for key, value in status.items() if key not in ("conditions", *TIMES)}
    fields = flat(rest, "status")
    for condition in status.get("conditions") or ():
        for key in ("status", "reason", "message"):
            fields[f"status.conditions.{condition['type']}.{key}"] = condition.get(key, "")
    fields |= {f"status.{key}": "set" for key in TIMES if status.get(key)}
    if all(status.get(key) for key in TIMES):
        fields["status.times"] = "in order" if status["startTime"] <= status["completionTime"] else "out of order"
    return fields


def event_fields(events: Iterable[Json]) -> Fields:
    """By reason: whether it is Normal or a Warning. How often and in which words it is told may differ."""
    return {f"events.{event['reason']}": event.get("type", "") for event in events}


def pod_fields(pod: Json, names: Names) -> Fields:
    """What the program in a pod could notice: labels, annotations, and the whole spec."""
    metadata = {key: pod["metadata"].get(key) or {} for key in ("labels", "annotations")}
    spec = {key: value for key, value in pod["spec"].items() if key not in CHOSEN}
    fields = {**flat(metadata, "pod"), **flat(spec, "pod.spec")}
    fields = {field: value for field, value in fields.items() if OF_THE_NODE not in field}
    return {RANDOM.sub("kube-api-access", field): _worded(value, names) for field, value in fields.items()}


def flat(tree: Any, path: str) -> Fields:
    """`{"a": {"b": 1}}` as `{"path.a.b": 1}`. Items of a list go by their name, key or type, others by number."""
    return dict(_flat(tree, path))


def _flat(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _flat(value, f"{path}.{key}")
    elif isinstance(tree, list) and tree:
        for number, item in enumerate(tree):
            key = _named_by(item)
            inside = {name: value for name, value in item.items() if name != key} if key else item
            yield from _flat(inside or "set", f"{path}.{item[key] if key else number}")
    elif tree not in ({}, [], None):
        yield path, tree


def _named_by(item: Any) -> str:
    """The key that tells items of a list apart; empty: only their number does."""
    return next((key for key in NAMED_BY if item.get(key)), "") if isinstance(item, Mapping) else ""


def _worded(value: Any, names: Names) -> Any:
    return names.plain(value) if isinstance(value, str) else value
