"""Rented nodes as managed node groups of EKS, by boto3 (`penstock[eks]`). `pools` says what all clouds have in common.

Nobody but us ends such a node: EKS has no time limit for node groups, and a group replaces a machine that ends. So a
cap is soft there.

Credentials are boto3's own default chain: a pod's identity (EKS Pod Identity, IRSA), a role, a profile. Penstock stores
none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final

from penstock.capacity.machine_notices import NoticeQueue
from penstock.capacity.pools import CALL_SECONDS, BlockingPools, CloudPool, PoolExists, PoolOrder
from penstock.capacity.spot_queue import SpotQueue, endpoint_of
from penstock.core.model.reasons import Shortage
from penstock.core.units import HOUR
from penstock.kube.annotations import node_name
from penstock.kube.gpu_models import mig_config
from penstock.kube.node_selection import EksWay, PoolWay
from penstock.site_answers import NoCapacity, Refused, Unreachable, check_leads

EFFECTS: Final = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}
RIGHTS: Final = "docs/clouds.md says which rights it needs"
#: Answers that say that our account may not, or is nobody.
DENIED: Final = {
    "AccessDeniedException",
    "AccessDenied",
    "UnrecognizedClientException",
    "ExpiredTokenException",
    "ExpiredToken",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
}
WRONG: Final = {"InvalidParameterException", "InvalidRequestException", "ClientException", "ValidationException"}
#: Wrong at this moment. A token is our own: it means that the group is there, and not shown yet.
PASSES: Final = re.compile("in progress|updating|is being|token", re.IGNORECASE)
#: In the words of an issue. A quota first: `InsufficientInstanceCapacity` may stand beside it.
QUOTA: Final = re.compile(
    r"VcpuLimitExceeded|InstanceLimitExceeded|MaxSpotInstanceCountExceeded|quota|vCPU limit", re.IGNORECASE
)
STOCK: Final = re.compile(
    r"InsufficientInstanceCapacity|UnfulfillableCapacity|InsufficientReservedInstanceCapacity|SpotMaxPriceTooLow"
    r"|no Spot capacity|sufficient \S+ capacity|Insufficient(Host)?Capacity|Unsupported - Your requested instance type",
    re.IGNORECASE,
)
#: Issues by what they mean. Any other one, such as a missing subnet or role, wants a person.
ISSUES: Final[dict[str, Shortage]] = {
    "InstanceLimitExceeded": "quota",
    "LimitExceeded": "quota",
    "IamLimitExceeded": "quota",
    "Ec2LaunchTemplateMaxLimitExceeded": "quota",
    "Ec2LaunchTemplateVersionMaxLimitExceeded": "quota",
    "AsgInstanceLaunchFailures": "stock_out",
}
#: Issues that pass by themselves.
PASSING: Final = {
    "InternalFailure",
    "IamThrottling",
    "AutoScalingGroupRateLimitExceeded",
    "ClusterUnreachable",
    "Unknown",
}
JOINS: Final = {"NodeCreationFailure"}  #: a machine is there, and does not join


def connect(way: PoolWay) -> BlockingPools:
    import boto3
    from botocore.config import Config

    assert isinstance(way, EksWay)
    patience = Config(
        connect_timeout=5, read_timeout=CALL_SECONDS, retries={"total_max_attempts": 2, "mode": "standard"}
    )
    session = boto3.session.Session(region_name=way.region)
    client = session.client("eks", config=patience, endpoint_url=way.endpoint or None)
    # Asked after the login, of each try: an SDK may sleep before any of them.
    client.meta.events.register("before-send.eks.CreateNodegroup", lambda **_: check_leads())
    return EksPools(client, way.cluster)


def queue_of(way: PoolWay) -> NoticeQueue | None:
    """Where EC2 says which machines it takes away, if the offer names it."""
    assert isinstance(way, EksWay)
    url, region = way.notices, way.region
    return NoticeQueue(url, lambda: _connect_queue(url, region)) if url else None


def _connect_queue(url: str, region: str) -> SpotQueue:
    import boto3
    from botocore.config import Config

    patience = Config(connect_timeout=5, read_timeout=CALL_SECONDS, retries={"total_max_attempts": 2})
    client = boto3.session.Session(region_name=region).client("sqs", config=patience, endpoint_url=endpoint_of(url))
    return SpotQueue(client, url, lambda: aws_errors("the queue of notices"))


class EksPools(BlockingPools):
    def __init__(self, client: Any, cluster: str) -> None:
        self.client, self.cluster = client, cluster

    def create(self, order: PoolOrder) -> None:
        try:
            with aws_errors(f"cluster {self.cluster}"):
                self.client.create_nodegroup(**node_group(order, self.cluster))
        except (Refused, Unreachable) as error:
            # Asked again it says another time of asking, under the same token: EKS may call that a wrong parameter.
            if self.get(order.name) is not None:
                raise PoolExists(str(error)) from error
            raise

    def get(self, name: str) -> CloudPool | None:
        """A cluster that is not there has the same error as a group that is not there: its list tells them apart."""
        for _ in range(2):  # it may come up between the two questions
            try:
                with aws_errors(f"cluster {self.cluster}"):
                    answer = self.client.describe_nodegroup(clusterName=self.cluster, nodegroupName=name)
                return pool_of(answer["nodegroup"])
            except _NotFound:
                if name not in self._names():
                    return None
        raise Unreachable(f"AWS: node group {name} is listed, and not shown")

    def list(self) -> Sequence[CloudPool]:
        pools = [self.get(name) for name in self._names() if name.startswith(node_name(""))]
        return [pool for pool in pools if pool is not None]

    def _names(self) -> Sequence[str]:
        try:
            with aws_errors(f"cluster {self.cluster}"):
                pages = self.client.get_paginator("list_nodegroups").paginate(clusterName=self.cluster)
                return [str(name) for page in pages for name in page["nodegroups"]]
        except _NotFound as error:
            raise Refused(f"{error}; are 'region' and 'cluster: {self.cluster}' right?") from error

    def delete(self, name: str) -> None:
        try:
            with aws_errors(f"cluster {self.cluster}"):
                self.client.delete_nodegroup(clusterName=self.cluster, nodegroupName=name)
        except _NotFound:
            self._names()
        except PoolExists:
            """Another operation is under way: whoever waits for its end asks again."""


class _NotFound(Refused):
    """The group, or its cluster."""


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """AWS' errors as a site's answers. `what`: whom it was asked about."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        raise answer_to(error.response) from error
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.ProfileNotFound,
    ) as error:
        raise Refused(f"AWS: no credentials for {what}; {RIGHTS}: {error}") from error
    except exceptions.ParamValidationError as error:
        raise Refused(f"AWS does not take it; repair the offer's 'rent': {error}") from error
    except exceptions.BotoCoreError as error:
        raise Unreachable(f"AWS: {error}") from error


def node_group(order: PoolOrder, cluster: str) -> dict[str, Any]:
    """As `CreateNodegroup` takes it. One node, neither more nor fewer: whatever scales groups leaves it alone."""
    way = order.rent.way
    assert isinstance(way, EksWay)
    labels = {**mig_config(order.mig), **dict(order.labels)}
    taints = [{"key": taint.key, "value": taint.text, "effect": EFFECTS[taint.effect]} for taint in order.taints]
    asked: dict[str, Any] = {
        "clusterName": cluster,
        "nodegroupName": order.name,
        "scalingConfig": {"minSize": 1, "maxSize": 1, "desiredSize": 1},
        "subnets": list(way.subnets),
        "instanceTypes": list(order.types),
        "nodeRole": way.node_role,
        "labels": labels,
        "taints": taints,
        "capacityType": "SPOT" if order.spot else "ON_DEMAND",
        "tags": dict(order.marks),
        # Of the name alone: with a time in it, a repeated request would be another one.
        "clientRequestToken": sha256(f"{cluster}/{order.name}".encode()).hexdigest()[:64],
    }
    if way.image:
        asked["amiType"] = way.image
    if way.disk_gb:
        asked["diskSize"] = way.disk_gb
    return asked


def pool_of(group: Mapping[str, Any]) -> CloudPool:
    status = str(group.get("status", ""))
    issues = [issue for issue in (group.get("health") or {}).get("issues") or () if issue.get("code") not in PASSING]
    code, words = (str(issues[0].get("code")), str(issues[0].get("message", ""))) if issues else ("", "")
    refused = bool(issues) and status in ("CREATING", "CREATE_FAILED")
    return CloudPool(
        name=str(group["nodegroupName"]),
        marks=tuple((group.get("tags") or {}).items()),
        ending=status == "DELETING",
        failed=status == "CREATE_FAILED" or refused,
        launched=status in ("ACTIVE", "DEGRADED", "UPDATING") or code in JOINS,
        status=f"{code}: {words}"[:500] if code else "" if status in ("CREATING", "ACTIVE") else status,
        shortage=shortage_of(code, words),
    )


def shortage_of(code: str, words: str) -> Shortage:
    """What an issue means. Launch failures have the reason in their words alone."""
    if not code:
        return ""
    if QUOTA.search(words):
        return "quota"
    if code == "AsgInstanceLaunchFailures":
        return "stock_out" if STOCK.search(words) else "settings"
    return ISSUES.get(code, "settings")


def answer_to(answer: Mapping[str, Any]) -> Exception:
    """A refused request as a site's answer."""
    error = answer.get("Error", {})
    code, words = str(error.get("Code", "")), f"AWS: {error.get('Code')}: {str(error.get('Message', ''))[:300]}"
    if code == "ResourceInUseException":
        return PoolExists(words)
    if code == "ResourceLimitExceededException":
        return NoCapacity(words, 4 * HOUR, "quota")
    if code in DENIED:
        return Refused(f"{words}; {RIGHTS}")
    if code == "ResourceNotFoundException":
        return _NotFound(words)
    if code in WRONG and not PASSES.search(words):
        return Refused(f"{words}; repair the offer's 'rent'")
    return Unreachable(words)
