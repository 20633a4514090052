"""Assigns GPUs of this machine to attempts. Slots are numbered through the site's offers; `LocalStore` assigns them.

Where NVML finds GPUs, a slot is one of them, by its UUID. Otherwise slots are only numbers, and a job that looks for a
GPU finds none.
"""

from collections.abc import Iterable
from typing import Final

from penstock.core.model.types import STANDING, Offer, Site

#: An offer without a count is unlimited; this many slot numbers are reserved for it.
UNCOUNTED: Final = 4096


class Slots:
    """Slot numbers of a site's GPUs, offer after offer, and their CUDA names."""

    def __init__(self, site: Site, devices: tuple[str, ...] | None = None) -> None:
        self.devices = device_uuids() if devices is None else devices
        self.first: dict[str, int] = {}
        self.count = 0
        self.add(site)

    def add(self, site: Site) -> None:
        """Offers that are new come after all others, whose jobs keep their slots."""
        for offer in site.offers:
            if offer.id not in self.first:
                self.first[offer.id] = self.count
                self.count += size(offer)

    def of_node(self, offer: Offer, node: int) -> range:
        """Slots of the n-th node of a standing offer."""
        first = self.first[offer.id] + node * offer.shapes[-1].gpus
        return range(first, first + offer.shapes[-1].gpus)

    def of_offer(self, offer: Offer) -> range:
        return range(self.first[offer.id], self.first[offer.id] + size(offer))

    def visible(self, slots: Iterable[int]) -> str:
        """For CUDA_VISIBLE_DEVICES. With more slots than GPUs, slots share GPUs in turn."""
        names = [self.devices[slot % len(self.devices)] if self.devices else str(slot) for slot in slots]
        return ",".join(dict.fromkeys(names))


def size(offer: Offer) -> int:
    counts = [shape.gpus * shape.count for shape in offer.shapes if shape.count is not None]
    everything = sum(counts) if len(counts) == len(offer.shapes) else UNCOUNTED
    limit = offer.limit_gpus
    return everything if limit is None or offer.term in STANDING else min(everything, limit)


def device_uuids() -> tuple[str, ...]:
    """UUIDs of this machine's GPUs in NVML's order; empty without the extra `gpu`, a driver or a GPU."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        count = pynvml.nvmlDeviceGetCount()
        return tuple(_text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(k))) for k in range(count))
    finally:
        pynvml.nvmlShutdown()


def _text(uuid: str | bytes) -> str:
    return uuid if isinstance(uuid, str) else uuid.decode()  # older bindings return bytes
