"""GPU models by generation: how fast they train, what they draw, what they cost to buy. Each fact has its source.

Speeds are against a V100, as medians over several models in mixed precision; one's own model may differ by a factor of
two, which the report says where it uses them.
"""

import re
from typing import Final

from penstock.core.values import value


@value
class GpuFact:
    """One model. The price and the watts are of a whole server, shared out to its GPUs."""

    model: str
    speed_permille: int  # of a V100
    speed_source: str
    node_watts: int  # the server at full load, over its GPUs
    watts_source: str
    price: int | None  # dollars for one GPU's share of a server; None: no price that we could cite
    price_source: str = ""


LAMBDA: Final = "Lambda's training benchmarks, median of ten models in FP16"
MLPERF: Final = "MLPerf Training v5.0 (NVIDIA, June 2025): 2.2 to 2.6 times an H100; 2.2 taken"
FACTS: Final[tuple[GpuFact, ...]] = (
    GpuFact("V100", 1000, LAMBDA, 438, "DGX-1: 3.5 kW for 8 (NVIDIA data sheet)", 18_625,
            "DGX-1 with 8 V100: $149,000 (NVIDIA, May 2017)"),
    GpuFact("A10", 810, LAMBDA, 300, "twice its board power of 150 W; our guess", None),
    GpuFact("L4", 500, "our guess from its memory bandwidth; no training benchmark found", 150,
            "twice its board power of 72 W; our guess", None),
    GpuFact("L40S", 1740, f"{LAMBDA}; that of the RTX 6000 Ada, the same chip", 600,
            "its board power of 350 W and a share of the server; our guess", None),
    GpuFact("A100", 2000, LAMBDA, 813, "DGX A100: 6.5 kW for 8 (NVIDIA data sheet)", 24_875,
            "DGX A100: $199,000 (NVIDIA, May 2020)"),
    GpuFact("A100-80GB", 2510, LAMBDA, 813, "DGX A100: 6.5 kW for 8 (NVIDIA data sheet)", 24_875,
            "DGX A100: $199,000 (NVIDIA, May 2020)"),
    GpuFact("H100", 4840, LAMBDA, 1275, "DGX H100: 10.2 kW for 8 (NVIDIA data sheet)", 38_750,
            "a server with 8 H100 and its network cards: $310,000 (quotation of August 2024)"),
    GpuFact("H200", 5500, "an H100's compute with 1.4 times its memory bandwidth; our guess", 1275,
            "DGX H200: 10.2 kW for 8 (NVIDIA data sheet)", 43_750,
            "an H100's server and $5,000 more a GPU, the difference of street prices of mid-2026; a guess"),
    GpuFact("B200", 10_650, MLPERF, 1788, "DGX B200: 14.3 kW for 8 (NVIDIA data sheet)", 48_750,
            "an H100's server and $10,000 more a GPU, the difference of street prices of mid-2026; a guess"),
)  # fmt: skip
BY_MODEL: Final = {fact.model: fact for fact in FACTS}
#: What comes after it, by what can be rented today.
NEWER: Final = {"V100": "H100", "A10": "L40S", "L4": "L40S", "L40S": "H100", "A100": "H100", "A100-80GB": "H100",
                "H100": "B200", "H200": "B200"}  # fmt: skip
UNKNOWN: Final = "H100"  #: assumed where nobody says which GPUs are owned


def model_of(text: str) -> str:
    """`NVIDIA-A100-SXM4-80GB` is A100-80GB, `nvidia_h100` H100. Empty: not one that the tables know."""
    bare = re.sub(r"[\s_]+", "-", text.upper())
    if re.search(r"\bA100\b|A100-", bare + "-"):
        return "A100-80GB" if "80" in bare.replace("A100", "") else "A100"
    for model in ("L40S", "B200", "H200", "H100", "V100", "L4", "A10"):
        if re.search(rf"(^|[^A-Z0-9]){model}G?($|[^A-Z0-9])", bare):
            return model
    return ""
