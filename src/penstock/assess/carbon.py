"""What a kWh emits, by grid zone. Yearly means; life-cycle emissions in grams of CO2-equivalent.

Source of DE, GB, ES, NO and US-PJM: Electricity Maps, hourly life-cycle values of 2023 (ODbL), our mean. A zone that is
not listed is not guessed: carbon is then left out, with a sentence.
"""

from typing import Final

GRIDS: Final[dict[str, int]] = {"DE": 367, "GB": 188, "ES": 160, "NO": 34, "US-PJM": 392}
SOURCE: Final = "Electricity Maps, life-cycle, mean of 2023"


def kilograms(gpu_hours: float, watts: int, pue: float, grams_per_kwh: int) -> float:
    return gpu_hours * watts * pue / 1_000 * grams_per_kwh / 1_000
