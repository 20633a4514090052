"""The user who applied a home Job, as admission recorded it, as an opaque id. The intake asks for each new Job.

We believe the annotation only where the policy `penstock-users` keeps people from writing it (`penstock manifests
admission`), and only on Jobs created after that policy. The journal never has a name: the id is an HMAC with a key that
stays in our home folder, so one person has one id that no reader of the journal can resolve.
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

CHECKED_SECONDS: Final = 600.0  #: how long we rely on one look at the policy
#: The time until every API server enforces a new policy.
TAKEN_UP: Final = timedelta(seconds=60)
#: Accounts that create Jobs for others: no user is recorded for these.
SYSTEM: Final = "system:serviceaccount:kube-system:"


class RecordedUsers:
    def __init__(self, site: str, cluster: Cluster, key: bytes) -> None:
        self.site, self.cluster, self.key = site, cluster, key
        self.believed_since: datetime | None = None
        self.checked_at: float | None = None  #: by the event loop's clock
        self.checking = asyncio.Lock()

    async def of(self, job: Json) -> str:
        """The opaque id; empty if no user was recorded, or not by a policy that we trust. Raises the cluster's own
        error.
        """
        metadata = part(job, "metadata")
        name = str(part(metadata, "annotations").get(annotations.USER) or "")
        if not name or name.startswith(SYSTEM) or name in CONTROLLERS:
            return ""
        since = await self._since()
        created = datetime.fromisoformat(str(metadata.get("creationTimestamp")))
        return opaque(self.key, self.site, name) if since is not None and created > since else ""

    async def _since(self) -> datetime | None:
        """The instant from which the policy protects the annotation; None if it does not."""
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
        binding_spec = part(binding, "spec")
        holds = binding_spec.get("policyName") == USERS and "Deny" in (binding_spec.get("validationActions") or ())
        if not holds or "matchResources" in binding_spec or part(policy, "spec").get("failurePolicy") == "Ignore":
            return None
        written = [str(part(guard, "metadata").get("creationTimestamp")) for guard in (policy, binding)]
        return max(map(datetime.fromisoformat, written)) + TAKEN_UP


def opaque(key: bytes, site: str, name: str) -> str:
    """The id of a cluster's user: stable, and no name can be read from it."""
    digest = hmac.new(key, f"{site}\0{name}".encode("utf-8", "surrogatepass"), sha256)
    return f"user-{digest.hexdigest()[:12]}"
