"""What not every machine has. It needs no package, so that `make test-bare` begins before any is installed."""

from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


class Part(StrEnum):
    """What not every machine has, and how to get it: why a test may be left out. `pytest.skip(Part.KUBERNETES)`"""

    KUBERNETES = "Kubernetes programs: `make kube` builds them once, in about ten minutes"
    KUEUE = "Kueue: `make kube KUEUE=1` builds it once, in about ten minutes"
    JOBSET = "JobSet: `make kube JOBSET=1` builds it once, in about five minutes"
    CLUSTER_API = "Cluster API: `make kube CAPI=1` builds it once, in about four minutes"
    KARPENTER = "Karpenter: `make kube KARPENTER=1` builds it once, in about five minutes"
    AUTOSCALER = "cluster-autoscaler: `make kube AUTOSCALER=1` builds it once, in about five minutes"
    DNS = "CoreDNS: `make kube DNS=1` builds it once, in about two minutes"
    OUR_CLUSTERS = "clusters that may be broken: run without PENSTOCK_TEST_KUBECONFIGS"
    REAL_PODS = "real pods: `make kube` as root on Debian or Ubuntu installs containerd and runc"
    HELM = "helm: `make kube` builds it once, in about three minutes"
    S3 = "S3 server: `make kube` builds versitygw once, in about two minutes"
    POSTGRES = "PostgreSQL server: apt-get install postgresql"
    PROMETHEUS = "Prometheus: apt-get install prometheus"
    CHROMIUM = "Chromium: apt-get install chromium"
    COMPILER = "C compiler with Python's headers: apt-get install gcc python3-dev"
    LINUX = "Linux: its fork copies a process with threads"
    ROOT = "root's rights: run the tests as root, as CI does; only root can give each job a user of its own"
    TRACES = "recorded traces: PENSTOCK_SHARED names their folder; generated load is tested"
