"""Real Kubernetes clusters on this machine, for tests, demos and a first look (docs/dev-cluster.md).

    with Bed(folder, [ClusterPlan("lab", (NodePlan(2, gpus=8),))]) as bed:
        print(bed.cluster("lab").kubectl("get", "nodes"))

`penstock dev-cluster` and `tests/clusters.py` call it. Read `plan` (what one asks for), `bed` (what starts and ends
together), `cluster` and `plane` (one control plane), `real` (nodes with real pods), then `programs` (the binaries) and
`processes`.
"""

from penstock.devcluster.bed import Bed
from penstock.devcluster.cluster import Cluster
from penstock.devcluster.plan import ClusterPlan, NodePlan

__all__ = ["Bed", "Cluster", "ClusterPlan", "NodePlan"]
