"""A Kueue whose Workloads are governed, and the sites that it starts them at. The sites file defines both; the front
door reads the Workloads, and a site's driver admits them.
"""

from penstock.core.values import value
from penstock.kube.access import Access


@value
class KueueManager:
    """A cluster whose Kueue has our AdmissionCheck on some of its ClusterQueues."""

    name: str
    access: Access = Access()
    namespaces: tuple[str, ...] = ()  # empty: all
    check: str = "penstock"  # the AdmissionCheck's name


@value
class KueueSite:
    """Where a manager's Kueue starts Workloads: a worker of its MultiKueue, or its own cluster."""

    manager: str
    cluster: str = ""  # the MultiKueueCluster; empty: the manager's own cluster
    by: str = ""  # MultiKueue's AdmissionCheck, whose configuration lists the cluster
    wait_ms: int = 900_000  # for a worker to admit it; then another site is tried

    @property
    def need(self) -> str:
        """What a Workload needs that can be started here."""
        return need_of(self.manager, self.by)


def need_of(manager: str, by: str) -> str:
    """`by`: the check of MultiKueue that dispatches it; empty: it runs in the manager's own cluster."""
    return f"a worker of Kueue {manager} by {by}" if by else f"the cluster of Kueue {manager}"
