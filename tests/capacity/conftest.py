"""Clusters that all tests of this folder share: with Karpenter, Cluster API, and Nodes that played clouds make."""

from tests.clusters import cloud, cloud_namespace, clusters, managed_namespace, managing, namespace, shared_bed

__all__ = ["cloud", "cloud_namespace", "clusters", "managed_namespace", "managing", "namespace", "shared_bed"]
