from tests.clusters import clusters, east, lab, namespace, shared_bed

__all__ = ["clusters", "east", "lab", "namespace", "shared_bed"]
