"""The policy from a ConfigMap of a home cluster: the one that the sites file names is watched and applied, and no
other. `wiring` runs it beside the front doors.

    source = PolicyConfigMap(cluster, named, changes, now)
    await source.run()

Content that cannot be used leaves the policy in force. It is an alarm, a metric, and an Event on the ConfigMap.
"""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.config.sites import ConfigMapKey
from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.front.event_recorder import event_about
from penstock.kube.client import CONFIG_MAPS, EVENTS, Cluster
from penstock.kube.errors import KubeError
from penstock.kube.informer import Informer
from penstock.kube.references import Json, part
from penstock.live.policy_changes import LOOK_SECONDS, MOST_BYTES, PolicyChanges

SOURCE: Final = "policy ConfigMap"  #: what the alarm about reading it is about
APPLIED, REJECTED = "PolicyApplied", "PolicyRejected"


class PolicyConfigMap:
    def __init__(
        self, cluster: Cluster, named: ConfigMapKey, changes: PolicyChanges, now: Callable[[], Instant]
    ) -> None:
        self.cluster, self.named, self.changes, self.now = cluster, named, changes, now
        self.informer = Informer(
            cluster,
            CONFIG_MAPS,
            self._changed,
            namespace=named.namespace,
            fields=f"metadata.name={named.name}",
            keep=lambda config_map: _kept(config_map, named.key),
            sync_changed=self._sync_changed,
        )
        self.news = asyncio.Event()

    async def run(self) -> None:
        """Watch it until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informer.run())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        await self.informer.in_step.wait()
        self.news.set()  # it may not exist
        while True:
            if self.news.is_set():
                self.news.clear()
                await self._take()
            self.changes.note_drift()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.news.wait()

    def _changed(self, _before: Json | None, _now: Json | None) -> None:
        self.news.set()

    def _sync_changed(self, why: str) -> None:
        words = why and f"{self.named.title} cannot be read: {why}. The policy in force stays."
        self.changes.plane.alarms.set("policy", SOURCE, words)

    async def _take(self) -> None:
        """Apply it as it is now. What cannot be recorded yet is tried again."""
        config_map = self.informer.objects.get(f"{self.named.namespace}/{self.named.name}")
        try:
            raw = text_in(config_map, self.named)
        except BadInput as error:
            self.changes.reject(str(error))
            return
        if self.changes.is_in_force(raw):
            self.changes.accept(raw)
            return
        done = await self.changes.take(raw, f"{self.named.title} changed")
        if done.again:
            self.news.set()
            await asyncio.sleep(LOOK_SECONDS)
        elif config_map is not None:
            await self._post(config_map, raw, APPLIED if done.ok else REJECTED, done.says, bad=not done.ok)

    async def _post(self, config_map: Json, raw: bytes, reason: str, words: str, *, bad: bool) -> None:
        """One Event for each content; who may not write Events has the alarm."""
        name = f"{hashlib.sha256(raw).hexdigest()[:16]}.{part(config_map, 'metadata').get('resourceVersion', '')}"
        event = event_about(
            {**config_map, "apiVersion": "v1", "kind": "ConfigMap"}, name, reason, words, bad, self.now()
        )
        with suppress(KubeError):
            await self.cluster.create(EVENTS, event)


def text_in(config_map: Json | None, named: ConfigMapKey) -> bytes:
    """The policy file in a ConfigMap. Raises `BadInput`."""
    if config_map is None:
        raise BadInput(f"{named.title} does not exist.")
    text = part(config_map, "data").get(named.key)
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{named.title} has no text under the key '{named.key}'.")
    return text.encode("utf-8", "replace")


async def first_text(cluster: Cluster, named: ConfigMapKey) -> bytes:
    """For a start that has no policy yet. Raises `BadInput`: nothing starts without the policy that it shall have."""
    try:
        return text_in(await cluster.get(CONFIG_MAPS, named.name, named.namespace), named)
    except KubeError as error:
        raise BadInput(f"{named.title}, which has the policy, cannot be read: {error}") from None


def _kept(config_map: Json, key: str) -> Json:
    """Its name and the one key, however large the rest is; what is too large is cut, and refused as too large."""
    metadata = part(config_map, "metadata")
    text = part(config_map, "data").get(key)
    kept = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}
    return {"metadata": kept, "data": {} if not isinstance(text, str) else {key: text[: MOST_BYTES + 1]}}
