"""Workers of a controller's work queues, and one alarm for all keys that fail. `JobController` and `WorkloadController`
reconcile with them.

A key that fails is tried again, later for what takes longer to mend; no key stops the others.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from penstock.front.workqueue import WorkQueue
from penstock.journal.journal import Unwritable
from penstock.kube.errors import Conflict, Forbidden, KubeError, NotFound
from penstock.live.admission import NotAdmitted
from penstock.live.alarms import Alarms
from penstock.live.plane import NotReady

AGAIN_SECONDS: Final = 0.3  #: after a conflict
LATER_SECONDS: Final = 3.0  #: after an error of the cluster or the journal


class ReconcileWorkers:
    def __init__(self, alarms: Alarms, about: str, cannot: str, rights: str) -> None:
        self.alarms, self.about = alarms, about
        self.cannot = cannot  #: "of Kueue lab's Workloads cannot be governed now"
        self.rights = rights  #: the command that prints the rights it needs
        self.failing: dict[str, str] = {}  #: `NAMESPACE/NAME` -> the error of its last reconcile

    async def run(
        self, due: WorkQueue, reconcile: Callable[[str], Coroutine[Any, Any, None]], ahead: bool = False
    ) -> None:
        """One worker of a queue's lane, until cancelled."""
        while True:
            key = await due.take(ahead)
            try:
                await reconcile(key)
                self.set_trouble(key, "")
            except (Conflict, NotFound):
                due.again(key, AGAIN_SECONDS)
            except NotAdmitted as error:  # its team asks for too much at the moment, and its owner was told
                due.again(key, error.retry_s or LATER_SECONDS)
            except Forbidden as error:
                self.set_trouble(key, f"our account may not {error.verb} {error.resource}; see '{self.rights}'")
                due.again(key, LATER_SECONDS * 5)
            except (KubeError, NotReady, Unwritable) as error:
                self.set_trouble(key, str(error))
                due.again(key, LATER_SECONDS)
            except Exception as error:  # noqa: BLE001 - a bug of ours, and one key never stops the others
                self.set_trouble(key, f"{type(error).__name__}: {error}")
                due.again(key, LATER_SECONDS * 20)
            finally:
                due.done(key)

    def set_trouble(self, key: str, why: str) -> None:
        """One alarm for all that fail; it clears with the last of them."""
        self.failing.pop(key, None)
        if why:
            self.failing[key] = why
        first = next(iter(self.failing.items()), None)
        words = f"{len(self.failing)} {self.cannot}. {first[0]}: {first[1]}" if first else ""
        self.alarms.set("front door", self.about, words)
