"""Clusters that all tests of this folder share: with Karpenter, and with Nodes that played clouds make."""

from tests.clusters import cloud, cloud_namespace, clusters, namespace, shared_bed

__all__ = ["cloud", "cloud_namespace", "clusters", "namespace", "shared_bed"]
