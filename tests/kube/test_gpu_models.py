"""Which GPU model a node label names, by whatever label people select it."""

import pytest

from penstock.kube.gpu_models import model_of, same_model

MACHINE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize(
    ("key", "text", "model"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", "nvidia-tesla-t4"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", "A100-40GB"),
        ("accelerator", "nvidia-tesla-p100", "nvidia-tesla-p100"),
        ("accelerator", "big", ""),
        ("karpenter.k8s.aws/instance-gpu-name", "t4", "t4"),
        ("eks.amazonaws.com/instance-gpu-name", "l40s", "l40s"),
        ("karpenter.k8s.aws/instance-family", "g5", "A10G"),
        (MACHINE, "g4dn.12xlarge", "T4"),
        (MACHINE, "p4d.24xlarge", "A100-40GB"),
        (MACHINE, "p6-b200.48xlarge", "B200"),
        ("beta.kubernetes.io/instance-type", "a2-ultragpu-8g", "A100-80GB"),
        (MACHINE, "Standard_NC4as_T4_v3", "T4"),
        (MACHINE, "standard_nd96asr_v4", "A100-40GB"),
        (MACHINE, "Standard_NC24ads_A100_v4", "A100-80GB"),
        (MACHINE, "m5.large", ""),
        (MACHINE, "p4d", ""),
        ("pool", "t4", ""),
    ],
)
def test_labels_and_machine_types_name_models(key: str, text: str, model: str) -> None:
    assert model_of(key, text) == model


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("A100", "NVIDIA-A100-SXM4-80GB", True),
        ("a100", "A100-80GB", True),
        ("A100-40GB", "A100-80GB", False),
        ("nvidia-tesla-t4", "T4", True),
        ("T4", "T4G", False),
        ("T4", "A100", False),
        ("A10", "A10G", False),
        ("L40", "L40S", False),
        ("NVIDIA-H100-80GB-HBM3", "H100", True),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "A100", False),
        ("NVIDIA", "A100", False),
        ("", "A100", False),
    ],
)
def test_two_names_mean_one_model_if_one_says_all_that_the_other_does(name: str, other: str, same: bool) -> None:
    assert same_model(name, other) == same_model(other, name) == same
