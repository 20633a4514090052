"""Rented nodes as node pools of GKE, by its REST API with google-auth (`penstock[gke]`). `pools` says what all clouds
have in common.

Each machine has a `maxRunDuration`: Google deletes it then, without us. It is fixed when the pool is made. But a pool
is a group, and whether it makes another machine afterwards is not verified: so a cap is soft there, unless a person who
has seen it writes `guarantee: max_run_time`.

A TPU slice is one node to us, whose pool has a machine for each of its hosts: all of them, or none.

Credentials are Google's own default chain: a pod's identity, the machine's, or a person's login. Penstock stores none.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.capacity.pools import CALL_SECONDS, BlockingPools, CloudPool, PoolExists, PoolOrder
from penstock.core.model.reasons import Shortage
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.kube.node_selection import GkeWay, PoolWay, chips_of, is_zone
from penstock.site_answers import NoCapacity, Refused, Unreachable, check_leads

ENDPOINT: Final = "https://container.googleapis.com"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
RIGHTS: Final = "docs/clouds.md says which rights it needs"
EFFECTS: Final = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}
QUOTA: Final = re.compile(r"GCE_QUOTA|quota", re.IGNORECASE)
STOCK: Final = re.compile(
    r"GCE_STOCKOUT|STOCKOUT|RESOURCE_POOL_EXHAUSTED|does not have enough resources|currently unavailable in the",
    re.IGNORECASE,
)
#: Another operation on this cluster is not done yet: the request was not taken, and is asked again.
BUSY: Final = re.compile(r"incompatible operation|is currently being|operation .* in progress|try again", re.IGNORECASE)


def connect(way: PoolWay) -> BlockingPools:
    import google.auth
    import requests
    from google.auth.exceptions import DefaultCredentialsError
    from google.auth.transport.requests import AuthorizedSession

    assert isinstance(way, GkeWay)
    if way.endpoint.startswith("http:"):
        return GkePools(requests.Session(), way)  # no credentials over plain http
    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])
    except DefaultCredentialsError as error:
        raise Refused(f"Google: no credentials for cluster {way.cluster}; {RIGHTS}: {error}") from error
    session: Any = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # google-auth has no types here
    return GkePools(session, way)


def _leads_or_creates_nothing(request: Any) -> Any:
    """Asked after the login, of each try: somebody may sleep before any of them."""
    if request.method == "POST":
        check_leads()
    return request


class GkePools(BlockingPools):
    def __init__(self, session: Any, way: GkeWay) -> None:
        self.session, self.cluster = session, way.cluster
        self.session.auth = _leads_or_creates_nothing
        cluster = f"projects/{way.project}/locations/{way.location}/clusters/{way.cluster}"
        self.pools = f"{way.endpoint or ENDPOINT}/v1/{cluster}/nodePools"

    def create(self, order: PoolOrder) -> None:
        self._ask("POST", self.pools, {"nodePool": node_pool(order)})

    def get(self, name: str) -> CloudPool | None:
        """A cluster that is not there has the same error as a pool that is not there: its list tells them apart."""
        try:
            return pool_of(self._ask("GET", f"{self.pools}/{name}"))
        except _NotFound:
            return next((pool for pool in self.list() if pool.name == name), None)

    def list(self) -> Sequence[CloudPool]:
        """GKE has one page."""
        try:
            return [pool_of(pool) for pool in self._ask("GET", self.pools).get("nodePools") or ()]
        except _NotFound as error:
            raise Refused(f"{error}; are 'project', 'location' and 'cluster: {self.cluster}' right?") from error

    def delete(self, name: str) -> None:
        try:
            self._ask("DELETE", f"{self.pools}/{name}")
        except _NotFound:
            self.list()

    def _ask(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        import requests
        from google.auth.exceptions import GoogleAuthError

        try:
            answer = self.session.request(method, url, json=body, timeout=CALL_SECONDS)
            payload = answer.json() if answer.content else {}
        except GoogleAuthError as error:
            if getattr(error, "retryable", False):
                raise Unreachable(f"Google: {error}") from error
            raise Refused(f"Google: no credentials for cluster {self.cluster}; {RIGHTS}: {error}") from error
        except (requests.RequestException, ValueError) as error:
            raise Unreachable(f"Google: {error}") from error
        if answer.status_code >= 400:
            raise answer_to(answer.status_code, payload.get("error") if isinstance(payload, dict) else None)
        return payload if isinstance(payload, dict) else {}


class _NotFound(Refused):
    """The pool, or its cluster."""


def node_pool(order: PoolOrder) -> dict[str, Any]:
    """As `nodePools.create` takes it. It never scales, and nobody upgrades or repairs it: it lives for hours."""
    way = order.rent.way
    assert isinstance(way, GkeWay)
    marks = dict(order.marks)
    config: dict[str, Any] = {
        "machineType": order.types[0],
        "labels": dict(order.labels),
        "taints": [{"key": t.key, "value": t.text, "effect": EFFECTS[t.effect]} for t in order.taints],
        "metadata": marks,
        "resourceLabels": {key: text for key, text in marks.items() if re.fullmatch("[a-z0-9_-]{1,63}", text)},
        "oauthScopes": [SCOPE],
        "spot": order.spot,
        "maxRunDuration": f"{max(1, order.lasts_ms // SECOND)}s",
    }
    if way.accelerator:
        config["accelerators"] = [_accelerator(order, way)]
    if way.service_account:
        config["serviceAccount"] = way.service_account
    if way.image:
        config["imageType"] = way.image
    if way.disk_gb:
        config["diskSizeGb"] = way.disk_gb
    pool: dict[str, Any] = {
        "name": order.name,
        # Google makes so many machines in each of its zones: with none named, one in each zone of the cluster.
        "initialNodeCount": hosts(order),
        "locations": [zone_of(order)],
        "config": config,
        "management": {"autoRepair": False, "autoUpgrade": False},
        "autoscaling": {"enabled": False},
    }
    if way.topology and hosts(order) > 1:
        pool["placementPolicy"] = {"type": "COMPACT", "tpuTopology": way.topology}
    return pool


def zone_of(order: PoolOrder) -> str:
    way = order.rent.way
    assert isinstance(way, GkeWay)
    zones = order.rent.zones or ((way.location,) if is_zone(way.location) else ())
    if len(zones) != 1:
        raise Refused(f"a pool of {way.location} has a machine in each zone; name one in 'zones'")
    return zones[0]


def _accelerator(order: PoolOrder, way: GkeWay) -> dict[str, Any]:
    accelerator: dict[str, Any] = {
        "acceleratorType": way.accelerator,
        "acceleratorCount": str(way.accelerators or order.gpus),
        "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
    }
    if order.mig:
        accelerator["gpuPartitionSize"] = order.mig
    return accelerator


def hosts(order: PoolOrder) -> int:
    """Machines of a TPU slice: its chips, as many to a machine as the type has. Anything else is one machine."""
    way = order.rent.way
    assert isinstance(way, GkeWay)
    if not way.topology:
        return 1
    chips, of_host = math.prod(map(int, way.topology.split("x"))), chips_of(order.types[0])
    if chips != order.gpus:
        raise Refused(f"a TPU slice of {way.topology} has {chips} chips, and its offer says {order.gpus} to a node")
    if not of_host or chips % of_host:
        raise Refused(f"{order.types[0]} is no TPU machine type that {way.topology} is made of, like ct5lp-hightpu-4t")
    return chips // of_host


def pool_of(pool: Mapping[str, Any]) -> CloudPool:
    status = str(pool.get("status", ""))
    marks = (pool.get("config") or {}).get("metadata") or {}
    conditions = [c for c in pool.get("conditions") or () if c.get("canonicalCode") != "OK"]
    words = "; ".join(f"{c.get('code', '')}: {c.get('message', '')}" for c in conditions)
    words = f"{words} {pool.get('statusMessage', '')}".strip()
    shortage = shortage_of(words)
    sick = status in ("ERROR", "RUNNING_WITH_ERROR")
    return CloudPool(
        name=str(pool["name"]),
        marks=tuple((str(key), str(text)) for key, text in marks.items()),
        ending=status == "STOPPING",
        failed=sick or (status == "PROVISIONING" and shortage in ("stock_out", "quota")),
        launched=status in ("RUNNING", "RECONCILING"),
        status=words[:500] or (status if sick else ""),
        shortage=shortage or ("settings" if sick else ""),
    )


def shortage_of(words: str) -> Shortage:
    if QUOTA.search(words):
        return "quota"
    return "stock_out" if STOCK.search(words) else ""


def answer_to(code: int, error: Any) -> Exception:
    """A refused request as a site's answer. Google says what is wrong in `status`, and a quota in words alone."""
    fields = error if isinstance(error, dict) else {}
    status = str(fields.get("status", ""))
    words = f"Google: {code} {status}: {str(fields.get('message', ''))[:300]}"
    if status == "ALREADY_EXISTS" or (code == 409 and not status):
        return PoolExists(words)
    if code == 404:
        return _NotFound(words)
    if code == 429 or code >= 500 or BUSY.search(words):
        return Unreachable(words)
    if shortage := shortage_of(words):
        return NoCapacity(words, 4 * HOUR if shortage == "quota" else 5 * MINUTE, shortage)
    if code in (401, 403):
        return Refused(f"{words}; {RIGHTS}")
    return Refused(f"{words}; repair the offer's 'rent'") if code == 400 else Unreachable(words)
