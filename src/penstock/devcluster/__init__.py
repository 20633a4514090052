"""Real Kubernetes clusters on this machine, for tests, demos and a first look (docs/dev-cluster.md).

    with Bed(folder, [ClusterPlan("lab", (NodePlan(2, gpus=8),))]) as bed:
        print(bed.cluster("lab").kubectl("get", "nodes"))

`penstock dev-cluster` and `tests/clusters.py` call it. Read `plan` (what one asks for), `testbed` (what starts and ends
together), `cluster` and `plane` (one control plane), `real` (nodes with real pods), then `programs` (the binaries) and
`processes`.
"""

from penstock.devcluster.cluster import DevCluster
from penstock.devcluster.plan import ClusterPlan, NodePlan
from penstock.devcluster.testbed import ClusterGroup

__all__ = ["ClusterGroup", "ClusterPlan", "DevCluster", "NodePlan"]
