from tests.clusters import clusters, east, lab, namespace, real_bed, shared_bed

__all__ = ["clusters", "east", "lab", "namespace", "real_bed", "shared_bed"]
