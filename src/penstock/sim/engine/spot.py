"""Spot zones and when they have capacity: recorded traces from files, or zones generated from measured statistics."""

import csv
from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput
from penstock.core.units import HOUR, SECOND, Instant
from penstock.core.values import value
from penstock.sim.engine.chance import exponential, uniform
from penstock.sim.engine.world import Zone


@value
class ZoneFact:
    """A zone's statistics for one V100 instance: share of time with capacity, and hours between losses."""

    name: str
    availability: float
    hours_between_losses: float


#: AWS, p3.2xlarge, 45 days from 2023-02-15; counted from the availability traces published with SkyPilot's spot work.
ZONES: Final = (
    ZoneFact("us-east-1a", 0.167, 0.72),
    ZoneFact("us-east-1c", 0.467, 1.49),
    ZoneFact("us-east-1d", 0.447, 1.67),
    ZoneFact("us-east-1f", 0.591, 2.26),
    ZoneFact("us-east-2a", 0.759, 5.72),
    ZoneFact("us-east-2b", 0.682, 4.28),
)


def made_up_zone(fact: ZoneFact, until: Instant, seed: int) -> Zone:
    """Alternating exponential up and down times with the zone's means."""
    up_ms = fact.hours_between_losses * HOUR
    down_ms = up_ms * (1 - fact.availability) / fact.availability
    at = 0 if uniform(seed, fact.name) < fact.availability else int(exponential(down_ms, seed, fact.name, "first"))
    changes = [at]
    while at < until:
        mean = up_ms if len(changes) % 2 else down_ms
        at += max(SECOND, int(exponential(mean, seed, fact.name, len(changes))))
        changes.append(at)
    return Zone(changes)


def recorded_zones(folder: str, start: str, gpus: int, until: Instant) -> dict[str, Zone]:
    """Zones of one recording (`start`, GPUs per instance) in spot_index.csv and spot_rle.csv, repeated to `until`."""
    try:
        with (Path(folder) / "spot_index.csv").open(newline="") as file:
            index = list(csv.DictReader(file))
        with (Path(folder) / "spot_rle.csv").open(newline="") as file:
            runs = {row["trace_id"]: row["rle"] for row in csv.DictReader(file)}
        wanted = [row for row in index if row["start_utc"].startswith(start) and int(row["gpus_per_instance"]) == gpus]
        return {row["zone"]: _zone(runs[row["trace_id"]], int(row["step_s"]) * SECOND, until) for row in wanted}
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} does not hold spot traces (spot_index.csv, spot_rle.csv): {error}.") from None


def _zone(rle: str, step_ms: int, until: Instant) -> Zone:
    pieces = [(int(level), int(count) * step_ms) for level, _, count in (part.partition("x") for part in rle.split())]
    changes: list[Instant] = []
    at, up = 0, False
    while at < until:
        for level, lasts in pieces:
            if (level > 0) != up:
                up = level > 0
                changes.append(at)
            at += lasts
    return Zone(changes)
