"""Bound before it is started: a driver whose starts first write the binding on the home Job. `wiring` puts one before
each driver where there is a front door.

The journal has decided already; the binding repeats it where people look. It is guarded by the version that was seen,
so that of two control planes, one stopped for a while and one that took over, only the newer's attempt is bound.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock.core.actions import LaunchNode, StartAttempt
from penstock.core.units import Instant, Millis
from penstock.drivers.driver import Command, Driver, Say, Seen, Unreachable, Work
from penstock.front.status import binding, bound_attempt
from penstock.kube import marks, names
from penstock.kube.channels import Printed, Typed
from penstock.kube.client import JOBS, Cluster
from penstock.kube.closure import part
from penstock.kube.errors import Conflict, KubeError
from penstock.kube.portability import unpacked

TRIES: Final = 5  #: against others who write on the same Job at the same time


class Gate:
    """All but `start` is the driver's own."""

    def __init__(self, driver: Driver, homes: Mapping[str, Cluster]) -> None:
        self.driver, self.homes = driver, homes

    async def start(self, ask: StartAttempt, work: Work, earlier: str) -> None:
        if work.manifest:
            await self._bind(ask, json.loads(work.manifest))
        await self.driver.start(ask, work, earlier)

    async def _bind(self, ask: StartAttempt, manifest: dict[str, Any]) -> None:
        metadata = part(unpacked(manifest)[0], "metadata")
        home = self.homes.get(str(part(metadata, "annotations").get(marks.HOME)))
        if home is None:  # its front door was closed since: there is nobody to tell
            return
        try:
            await bind(home, metadata, ask)
        except KubeError as error:
            raise Unreachable(f"its home Job cannot be bound: {error}") from error

    async def open(self, say: Say) -> None:
        await self.driver.open(say)

    async def close(self) -> None:
        await self.driver.close()

    async def launch_node(self, ask: LaunchNode) -> None:
        await self.driver.launch_node(ask)

    async def release_node(self, node: str) -> None:
        await self.driver.release_node(node)

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        await self.driver.stop(attempt, grace_ms)

    async def set_deadline(self, thing: str, deadline_at: Instant) -> Instant:
        return await self.driver.set_deadline(thing, deadline_at)

    async def copy(self, data_set: str) -> Instant:
        return await self.driver.copy(data_set)

    async def look(self) -> Seen:
        return await self.driver.look()

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        return await self.driver.log(attempt, after, most, rank)

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        return await self.driver.exec(attempt, command, typed, printed)

    async def forget(self, attempt: str) -> None:
        await self.driver.forget(attempt)


async def bind(home: Cluster, metadata: dict[str, Any], ask: StartAttempt) -> None:
    """Write where it goes. Raises what the cluster says; a newer attempt that is bound already is a conflict."""
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "default")
    for tries_left in reversed(range(TRIES)):
        job = await home.get(JOBS, name, namespace)
        if part(job, "metadata").get("uid") != metadata.get("uid"):
            raise Conflict("another Job has its name now")
        bound = bound_attempt(job)
        if bound == ask.attempt:
            return
        if _number(bound) > _number(ask.attempt):
            raise Conflict(f"{bound} is bound already, which is newer than {ask.attempt}")
        change = {"metadata": {"annotations": {names.JOB: ask.job, names.BINDING: binding(ask.attempt, ask.offer)}}}
        try:
            await home.patch(JOBS, name, change, namespace, seen=part(job, "metadata")["resourceVersion"])
            return
        except Conflict:
            if not tries_left:
                raise


def _number(attempt: str) -> int:
    number = attempt.rpartition(".")[2]
    return int(number) if number.isdigit() else 0
