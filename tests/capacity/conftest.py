"""Clusters with Karpenter and with Cluster API, which all tests of this folder share."""

from tests.clusters import cloud, cloud_namespace, managed_namespace, managing

__all__ = ["cloud", "cloud_namespace", "managed_namespace", "managing"]
