from tests.clusters import clusters, lab, namespace, shared_bed
from tests.open_folder import jobs_folder

__all__ = ["clusters", "jobs_folder", "lab", "namespace", "shared_bed"]
