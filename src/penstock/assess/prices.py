"""What rented GPUs cost: our own small table of list and spot prices, each row with its source and date.

A row is one node type in one region, in US dollars for the whole node. `quote` names the row that an assessment rents
by; `--sites` replaces the table by what a company really could rent.
"""

from collections.abc import Sequence
from typing import Final

from penstock.core.errors import BadInput
from penstock.core.units import MICRO, Money, ceil_div, money
from penstock.core.values import value

CATALOG: Final = "SkyPilot catalog, github.com/skypilot-org/skypilot-catalog"
AZURE: Final = "Azure retail prices as in the SkyPilot catalog; list prices seen unchanged on 2026-11-09"


@value
class PriceRow:
    cloud: str
    european: bool  # whose headquarters are in Europe; a region of another cloud in Europe is not
    region: str
    node_type: str
    gpu: str  # as `gpus` names models
    gpus: int
    on_demand: str  # dollars an hour, for the node; empty: not sold that way
    spot: str  # likewise
    dated: str
    source: str
    grid: str = ""  # zone of the electricity grid, as `carbon` names it; empty: not known

    @property
    def on_demand_gpu_hour(self) -> Money | None:
        return ceil_div(money(self.on_demand), self.gpus) if self.on_demand else None

    @property
    def spot_gpu_hour(self) -> Money | None:
        return ceil_div(money(self.spot), self.gpus) if self.spot else None

    @property
    def name(self) -> str:
        return f"{self.cloud} {self.node_type}, {self.region}"


#: By model, then cloud. AWS spot prices are those of the region's cheapest zone on that day.
TABLE: Final[tuple[PriceRow, ...]] = (
    PriceRow("AWS", False, "eu-west-1", "p3dn.24xlarge", "V100", 8, "33.711", "4.4239", "2026-08-22", CATALOG, "IE"),
    PriceRow("Azure", False, "eastus", "ND40rs_v2", "V100", 8, "22.032", "2.42352", "2024-08-19", AZURE, "US-PJM"),
    PriceRow("GCP", False, "europe-west4", "n1 + 8 V100", "V100", 8, "23.74669", "9.31184", "2026-08-21", CATALOG),
    PriceRow("OVHcloud", True, "GRA", "t1-180", "V100", 4, "7.89", "", "2023-11-26", CATALOG, "FR"),
    PriceRow("AWS", False, "eu-central-1", "g5.48xlarge", "A10", 8, "20.3681", "13.3229", "2026-08-22", CATALOG, "DE"),
    PriceRow("AWS", False, "eu-central-1", "g6.48xlarge", "L4", 8, "16.69464", "5.7744", "2026-08-22", CATALOG, "DE"),
    PriceRow("GCP", False, "europe-west1", "g2-standard-96", "L4", 8, "8.81246", "4.90934", "2026-08-21", CATALOG),
    PriceRow("AWS", False, "eu-north-1", "g6e.48xlarge", "L40S", 8, "31.96075", "12.0273", "2026-08-22", CATALOG, "SE"),
    PriceRow("Nebius", True, "eu-north1", "l40s-d, 4 GPUs", "L40S", 4, "9.1376", "4.4688", "2026-07-22", CATALOG, "FI"),
    PriceRow("AWS", False, "eu-central-1", "p4d.24xlarge", "A100", 8, "27.43298", "12.0301", "2026-08-22", CATALOG,
             "DE"),
    PriceRow("AWS", False, "eu-central-1", "p4de.24xlarge", "A100-80GB", 8, "34.29122", "16.4964", "2026-08-22",
             CATALOG, "DE"),
    PriceRow("Azure", False, "eastus", "ND96asr_v4", "A100", 8, "27.197", "2.99167", "2024-08-19", AZURE, "US-PJM"),
    PriceRow("Azure", False, "eastus", "ND96amsr_A100_v4", "A100-80GB", 8, "32.77", "3.6047", "2024-08-19", AZURE,
             "US-PJM"),
    PriceRow("GCP", False, "europe-west4", "a2-highgpu-8g", "A100", 8, "29.98377", "17.98296", "2026-08-21", CATALOG),
    PriceRow("GCP", False, "europe-west4", "a2-ultragpu-8g", "A100-80GB", 8, "44.2857", "22.9424", "2026-08-21",
             CATALOG),
    PriceRow("OVHcloud", True, "GRA", "a100-360", "A100-80GB", 2, "6.15", "", "2023-11-26", CATALOG, "FR"),
    PriceRow("Verda", True, "FIN-02", "2A100.44V", "A100-80GB", 2, "3.58", "1.79", "2026-08-22", CATALOG, "FI"),
    PriceRow("AWS", False, "eu-north-1", "p5.48xlarge", "H100", 8, "58.8928", "19.1618", "2026-08-22", CATALOG, "SE"),
    PriceRow("Azure", False, "eastus", "ND96isr_H100_v5", "H100", 8, "98.32", "", "2024-08-19", AZURE, "US-PJM"),
    PriceRow("GCP", False, "europe-west1", "a3-highgpu-8g", "H100", 8, "96.71231", "45.73512", "2026-08-21", CATALOG),
    PriceRow("Nebius", True, "eu-north1", "h100-sxm, 8 GPUs", "H100", 8, "30.8", "17.2", "2026-07-22", CATALOG, "FI"),
    PriceRow("Verda", True, "FIN-02", "2H100.80S.80V", "H100", 2, "6.5", "3.25", "2026-08-22", CATALOG, "FI"),
    PriceRow("AWS", False, "eu-north-1", "p5en.48xlarge", "H200", 8, "67.72672", "63.6343", "2026-08-22", CATALOG,
             "SE"),
    PriceRow("GCP", False, "europe-west1", "a3-ultragpu-8g", "H200", 8, "95.53137", "55.58524", "2026-08-21", CATALOG),
    PriceRow("Nebius", True, "eu-north1", "h200-sxm, 8 GPUs", "H200", 8, "36.0", "19.6", "2026-07-22", CATALOG, "FI"),
    PriceRow("Verda", True, "FIN-03", "8H200.141S.176V", "H200", 8, "32.0", "", "2026-08-22", CATALOG, "FI"),
    PriceRow("AWS", False, "us-east-1", "p6-b200.48xlarge", "B200", 8, "113.9328", "41.8661", "2026-08-22", CATALOG,
             "US-PJM"),
    PriceRow("GCP", False, "europe-west4", "a4-highgpu-8g", "B200", 8, "90.216", "35.7776", "2026-08-21", CATALOG),
    PriceRow("Nebius", True, "us-central1", "b200-sxm, 8 GPUs", "B200", 8, "57.2", "31.6", "2026-07-22", CATALOG),
    PriceRow("Verda", True, "FIN-03", "1B200.30V", "B200", 1, "6.11", "", "2026-08-22", CATALOG, "FI"),
)  # fmt: skip


@value
class RentQuote:
    """What a rented GPU-hour of one model costs, in the report's currency, and where that is from."""

    gpu: str
    on_demand: Money
    spot: Money | None
    source: str  # a sentence's part: "AWS p5.48xlarge, eu-north-1, 2026-08-22"
    low: Money  # the cheapest and the dearest on demand of all clouds in the table
    high: Money
    grid: str = ""


@value
class ReportCurrency:
    """The report's currency, and how many of it a US dollar is."""

    name: str = "USD"
    rate_micro: int = MICRO

    def of(self, dollars: Money) -> Money:
        return ceil_div(dollars * self.rate_micro, MICRO)


DOLLARS: Final = ReportCurrency()


def report_currency(name: str, rate: str | None) -> ReportCurrency:
    """The table is in dollars; another currency needs a rate, because a rate that we guessed would be wrong."""
    name = name.upper()
    if name == "USD" and rate is None:
        return DOLLARS
    if rate is None:
        raise BadInput(f"Our tables of prices are in US dollars; say how many {name} a dollar is, like --rate 0.9.")
    micro = money(rate)
    if not 0 < micro <= 1_000_000 * MICRO:
        raise BadInput(f"--rate is how many {name} a US dollar is, like 0.9, not {rate}.")
    return ReportCurrency(name, micro)


def amount_of(option: str, text: str) -> Money:
    """Of what a person typed for an option."""
    try:
        amount = money(text)
    except BadInput as error:
        raise BadInput(f"{option}: {error}") from None
    if amount < 0:
        raise BadInput(f"{option} cannot be negative, but is {text}.")
    return amount


def quote(gpu: str, cloud: str = "", to: ReportCurrency = DOLLARS) -> RentQuote | None:
    """The median cloud's row by its price on demand, or the named cloud's. None: the table has none of this model."""
    rows = sorted((row for row in TABLE if row.gpu == gpu and row.on_demand), key=_per_gpu)
    if not rows:
        return None
    row = rows[(len(rows) - 1) // 2]
    if cloud:
        row = _of_cloud(rows, cloud, gpu)
    spot = row.spot_gpu_hour or _usual_spot(rows, row)
    return RentQuote(
        gpu=gpu,
        on_demand=to.of(_per_gpu(row)),
        spot=to.of(spot) if spot else None,
        source=f"{row.name}, {row.dated}",
        low=to.of(_per_gpu(rows[0])),
        high=to.of(_per_gpu(rows[-1])),
        grid=row.grid,
    )


def clouds() -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.cloud for row in TABLE))


def _of_cloud(rows: Sequence[PriceRow], cloud: str, gpu: str) -> PriceRow:
    offered = [row for row in rows if row.cloud.lower() == cloud.lower()]
    if not offered:
        cloud_names = ", ".join(dict.fromkeys(row.cloud for row in rows))
        raise BadInput(f"The price table has no {gpu} of '{cloud}'; it has {cloud_names}.")
    return offered[0]


def _usual_spot(rows: Sequence[PriceRow], row: PriceRow) -> Money | None:
    """By the median discount of the others, where this cloud sells none as spot."""
    shares = sorted(spot * MICRO // _per_gpu(other) for other in rows if (spot := other.spot_gpu_hour))
    return _per_gpu(row) * shares[len(shares) // 2] // MICRO if shares else None


def _per_gpu(row: PriceRow) -> Money:
    return row.on_demand_gpu_hour or 0
