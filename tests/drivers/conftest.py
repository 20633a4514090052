from tests.clusters import bed, cloud, cloud_namespace, clusters, east, lab, namespace, real_bed, shared_bed

__all__ = ["bed", "cloud", "cloud_namespace", "clusters", "east", "lab", "namespace", "real_bed", "shared_bed"]
