"""A controller's workers: what fails is tried again and alarms, and stops nothing else."""

import asyncio
from contextlib import suppress

from penstock.front import reconcile_workers
from penstock.front.reconcile_workers import ReconcileWorkers
from penstock.front.workqueue import WorkQueue
from penstock.kube.errors import Conflict, Forbidden, KubeError
from penstock.live.alarms import Alarms
from tests.awaiting import story


class Reconciled:
    """Keys in the order in which they were reconciled; each has its errors to raise first."""

    def __init__(self, errors: dict[str, list[Exception]]) -> None:
        self.errors, self.keys, self.due = errors, list[str](), WorkQueue()
        self.alarms = Alarms(lambda: 0)
        self.workers = ReconcileWorkers(self.alarms, "lab", "of lab's Jobs cannot be shown", "penstock manifests rbac")

    async def reconcile(self, key: str) -> None:
        self.keys.append(key)
        if errors := self.errors.get(key):
            raise errors.pop(0)

    async def until(self, *keys: str) -> list[str]:
        """One worker runs until these keys were reconciled; the alarms that stand then."""
        worker = asyncio.create_task(self.workers.run(self.due, self.reconcile))
        while not (set(keys) <= set(self.keys) and not self.due.in_hand):
            await asyncio.sleep(0.001)
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        return [alarm.text for alarm in self.alarms.now()]


@story
async def test_a_key_that_fails_stops_no_other_and_is_named_in_an_alarm() -> None:
    lab = Reconciled({"ns/a": [ValueError("no such field")], "ns/b": [KubeError("the server is busy")]})
    for key in ("ns/a", "ns/b", "ns/c"):
        lab.due.add(key)
    assert await lab.until("ns/c") == ["2 of lab's Jobs cannot be shown. ns/a: ValueError: no such field"]
    assert lab.keys == ["ns/a", "ns/b", "ns/c"]
    assert set(lab.due.timed) == {"ns/a", "ns/b"}


@story
async def test_the_alarm_goes_with_the_last_key_that_failed() -> None:
    lab = Reconciled({"ns/a": [KubeError("the server is busy")]})
    lab.due.add("ns/a")
    assert await lab.until("ns/a") == ["1 of lab's Jobs cannot be shown. ns/a: the server is busy"]
    lab.keys.clear()
    lab.due.add("ns/a")
    assert await lab.until("ns/a") == []


@story
async def test_a_right_that_is_missing_is_named_with_the_command_that_prints_it() -> None:
    denied = Forbidden("no", verb="patch", resource="jobs")
    lab = Reconciled({"ns/a": [denied]})
    lab.due.add("ns/a")
    (text,) = await lab.until("ns/a")
    assert text.endswith("ns/a: our account may not patch jobs; see 'penstock manifests rbac'")


@story
async def test_a_conflict_is_tried_again_soon_and_alarms_nobody() -> None:
    lab = Reconciled({"ns/a": [Conflict("changed")]})
    lab.due.add("ns/a")
    assert await lab.until("ns/a") == []
    left = lab.due.timed["ns/a"].when() - asyncio.get_running_loop().time()
    assert left < reconcile_workers.LATER_SECONDS
