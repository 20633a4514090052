"""Azure's Resource Manager with one AKS cluster, played over plain http: requests are judged by the SDK's models."""

import datetime as dt
import re
import typing
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from azure.mgmt.containerservice import models

from tests.capacity.played_cloud import Answer, AskApi, PlayedCloud, PlayedPool

SUBSCRIPTION, GROUP, CLUSTER = "0f0f0f0f-0000-0000-0000-000000000001", "lab", "gpu"
PROVIDER = "Microsoft.ContainerService/managedClusters"
ROOT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{PROVIDER}/{CLUSTER}"
POOLS = re.compile(f"{ROOT}/agentPools(?:/(?P<name>[^/?]+))?(?:\\?.*)?")
READ_ONLY = {"provisioningState", "currentOrchestratorVersion", "nodeImageVersion", "eTag"}


def judge(body: Any) -> None:
    """No unknown name, no wrong type, no word that is not in its list, nothing that only Azure may write."""
    assert set(body) == {"properties"}, body
    kind = models.ManagedClusterAgentPoolProfileProperties
    made = kind()
    hints = get_type_hints(kind, {**vars(typing), **vars(models), "_models": models, "datetime": dt})
    fields = {field._rest_name: hints[name] for name, field in made._attr_to_rest_field.items()}
    for key, value in body["properties"].items():
        assert key in fields, key
        assert key not in READ_ONLY, key
        _judge(value, fields[key], key)


def _judge(value: Any, hint: Any, key: str) -> None:
    kinds = [part for part in get_args(hint) or (hint,) if part is not type(None)]
    words = [word.value for part in kinds if hasattr(part, "__members__") for word in part]
    if words:
        assert value in words, f"{key}: {value}"
        return
    plain = [get_origin(part) or part for part in kinds]
    assert isinstance(value, tuple(part for part in plain if isinstance(part, type))), f"{key}: {value!r}"


class PlayedAks(PlayedCloud):
    def __init__(self, nodes: AskApi | None = None, gpus: int = 2, page: int = 2) -> None:
        super().__init__(nodes)
        self.gpus, self.page = gpus, page

    def is_create(self, method: str) -> bool:
        return method == "PUT"

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        assert "authorization" not in headers, "credentials over plain http"
        match = POOLS.fullmatch(path)
        if match is None:
            return error(404, "ResourceNotFound", f"not found: {path}")
        name, shown = match["name"], self.shown()
        if method == "PUT":
            return self._create(name, headers, body)
        if name is None:
            return self._list(path, headers["host"])
        if name not in shown:
            return error(404, "NotFound", f"Could not find the agentpool: {name}")
        if method == "GET":
            return 200, self._shown(shown[name])
        if shown[name].goes_at is not None:
            return error(409, "OperationNotAllowed", "Operation is not allowed: another operation is in progress")
        self.end(name)
        return 202, None

    def _list(self, path: str, host: str) -> Answer:
        """In pages, as Azure does."""
        skip = re.search("skip=([0-9]+)", path)
        start = int(skip[1]) if skip else 0
        pools = [self._shown(pool) for pool in self.shown().values()]
        more = {"nextLink": f"http://{host}{ROOT}/agentPools?skip={start + self.page}"}
        here = pools[start : start + self.page]
        return 200, {"value": here, **(more if start + self.page < len(pools) else {})}

    def _create(self, name: str, headers: Mapping[str, str], body: Any) -> Answer:
        judge(body)
        assert re.fullmatch("[a-z][a-z0-9]{0,11}", name), name
        asked = body["properties"]
        for key, text in asked["tags"].items():
            assert not re.search(r"[<>%&\\?/]", key), key
            assert len(text) <= 256, text
        if name in self.pools:
            if headers.get("if-none-match") == "*":
                return error(412, "PreconditionFailed", "the pool is there")
            self.pools[name].asked = asked  # as Azure does: whoever asks without a condition changes what is there
            return 200, self._shown(self.pools[name])
        comes_at, shown_at = self.times(asked["vmSize"])
        taints = [
            re.fullmatch("(?P<key>[^=]+)=(?P<value>[^:]*):(?P<effect>.+)", taint) for taint in asked["nodeTaints"]
        ]
        self.add(
            PlayedPool(
                name=name,
                asked=asked,
                labels=asked["nodeLabels"],
                taints=[match.groupdict() for match in taints if match],
                resource={"nvidia.com/gpu": str(self.gpus)},
                comes_at=comes_at,
                shown_at=shown_at,
            )
        )
        return 201, self._shown(self.pools[name])

    def _shown(self, pool: PlayedPool) -> dict[str, Any]:
        said = {**pool.asked, "provisioningState": "Succeeded" if pool.made else "Creating"}
        if pool.goes_at is not None:
            said["provisioningState"] = "Deleting"
        elif self.faults.issue is not None:
            code, words = self.faults.issue
            said |= {"provisioningState": "Failed", "status": {"provisioningError": {"code": code, "message": words}}}
        return {"id": f"{ROOT}/agentPools/{pool.name}", "name": pool.name, "properties": said}


def error(status: int, code: str, words: str) -> Answer:
    return status, {"error": {"code": code, "message": words}}
