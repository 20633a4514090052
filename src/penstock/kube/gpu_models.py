"""Names of GPUs: resources, and models by the node labels that people select them with. Pure. `node_terms` asks it
what a label means, and the sites file which offers a map means.

The tables hold what a label's value does not say itself. Sources: the providers' lists of GPU machine types (Amazon EC2
accelerated computing, Azure GPU sizes, Google Compute Engine GPU machine types) and their node labels (GKE, AKS, EKS,
Karpenter, NVIDIA's GPU feature discovery), as of 2026-11-17.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

USUAL: Final = "nvidia.com/gpu"
TPU: Final = "google.com/tpu"  #: its chips count as GPUs
WHOLE: Final = (USUAL, "amd.com/gpu", TPU)
MIG: Final = "nvidia.com/mig-"
MIG_CONFIG: Final = "nvidia.com/mig.config"  #: label: the GPU operator cuts the GPUs of a Node that has it
TPU_ACCELERATOR: Final = "cloud.google.com/gke-tpu-accelerator"
#: Labels whose value is the model's name, in words of their own.
NAMED: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "cloud.google.com/gke-accelerator",
    TPU_ACCELERATOR,
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
)
MACHINES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
FAMILIES: Final = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")
#: Anybody's own label, a model's only where its value is a name that Google gave one.
ACCELERATOR: Final = "accelerator"
#: Labels of every node with such GPUs: whatever offer has GPUs meets them.
PRESENT: Final = frozenset(
    {
        ("nvidia.com/gpu.present", "true"),
        ("feature.node.kubernetes.io/pci-10de.present", "true"),
        ("feature.node.kubernetes.io/pci-0300_10de.present", "true"),
        ("feature.node.kubernetes.io/pci-0302_10de.present", "true"),
        ("kubernetes.azure.com/accelerator", "nvidia"),
        (ACCELERATOR, "nvidia"),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia"),
        ("eks.amazonaws.com/instance-gpu-manufacturer", "nvidia"),
    }
)
TPU_TOPOLOGY: Final = "cloud.google.com/gke-tpu-topology"  #: label of a slice's hosts, and its value is 4x4
TPU_MODEL: Final = "TPU-"  #: how the names of their models begin
#: GKE's names that leave the memory out, and those of TPUs.
GOOGLE: Final = {
    "nvidia-tesla-a100": "A100-40GB",
    "tpu-v4-podslice": "TPU-v4",
    "tpu-v5-lite-podslice": "TPU-v5e",
    "tpu-v5p-slice": "TPU-v5p",
    "tpu-v6e-slice": "TPU-v6e",
}
#: Amazon's instance families, and the first parts of Google's machine types.
MACHINE_FAMILIES: Final = {
    "p2": "K80", "p3": "V100-16GB", "p3dn": "V100-32GB", "p4d": "A100-40GB", "p4de": "A100-80GB", "p5": "H100-80GB",
    "p5e": "H200-141GB", "p5en": "H200-141GB", "p6-b200": "B200", "p6-b300": "B300", "p6e-gb200": "GB200",
    "g3": "M60", "g3s": "M60", "g4dn": "T4", "g4ad": "Radeon-Pro-V520", "g5": "A10G", "g5g": "T4G", "g6": "L4",
    "gr6": "L4", "g6e": "L40S",
    "a2-highgpu": "A100-40GB", "a2-megagpu": "A100-40GB", "a2-ultragpu": "A100-80GB", "a3-edgegpu": "H100-80GB",
    "a3-highgpu": "H100-80GB", "a3-megagpu": "H100-80GB", "a3-ultragpu": "H200-141GB", "a4-highgpu": "B200",
    "a4x-highgpu": "GB200", "g2-standard": "L4",
}  # fmt: skip
#: Azure's sizes, in the order they are tried.
AZURE: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), model)
    for pattern, model in (
        (r"standard_n\w*_t4_v\d+", "T4"),
        (r"standard_n\w*_a10_v\d+", "A10"),
        (r"standard_n\w*_a100_v4", "A100-80GB"),
        (r"standard_nd96asr_v4", "A100-40GB"),
        (r"standard_nd\w*_h100_v5", "H100-80GB"),
        (r"standard_nc\w*_h100_v5", "H100-94GB"),
        (r"standard_nd\w*_h200_v5", "H200-141GB"),
        (r"standard_nd\w*_mi300x_v5", "MI300X"),
        (r"standard_nc\d+r?s_v3", "V100-16GB"),
        (r"standard_nd40rs_v2", "V100-32GB"),
    )
)
#: Words of a name that tell no two models apart.
NOISE: Final = frozenset({"nvidia", "amd", "tesla", "geforce", "instinct", "hbm2", "hbm2e", "hbm3", "hbm3e"})
SLICE: Final = "mig"


def is_gpu(resource: str) -> bool:
    """True for whole GPUs and slices."""
    return resource in WHOLE or resource.startswith(MIG)


def model_of(key: str, text: str) -> str:
    """The GPU model that a node label names; empty if it names none that we know."""
    if key in NAMED:
        return GOOGLE.get(text, text)
    if key == ACCELERATOR:
        return GOOGLE.get(text, text) if text.startswith("nvidia-") else ""
    if key in FAMILIES:
        return MACHINE_FAMILIES.get(text, "")
    return _of_machine(text) if key in MACHINES else ""


def naming_label(labels: Mapping[str, str], resource: str = USUAL) -> str:
    """The label by which a node with such GPUs says their model; empty if none does."""
    keys = (TPU_ACCELERATOR,) if resource == TPU else tuple(key for key in NAMED if key != TPU_ACCELERATOR)
    return next((key for key in (*keys, *MACHINES, *FAMILIES, ACCELERATOR) if model_of(key, labels.get(key, ""))), "")


def names_models(key: str) -> bool:
    """True if every node with GPUs has this label."""
    return key in NAMED


def _of_machine(text: str) -> str:
    """Of `p4d.24xlarge`, `a2-highgpu-1g` or `Standard_NC24ads_A100_v4`."""
    for family in (text.partition(".")[0], text.rpartition("-")[0]):
        if family != text and family in MACHINE_FAMILIES:
            return MACHINE_FAMILIES[family]
    return next((model for pattern, model in AZURE if pattern.fullmatch(text)), "")


def same_model(model: str, other: str) -> bool:
    """True if both names can mean the same GPU: one says all that the other does. `A100` and `NVIDIA-A100-SXM4-80GB`
    can, `A100-40GB` and `A100-80GB` cannot. A slice is never a whole GPU.
    """
    words, others = _words(model), _words(other)
    if not words or not others or (SLICE in words) != (SLICE in others):
        return False
    return words <= others or others <= words


def matching(wanted: str, known: Iterable[str]) -> tuple[str, ...]:
    return tuple(model for model in known if same_model(wanted, model))


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall("[a-z0-9]+", name.lower())) - NOISE


def mig_config(profile: str) -> dict[str, str]:
    """The label with which a Node's GPUs are all cut into slices of one profile; none: they stay whole."""
    return {MIG_CONFIG: f"all-{profile.replace('+', '.')}"} if profile else {}
