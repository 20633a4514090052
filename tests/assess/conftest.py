from tests.clusters import clusters, lab, namespace, shared_bed

__all__ = ["clusters", "lab", "namespace", "shared_bed"]
