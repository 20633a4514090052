"""Keeps our AdmissionCheck Active, and says so if there is none: while it is not Active, Kueue stops every ClusterQueue
that names it. `WorkloadController` runs it; the driver asks whose it is before it acts.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.front.kueue.workloads import KueueWorkloads, now_written
from penstock.kube import annotations
from penstock.kube.client import Cluster
from penstock.kube.errors import Conflict, Forbidden, KubeError, NotFound
from penstock.kube.kueue_api import ADMISSION_CHECKS, CONTROLLER
from penstock.kube.references import Json, part, parts

if TYPE_CHECKING:
    from penstock.live.plane import Plane

CLAIM_TRIES: Final = 5  #: after conflicts with other writers of the check
AGAIN_SECONDS: Final = 10.0


class AdmissionCheckController:
    def __init__(self, home: KueueWorkloads, plane: "Plane") -> None:
        self.home, self.plane = home, plane

    async def keep(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            words = await self._look()
            self.plane.alarms.set("front door", f"kueue:{self.home.name}:check", words)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self) -> str:
        """What is wrong with it, for an alarm; empty if nothing is."""
        where = f"Kueue {self.home.name}"
        try:
            check = await self.home.cluster.get(ADMISSION_CHECKS, self.home.check)
            if (words := wrong_with(check)) or (words := others(check, self.plane.installation)):
                return f"{where}: {words}"
            if not is_active(check):
                await activate(self.home.cluster, check)
        except NotFound:
            return f"{where} has no AdmissionCheck {self.home.check}; 'penstock manifests kueue' prints it."
        except Forbidden as error:
            return f"{where}: our account may not {error.verb} {error.resource}; see 'penstock manifests rbac --kueue'."
        except Conflict:
            return ""  # the next look sees what is there now
        except KubeError as error:
            return f"{where} does not answer about its AdmissionCheck: {error}"
        return ""


def wrong_with(check: Json) -> str:
    """Why it is no check of ours; empty if it is."""
    name, controller = part(check, "metadata").get("name"), part(check, "spec").get("controllerName")
    if controller == CONTROLLER:
        return ""
    return f"its AdmissionCheck {name} belongs to {controller}, and not to {CONTROLLER}; name another in 'check'."


def others(check: Json, installation: str) -> str:
    """Which other installation it obeys, in words; empty: ours, or none yet."""
    holder = part(part(check, "metadata"), "annotations").get(annotations.INSTALLATION, "")
    if not holder or holder == installation:
        return ""
    return (
        f"its AdmissionCheck {part(check, 'metadata').get('name')} obeys another installation of Penstock ({holder}); "
        f"give each a check of its own, or remove the annotation {annotations.INSTALLATION} of one that is no more."
    )


def is_active(check: Json) -> bool:
    conditions = parts(part(check, "status"), "conditions")
    return any(row.get("type") == "Active" and row.get("status") == "True" for row in conditions)


async def claim(cluster: Cluster, name: str, installation: str) -> str:
    """Write on the check that it obeys us. Returns why it cannot be, for people; empty: it does. All sites of a Kueue
    write it when they open, and Kueue writes its conditions: who comes second reads it again.
    """
    for tries_left in reversed(range(CLAIM_TRIES)):
        check = await cluster.get(ADMISSION_CHECKS, name)
        if words := wrong_with(check) or others(check, installation):
            return words
        metadata = part(check, "metadata")
        if part(metadata, "annotations").get(annotations.INSTALLATION) == installation:
            return ""
        mark = {"metadata": {"annotations": {annotations.INSTALLATION: installation}}}
        try:
            await cluster.patch(ADMISSION_CHECKS, name, mark, seen=str(metadata["resourceVersion"]))
            return ""
        except Conflict:
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


async def activate(cluster: Cluster, check: Json) -> None:
    metadata = part(check, "metadata")
    others_there = [row for row in parts(part(check, "status"), "conditions") if row.get("type") != "Active"]
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "Penstock holds money before it admits a Workload",
        "lastTransitionTime": now_written(),
        "observedGeneration": metadata.get("generation", 1),
    }
    await cluster.patch_status(
        *(ADMISSION_CHECKS, str(metadata["name"]), {"conditions": [*others_there, active]}),
        seen=str(metadata["resourceVersion"]),
    )
