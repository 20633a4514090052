"""Real Kubernetes clusters on this machine, for tests, demos and a first look (docs/dev-cluster.md).

    with ClusterGroup(folder, [ClusterPlan("lab", (NodePlan(2, gpus=8),))]) as group:
        print(group.cluster("lab").kubectl("get", "nodes"))

`penstock dev-cluster` and `tests/clusters.py` use it. Read `plan` (clusters and nodes), `testbed` (a group of
them), `cluster` and `plane` (one control plane), `kubelet_nodes` (real pods), then `programs` (the binaries) and
`processes`.
"""

from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.plan import ClusterPlan, NodePlan
from penstock.devcluster.testbed import ClusterGroup

__all__ = ["ClusterGroup", "ClusterPlan", "DevCluster", "NodePlan"]
