from tests.clusters import bed, clusters, east, lab, namespace, real_bed, shared_bed

__all__ = ["bed", "clusters", "east", "lab", "namespace", "real_bed", "shared_bed"]
