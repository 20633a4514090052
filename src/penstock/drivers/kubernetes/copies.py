"""ConfigMaps and Services that are copied to where a home Job runs. `start` makes them.

A copy belongs to every execution Job that uses it, also to those of another installation in the same namespace: the
cluster deletes the copy when the last of them is gone.
"""

from contextlib import suppress

from penstock.drivers.kubernetes import host_names
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.kube import errors
from penstock.kube.client import CONFIG_MAPS, SERVICES, Obj


async def ensure(here: Connection, copy: Obj, namespace: str) -> bool:
    """Create the copy before the Job, whose pods may look for it at once. False if a Service of its name is used, which
    is no copy.
    """
    if copy["kind"] == "Service":
        return await host_names.copy_service(here, copy, namespace)
    with suppress(errors.AlreadyExists):  # its name has a digest of its content
        await here.cluster.create(CONFIG_MAPS, copy, namespace)
    return True


async def own(here: Connection, copy: Obj, execution: Execution) -> None:
    """Let the copy stay as long as the Job does. It may be gone already with the last Job that used it: then it is made
    again.
    """
    kind = SERVICES if copy["kind"] == "Service" else CONFIG_MAPS
    meta = execution.job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    try:
        await here.cluster.add_owner(kind, str(copy["metadata"]["name"]), owner, execution.namespace)
    except errors.NotFound:
        owned = {**copy, "metadata": {**copy["metadata"], "ownerReferences": [owner]}}
        await ensure(here, owned, execution.namespace)
