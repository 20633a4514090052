"""Rented nodes as agent pools of AKS, by Azure's SDK (`penstock[aks]`). `pools` says what all clouds have in common.

Nobody but us ends such a node: AKS has no time limit for pools, and a pool replaces a machine that ends. So a cap is
soft there.

Azure answers 409 to much more than "it is there already": no stock, no quota, another operation in progress. Each
answer is read by its code, and a pool that is there is ours only if its tags say so.

Credentials are azure-identity's own default chain: a pod's workload identity, a managed identity, a person's login.
Penstock stores none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from penstock.capacity.pools import CALL_SECONDS, BlockingPools, CloudPool, PoolExists, PoolOrder
from penstock.core.model.reasons import Shortage
from penstock.core.units import HOUR, MINUTE
from penstock.kube.node_selection import AksWay, PoolWay
from penstock.site_answers import NoCapacity, Refused, Unreachable, check_leads

LONGEST_NAME: Final = 12  #: small letters and digits
RIGHTS: Final = "docs/clouds.md says which rights it needs"
QUOTA: Final = re.compile(r"quota", re.IGNORECASE)
STOCK: Final = re.compile(
    r"SkuNotAvailable|AllocationFailed|Overconstrained\w*Allocation|NotAvailableForSubscription", re.IGNORECASE
)
PROFILE: Final = re.compile(r"(?P<slices>[12347])g\.")  #: of a MIG profile; AKS knows no others
ABSENT: Final = ("NotFound", "AgentPoolNotFound", "ResourceNotFound")


def connect(way: PoolWay) -> BlockingPools:
    from azure.core.pipeline.policies import SansIOHTTPPolicy
    from azure.identity import DefaultAzureCredential
    from azure.mgmt.containerservice import ContainerServiceClient

    assert isinstance(way, AksWay)
    more: dict[str, Any] = {"connection_timeout": 5, "read_timeout": CALL_SECONDS, "retry_total": 1}
    more["raw_request_hook"] = _leads_or_creates_nothing
    if way.endpoint:
        more["base_url"] = way.endpoint
    if way.endpoint.startswith("http:"):
        more["authentication_policy"] = SansIOHTTPPolicy()  # no credentials over plain http
    elif way.endpoint:
        more["credential_scopes"] = [f"{way.endpoint.rstrip('/')}/.default"]
    return AksPools(ContainerServiceClient(DefaultAzureCredential(), way.subscription, **more), way)


def _leads_or_creates_nothing(request: Any) -> None:
    """Asked after the login, of each try: an SDK may sleep before any of them."""
    if request.http_request.method == "PUT":
        check_leads()


class AksPools(BlockingPools):
    def __init__(self, client: Any, way: AksWay) -> None:
        self.pools, self.where, self.cluster = client.agent_pools, (way.resource_group, way.cluster), way.cluster

    def create(self, order: PoolOrder) -> None:
        from azure.core import MatchConditions

        absent = {"etag": "*", "match_condition": MatchConditions.IfMissing}
        try:
            with self._errors():
                self.pools.begin_create_or_update(*self.where, order.name, agent_pool(order), polling=False, **absent)
        except _Conflict as error:
            if self.get(order.name) is not None:
                raise PoolExists(str(error)) from error
            raise

    def get(self, name: str) -> CloudPool | None:
        """A cluster that is not there has the same status as a pool that is not there: its list tells them apart."""
        try:
            with self._errors():
                return pool_of(self.pools.get(*self.where, name).as_dict())
        except _NotFound:
            return next((pool for pool in self.list() if pool.name == name), None)

    def list(self) -> Sequence[CloudPool]:
        try:
            with self._errors():
                return [pool_of(pool.as_dict()) for pool in self.pools.list(*self.where)]
        except _NotFound as error:
            raise Refused(f"{error}; are 'subscription', 'resource_group' and 'cluster' right?") from error

    def delete(self, name: str) -> None:
        """A pod that may not be evicted keeps no pool: whoever runs there was told to stop before."""
        try:
            with self._errors():
                self.pools.begin_delete(*self.where, name, polling=False, ignore_pod_disruption_budget=True)
        except _NotFound:
            self.list()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from azure.core import exceptions

        try:
            yield
        except exceptions.ClientAuthenticationError as error:
            raise Refused(f"Azure: no credentials for cluster {self.cluster}; {RIGHTS}: {error.message}") from error
        except exceptions.HttpResponseError as error:
            raise answer_to(error.status_code or 0, _code(error), str(error.message)) from error
        except exceptions.AzureError as error:
            raise Unreachable(f"Azure: {error.message}") from error


class _NotFound(Refused):
    """The pool, or its cluster."""


class _Conflict(Unreachable):
    """A 409 whose code says nothing that we know: it is there already, or busy."""


def _code(error: Any) -> str:
    return str(getattr(getattr(error, "error", None), "code", None) or "")


def agent_pool(order: PoolOrder) -> dict[str, Any]:
    """As `AgentPools - Create Or Update` takes it."""
    way = order.rent.way
    assert isinstance(way, AksWay)
    properties: dict[str, Any] = {
        "mode": "User",
        "count": 1,
        "enableAutoScaling": False,
        "vmSize": order.types[0],
        "osType": "Linux",
        "nodeLabels": dict(order.labels),
        "nodeTaints": [f"{taint.key}={taint.text}:{taint.effect}" for taint in order.taints],
        "tags": dict(order.marks),
        "scaleSetPriority": "Spot" if order.spot else "Regular",
    }
    if order.spot:
        properties |= {"scaleSetEvictionPolicy": "Delete", "spotMaxPrice": -1.0}
    if order.rent.zones:
        properties["availabilityZones"] = list(order.rent.zones)
    if order.mig:
        properties["gpuInstanceProfile"] = mig_profile(order.mig)
    if way.subnets:
        properties["vnetSubnetID"] = way.subnets[0]
    if way.image:
        properties["osSKU"] = way.image
    if way.disk_gb:
        properties["osDiskSizeGB"] = way.disk_gb
    return {"properties": properties}


def mig_profile(profile: str) -> str:
    match = PROFILE.match(profile)
    if match is None:
        raise Refused(f"AKS has no MIG profile {profile}: it cuts GPUs into 1g, 2g, 3g, 4g or 7g")
    return f"MIG{match['slices']}g"


def pool_of(pool: Mapping[str, Any]) -> CloudPool:
    properties = pool.get("properties") or {}
    state = str(properties.get("provisioningState", ""))
    error = (properties.get("status") or {}).get("provisioningError") or {}
    inner = [part for part in (error, *(error.get("details") or ())) if part.get("code")]
    words = "; ".join(f"{part['code']}: {part.get('message', '')}" for part in inner)
    failed = state in ("Failed", "Canceled")
    shortage = shortage_of(words) or ("settings" if failed else "")
    return CloudPool(
        name=str(pool["name"]),
        marks=tuple((properties.get("tags") or {}).items()),
        ending=state == "Deleting",
        failed=failed,
        # Where Azure does not say that there was none, a machine may have been there.
        launched=state == "Succeeded" or (failed and shortage == "settings"),
        status=(words or (state if failed else ""))[:500],
        shortage=shortage,
    )


def shortage_of(words: str) -> Shortage:
    """By Azure's codes; a quota of cores has the code `OperationNotAllowed`, and says it in words."""
    if QUOTA.search(words):
        return "quota"
    return "stock_out" if STOCK.search(words) else ""


def answer_to(status: int, code: str, message: str) -> Exception:
    words = f"Azure: {status} {code}: {message[:300]}"
    if status == 412:
        return PoolExists(words)
    if status == 404:
        return _NotFound(words)
    if shortage := shortage_of(f"{code} {message}"):
        return NoCapacity(words, 4 * HOUR if shortage == "quota" else 5 * MINUTE, shortage)
    if status == 409:
        return _Conflict(words)
    if status in (401, 403):
        return Refused(f"{words}; {RIGHTS}")
    return Refused(f"{words}; repair the offer's 'rent'") if status == 400 else Unreachable(words)
