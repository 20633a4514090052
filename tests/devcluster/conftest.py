from tests.clusters import (
    bed,
    cloud,
    cloud_namespace,
    clusters,
    east,
    lab,
    managed_namespace,
    managing,
    namespace,
    real_bed,
    shared_bed,
)

__all__ = [
    "bed",
    "cloud",
    "cloud_namespace",
    "clusters",
    "east",
    "lab",
    "managed_namespace",
    "managing",
    "namespace",
    "real_bed",
    "shared_bed",
]
