"""Real Kubernetes clusters on this machine, for tests, demos and a first look (docs/dev-cluster.md).

    with ClusterGroup(folder, [ClusterPlan("lab", (NodePlan(2, gpus=8),))]) as group:
        print(group.cluster("lab").kubectl("get", "nodes"))

`penstock dev-cluster` and `tests/clusters.py` use it. Read `plan` (clusters and nodes), `testbed` (a group of
them), `cluster` and `plane` (one control plane), `kubelet_nodes` (real pods), then `programs` (the binaries) and
`processes`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.devcluster.cluster import DevCluster
    from penstock.devcluster.plan import ClusterPlan, NodePlan
    from penstock.devcluster.testbed import ClusterGroup

__all__ = ["ClusterGroup", "ClusterPlan", "DevCluster", "NodePlan"]
#: Imported when they are asked for: `make demo` uses the S3 server here, and installs nothing of Kubernetes.
WHERE: Final = {"ClusterGroup": "testbed", "ClusterPlan": "plan", "DevCluster": "cluster", "NodePlan": "plan"}


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{WHERE[name]}"), name)
