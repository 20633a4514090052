"""The site of those who have no sites file: this machine. `penstock up` starts with it."""

from typing import Final

from penstock.config.sites import LocalSite, SitesFile
from penstock.core.model.types import NodeShape, Offer, Site

SLOTS: Final = 2  #: of a machine without GPUs


def this_machine(gpus: int) -> SitesFile:
    """One owned node, with a slot for each of its GPUs."""
    offer = Offer("here/gpu", "here", "owned", (NodeShape(gpus or SLOTS, 1),))
    return SitesFile("USD", (Site("here", (offer,), front_door=True),), local=(("here", LocalSite()),))
