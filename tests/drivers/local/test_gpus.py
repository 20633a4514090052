"""Slots and real GPUs."""

import sys
from types import ModuleType

import pytest

from penstock.core.model.types import NodeShape, Offer, Site
from penstock.drivers.local.gpus import Slots, device_uuids

LAB = Site(
    "lab",
    (
        Offer("lab/a", "lab", "owned", (NodeShape(4, 2),)),
        Offer("lab/b", "lab", "on_demand", (NodeShape(2),), limit_gpus=6),
        Offer("lab/c", "lab", "spot", (NodeShape(1, 3),)),
    ),
)


def test_slots_are_counted_through_the_offers_and_none_is_in_two() -> None:
    slots = Slots(LAB, ())
    a, b, c = (slots.of_offer(offer) for offer in LAB.offers)
    assert [*a, *b, *c] == list(range(8 + 6 + 3))
    assert list(slots.of_node(LAB.offers[0], 1)) == [4, 5, 6, 7]


def test_a_slot_is_a_number_or_a_real_gpu_and_few_gpus_are_shared_in_turn() -> None:
    assert Slots(LAB, ()).visible([0, 5]) == "0,5"
    assert Slots(LAB, ("GPU-x", "GPU-y")).visible([1]) == "GPU-y"
    assert Slots(LAB, ("GPU-x", "GPU-y")).visible([0, 2, 3]) == "GPU-x,GPU-y"


class Nvml(ModuleType):
    """NVIDIA's bindings on a machine with two GPUs, or with none of its drivers."""

    class NVMLError(Exception):
        pass

    def __init__(self, works: bool) -> None:
        super().__init__("pynvml")
        self.works, self.open = works, False

    def nvmlInit(self) -> None:  # noqa: N802 - theirs, as below
        if not self.works:
            raise self.NVMLError("no driver")
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:  # noqa: N802
        return b"GPU-0" if handle == 0 else "GPU-1"


@pytest.mark.parametrize(("works", "gpus"), [(True, ("GPU-0", "GPU-1")), (False, ())])
def test_real_gpus_are_found_where_nvml_has_any(
    monkeypatch: pytest.MonkeyPatch, works: bool, gpus: tuple[str, ...]
) -> None:
    nvml = Nvml(works)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert device_uuids() == gpus
    assert not nvml.open


def test_without_the_bindings_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert device_uuids() == ()
