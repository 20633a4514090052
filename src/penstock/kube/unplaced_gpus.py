"""Names the ways of asking for GPUs that Penstock does not place: by a resource claim, or for a part of one. Pure. The
front door refuses such a Job in these words instead of counting it wrong: none of them says how many whole GPUs it
takes, or a whole GPU would be charged for a part.
"""

import re
from collections.abc import Iterator
from typing import Final

from penstock.kube import gpu_models
from penstock.kube.references import Json, part, parts

#: An extended resource that stands for a DeviceClass: the scheduler makes a claim of it (DRAExtendedResource).
OF_A_CLASS: Final = "deviceclass.resource.kubernetes.io/"
#: Parts of a GPU, by the names of those who hand them out: NVIDIA's device plugin, HAMi, Volcano, Alibaba, Tencent.
PARTS: Final = re.compile(
    r"nvidia\.com/(gpu\.shared|mig-.+\.shared|gpumem|gpumem-percentage|gpucores|vgpu)"
    r"|volcano\.sh/(vgpu-(number|memory|cores)|gpu-(number|memory))"
    r"|aliyun\.com/gpu-(mem|core\.percentage)"
    r"|tencent\.com/vcuda-(core|memory)"
)
#: Annotations of a pod that ask KAI and Run:ai for a part.
PART_NOTES: Final = ("gpu-fraction", "gpu-memory")
#: Labels of nodes whose every GPU is several: GKE's, and those of NVIDIA's GPU feature discovery.
SHARING: Final = ("cloud.google.com/gke-gpu-sharing-strategy", "nvidia.com/gpu.sharing-strategy")
SHARED_PRODUCT: Final = "-SHARED"  #: what that discovery adds to the product's name


def claims(template: Json) -> tuple[str, ...]:
    """The resource claims of a pod template, which may be for GPUs, and the device classes that it names."""
    pod = part(template, "spec")
    named = [str(claim.get("name", "")) for claim in parts(pod, "resourceClaims")]
    return (*named, *(name.removeprefix(OF_A_CLASS) for name in _resources(pod) if name.startswith(OF_A_CLASS)))


def shares(template: Json) -> tuple[str, ...]:
    """What in a pod template asks for a part of a GPU."""
    pod, notes = part(template, "spec"), part(part(template, "metadata"), "annotations")
    labels = part(pod, "nodeSelector")
    wanted = [name for name in _resources(pod) if PARTS.fullmatch(name)]
    wanted += [name for name in PART_NOTES if notes.get(name)]
    wanted += [name for name in SHARING if labels.get(name, "none") != "none"]
    wanted += [key for key in gpu_models.NAMED if str(labels.get(key, "")).endswith(SHARED_PRODUCT)]
    return tuple(dict.fromkeys(wanted))


def _resources(pod: Json) -> Iterator[str]:
    """All that its containers ask for, except nothing of it."""
    for container in (*parts(pod, "initContainers"), *parts(pod, "containers")):
        asked = part(container, "resources")
        amounts = {**part(asked, "requests"), **part(asked, "limits")}
        yield from (name for name, amount in amounts.items() if str(amount) != "0")
