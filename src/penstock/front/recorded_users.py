"""Who applied a home Job: the user that admission recorded on it, as an opaque id. The intake asks for each Job.

The annotation is believed only where the policy `penstock-users` keeps people from writing it (`penstock manifests
admission`), and only on Jobs that were created after that. A name never gets into the journal: an id is made of it with
a key that stays in our home folder, so that one person is one id, and nobody who reads the journal can tell whose.
"""

import asyncio
import hmac
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from penstock.kube import annotations
from penstock.kube.client import POLICIES, POLICY_BINDINGS, Cluster
from penstock.kube.errors import Forbidden, NotFound
from penstock.kube.manifests import CONTROLLERS, USERS
from penstock.kube.references import Json, part

CHECKED_SECONDS: Final = 600.0  #: how long we rely on the policy that we saw
#: From when a policy is written until every API server keeps to it.
TAKEN_UP: Final = timedelta(seconds=60)
#: Who creates Jobs for others: whose they are, nobody recorded.
SYSTEM: Final = "system:serviceaccount:kube-system:"


class RecordedUsers:
    def __init__(self, site: str, cluster: Cluster, key: bytes) -> None:
        self.site, self.cluster, self.key = site, cluster, key
        self.believed_since: datetime | None = None
        self.checked_at: float | None = None  #: by the loop's clock
        self.checking = asyncio.Lock()

    async def of(self, job: Json) -> str:
        """An opaque id; empty: nobody was recorded, or not by whom we believe. Raises what the cluster says."""
        metadata = part(job, "metadata")
        name = str(part(metadata, "annotations").get(annotations.USER) or "")
        if not name or name.startswith(SYSTEM) or name in CONTROLLERS:
            return ""
        since = await self._since()
        created = datetime.fromisoformat(str(metadata.get("creationTimestamp")))
        return opaque(self.key, self.site, name) if since is not None and created > since else ""

    async def _since(self) -> datetime | None:
        """From when on the annotation is protected; None: it is not."""
        async with self.checking:
            now = asyncio.get_running_loop().time()
            if self.checked_at is None or now - self.checked_at > CHECKED_SECONDS:
                self.believed_since = await self._look()
                self.checked_at = now
            return self.believed_since

    async def _look(self) -> datetime | None:
        try:
            policy = await self.cluster.get(POLICIES, USERS)
            binding = await self.cluster.get(POLICY_BINDINGS, USERS)
        except (NotFound, Forbidden):
            return None
        said = part(binding, "spec")
        holds = said.get("policyName") == USERS and "Deny" in (said.get("validationActions") or ())
        if not holds or "matchResources" in said or part(policy, "spec").get("failurePolicy") == "Ignore":
            return None
        written = [str(part(guard, "metadata").get("creationTimestamp")) for guard in (policy, binding)]
        return max(map(datetime.fromisoformat, written)) + TAKEN_UP


def opaque(key: bytes, site: str, name: str) -> str:
    """The id of a user of a cluster: always the same, and nobody's name."""
    digest = hmac.new(key, f"{site}\0{name}".encode("utf-8", "surrogatepass"), sha256)
    return f"user-{digest.hexdigest()[:12]}"
