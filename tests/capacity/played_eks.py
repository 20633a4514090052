"""EKS as moto plays it, behind a proxy of ours: it keeps tokens, judges requests by botocore's own description of EKS,
and gives groups a life: they start, fail and end after a while.
"""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape
from moto.core.botocore_stubber import BotocoreStubber
from moto.eks.models import eks_backends

from tests.capacity.played_cloud import Answer, AskApi, PlayedCloud, PlayedPool

REGION, CLUSTER, ROLE = "eu-central-1", "gpu", "arn:aws:iam::123456789012:role/nodes"
GROUP = re.compile(f"/clusters/{CLUSTER}/node-groups(?:/(?P<name>[^/?]+))?")
DESCRIBED = ServiceModel(Loader().load_service_model("eks", "service-2"))


class PlayedEks(PlayedCloud):
    def __init__(self, nodes: AskApi | None = None, gpus: int = 2) -> None:
        super().__init__(nodes)
        self.gpus, self.tokens = gpus, dict[str, tuple[Any, Answer]]()
        eks_backends.reset()
        backend = eks_backends["123456789012"][REGION]
        backend.create_cluster(CLUSTER, ROLE, {"subnetIds": ["subnet-1"]})

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        match = GROUP.match(path)
        if match is None:  # moto breaks at the list of a cluster that is not there
            return 404, _error("ResourceNotFoundException", f"No cluster found: {path}")
        name = match["name"]
        if method == "POST":
            return self._create(path, headers, body)
        if name and name not in self.shown():
            return 404, _missing(name)
        if method == "DELETE" and name:
            return self._delete(name, path, headers)
        status, said = self._moto(method, path, headers, body)
        if status == 200 and name:
            said["nodegroup"].update(self._life(self.pools[name]))
        elif status == 200:
            said["nodegroups"] = [name for name in said["nodegroups"] if name in self.shown()]
        return status, said

    def _create(self, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        judge(DESCRIBED.operation_model("CreateNodegroup").input_shape, {**body, "clusterName": CLUSTER})
        token = body["clientRequestToken"]
        if token in self.tokens:
            was, answer = self.tokens[token]
            return answer if was == body else (400, _error("InvalidParameterException", "another request, same token"))
        answer = self._moto("POST", path, headers, body)
        if answer[0] == 200:
            self.tokens[token] = (body, answer)
            comes_at, shown_at = self.times(body["instanceTypes"][0])
            self.add(
                PlayedPool(
                    name=body["nodegroupName"],
                    asked=body,
                    labels=body["labels"],
                    taints=[{**taint, "effect": _effect(taint["effect"])} for taint in body["taints"]],
                    resource={"nvidia.com/gpu": str(self.gpus)},
                    comes_at=comes_at,
                    shown_at=shown_at,
                )
            )
        return answer

    def _delete(self, name: str, path: str, headers: Mapping[str, str]) -> Answer:
        if self.pools[name].goes_at is not None:
            return 409, _error("ResourceInUseException", f"{name} is being deleted")
        status, said = self._moto("GET", path, headers, None)
        self.end(name)
        return status, said

    def provider_id(self, name: str) -> str:
        return f"aws:///{REGION}a/{instance_of(name)}"

    def forget(self, pool: PlayedPool) -> None:
        super().forget(pool)
        eks_backends["123456789012"][REGION].delete_nodegroup(CLUSTER, pool.name)

    def tag(self, name: str, tags: dict[str, str]) -> None:
        group = eks_backends["123456789012"][REGION].describe_nodegroup(CLUSTER, name)
        group.tags.update(tags)

    def _life(self, pool: PlayedPool) -> dict[str, Any]:
        if pool.goes_at is not None:
            return {"status": "DELETING"}
        if self.faults.issue is not None:
            code, words = self.faults.issue
            return {"status": "CREATE_FAILED", "health": {"issues": [{"code": code, "message": words}]}}
        return {"status": "ACTIVE" if pool.made else "CREATING", "health": {"issues": []}}

    def _moto(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        url = f"https://eks.{REGION}.amazonaws.com{path}"
        raw = b"" if body is None else json.dumps(body).encode()
        told = BotocoreStubber().process_request(AWSPreparedRequest(method, url, HeadersDict(headers), raw, False))
        assert told is not None
        status, told_headers, said = told
        parsed = json.loads(said)
        if status >= 400:
            parsed.setdefault("code", told_headers.get("X-Amzn-ErrorType"))
        return status, parsed


def instance_of(node: str) -> str:
    """The id of a Node's machine at EC2."""
    return f"i-{sha256(node.encode()).hexdigest()[:17]}"


def judge(shape: Shape | None, value: Any, at: str = "") -> None:
    """By EKS' own description, all of it: botocore itself lets unknown names, long texts and wrong words pass."""
    assert shape is not None
    match shape.type_name:
        case "structure":
            assert set(value) <= set(shape.members), f"{at}: {set(value) - set(shape.members)}"
            assert set(shape.required_members) <= set(value), f"{at}: {set(shape.required_members) - set(value)}"
            for key, part in value.items():
                judge(shape.members[key], part, f"{at}.{key}")
        case "list":
            assert isinstance(value, list), at
            for part in value:
                judge(shape.member, part, at)
        case "map":
            for key, part in value.items():
                judge(shape.key, key, f"{at} key")
                judge(shape.value, part, f"{at}.{key}")
        case "string":
            assert isinstance(value, str), at
            assert shape.metadata.get("min", 0) <= len(value) <= shape.metadata.get("max", 10_000), f"{at}: {value}"
            assert value in (getattr(shape, "enum", None) or [value]), f"{at}: {value}"
        case "integer":
            assert isinstance(value, int), at
            assert value >= shape.metadata.get("min", value), at
        case other:
            raise AssertionError(f"{at}: {other}")


def _effect(text: str) -> str:
    return {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}[text]


def _error(code: str, words: str) -> dict[str, str]:
    return {"__type": code, "code": code, "message": words}


def _missing(name: str) -> dict[str, str]:
    return {**_error("ResourceNotFoundException", f"No node group found for name: {name}."), "nodegroupName": name}
