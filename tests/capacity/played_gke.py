"""GKE, played: Google's own description of its API (container.v1.json) judges every request, as a strict schema."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from tests.capacity.played_cloud import Answer, AskApi, PlayedCloud, PlayedPool

PROJECT, LOCATION, CLUSTER = "lab-1", "europe-west4-a", "gpu"
POOLS = re.compile(f"/v1/projects/{PROJECT}/locations/{LOCATION}/clusters/{CLUSTER}/nodePools(?:/(?P<name>[^/?]+))?")
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
A_POOL = re.compile("[a-z]([a-z0-9-]{0,38}[a-z0-9])?")


@cache
def schemas() -> dict[str, Any]:
    document = files("googleapiclient") / "discovery_cache" / "documents" / "container.v1.json"
    found: dict[str, Any] = json.loads(document.read_text("utf-8"))["schemas"]
    return found


def judge(value: Any, schema: Mapping[str, Any], at: str = "") -> None:
    """By a discovery document's schema: no unknown name, no wrong type, no word that is not in its list."""
    if "$ref" in schema:
        schema = schemas()[schema["$ref"]]
    match schema.get("type"):
        case "object" if "additionalProperties" in schema:
            for key, part in value.items():
                judge(part, schema["additionalProperties"], f"{at}.{key}")
        case "object":
            assert isinstance(value, dict), at
            unknown = set(value) - set(schema.get("properties", {}))
            assert not unknown, f"{at}: {unknown}"
            for key, part in value.items():
                judge(part, schema["properties"][key], f"{at}.{key}")
        case "array":
            assert isinstance(value, list), at
            for part in value:
                judge(part, schema["items"], at)
        case "string":
            assert isinstance(value, str), f"{at}: {value!r}"
            assert value in schema.get("enum", [value]), f"{at}: {value}"
            patterns = {"int64": "-?[0-9]+", "google-duration": r"[0-9]+(\.[0-9]{1,9})?s"}
            assert re.fullmatch(patterns.get(schema.get("format", ""), ".*"), value, re.DOTALL), f"{at}: {value}"
        case "boolean":
            assert isinstance(value, bool), at
        case "integer":
            assert isinstance(value, int), at
            assert not isinstance(value, bool), at
        case other:
            raise AssertionError(f"{at}: {other}")


class PlayedGke(PlayedCloud):
    def __init__(self, nodes: AskApi | None = None, gpus: int = 2) -> None:
        super().__init__(nodes)
        self.gpus = gpus

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        assert "authorization" not in headers, "credentials over plain http"
        match = POOLS.fullmatch(path)
        if match is None:
            return error(404, "NOT_FOUND", f"Not found: {path}")
        if method == "POST":
            return self._create(body)
        shown = self.shown()
        if match["name"] is None:
            return 200, {"nodePools": [self._shown(pool) for pool in shown.values()]} if shown else {}
        if match["name"] not in shown:
            return error(404, "NOT_FOUND", f"Not found: {path}.")
        if method == "GET":
            return 200, self._shown(shown[match["name"]])
        if shown[match["name"]].goes_at is not None:
            return error(400, "FAILED_PRECONDITION", "Cluster is running incompatible operation operation-1.")
        self.end(match["name"])
        return 200, {"name": "operation-2", "operationType": "DELETE_NODE_POOL", "status": "RUNNING"}

    def _create(self, body: Any) -> Answer:
        judge(body, schemas()["CreateNodePoolRequest"])
        asked = body["nodePool"]
        assert A_POOL.fullmatch(asked["name"]), asked["name"]
        for key, text in asked["config"]["resourceLabels"].items():
            assert re.fullmatch("[a-z][a-z0-9_-]{0,62}", key), key
            assert re.fullmatch("[a-z0-9_-]{0,63}", text), text
        if asked["name"] in self.pools:
            return error(409, "ALREADY_EXISTS", f"Already exists: {asked['name']}.")
        comes_at, shown_at = self.times(asked["config"]["machineType"])
        count = asked["initialNodeCount"]
        resource = "google.com/tpu" if "tpu" in asked["config"]["machineType"] else "nvidia.com/gpu"
        self.add(
            PlayedPool(
                name=asked["name"],
                asked=asked,
                labels=asked["config"]["labels"],
                taints=[{**taint, "effect": EFFECTS[taint["effect"]]} for taint in asked["config"]["taints"]],
                resource={resource: str(self.gpus // count)},
                comes_at=comes_at,
                shown_at=shown_at,
                nodes=count,
            )
        )
        return 200, {"name": "operation-1", "operationType": "CREATE_NODE_POOL", "status": "RUNNING"}

    def _shown(self, pool: PlayedPool) -> dict[str, Any]:
        said = {**pool.asked, "status": "RUNNING" if pool.made else "PROVISIONING"}
        if pool.goes_at is not None:
            said["status"] = "STOPPING"
        elif self.faults.issue is not None:
            code, words = self.faults.issue
            said |= {"status": "ERROR", "conditions": [{"code": code, "message": words}]}
        judge(said, schemas()["NodePool"])
        return said


def error(code: int, status: str, words: str) -> Answer:
    return code, {"error": {"code": code, "status": status, "message": words}}
