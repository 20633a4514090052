"""A cluster with Karpenter, which all tests of this folder share."""

from tests.clusters import cloud, cloud_namespace

__all__ = ["cloud", "cloud_namespace"]
