from tests.clusters import bed, clusters, east, lab, namespace, shared_bed

__all__ = ["bed", "clusters", "east", "lab", "namespace", "shared_bed"]
