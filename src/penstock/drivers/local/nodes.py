"""Rents the nodes of a local site: slots of this machine that are billed as a node would be. `LocalDriver` has one.

A node's whole life is written down when it is rented (`store.py`), and acted upon with or without a control plane. The
driver looks at the disk; this file says what that means for nodes.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.capacity.contract import Capacity, SeenNode
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode
from penstock.core.units import Instant
from penstock.drivers.local.store import LocalStore
from penstock.site_answers import Say, check_leads


class LocalNodes(Capacity):
    def __init__(
        self,
        disk: LocalStore,
        run: Callable[..., Awaitable[Any]],
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        something: asyncio.Event,
    ) -> None:
        """`run`: calls something in a thread; `until`: waits until it is true; `something`: set when there is something
        to poll.
        """
        super().__init__()
        self.disk, self.run, self.until, self.something = disk, run, until, something
        self.nodes: dict[str, Path] = {}  #: those that are not over

    async def open(self, say: Say) -> None:
        await super().open(say)
        self.nodes |= await self.run(self.disk.nodes)

    async def ask(self, ask: LaunchNode) -> None:
        check_leads()
        folder: Path = await self.run(self.disk.rent, ask)
        if os.path.lexists(folder / "gone.json"):
            self._say_over(ask.node, await self.run(self.disk.fate_of, folder))
            return
        self._watch(ask.node, folder)
        await self.until(lambda: self.disk.fate_of(folder) != "starting")
        if await self.run(self.disk.fate_of, folder) != "ready":
            raise asyncio.CancelledError  # lost before it was ready, which is reported as a fact

    async def list(self) -> tuple[SeenNode, ...]:
        seen: tuple[SeenNode, ...] = await self.run(self._seen)
        return seen

    def _seen(self) -> tuple[SeenNode, ...]:
        fates = [(node, folder, self.disk.fate_of(folder)) for node, folder in self.disk.nodes().items()]
        return tuple(
            [SeenNode(node, self.disk.deadline_at(at)) for node, at, fate in fates if fate in ("starting", "ready")]
        )

    async def release(self, node: str) -> None:
        folder: Path = await self.run(self.disk.release, node)
        if not os.path.lexists(folder / "gone.json"):
            self._watch(node, folder)
            await self.until(lambda: self.disk.fate_of(folder) in ("lost", "gone"))

    async def extend(self, node: str, deadline_at: Instant) -> Instant:
        stands: Instant = await self.run(self.disk.set_deadline, self.disk.node(node), node, deadline_at)
        return stands

    # --- news --------------------------------------------------------------------------------------------------------

    def _watch(self, node: str, folder: Path) -> None:
        self.nodes[node] = folder
        self.something.set()

    def over(self, nodes: Iterable[tuple[str, Path]]) -> dict[str, str]:
        """Which of them are over, and how. Called in a thread."""
        fates: dict[str, str] = {}
        for node, folder in nodes:
            with suppress(OSError):
                fates[node] = self.disk.fate_of(folder)
        return {node: fate for node, fate in fates.items() if fate in ("lost", "gone")}

    def say_over(self, fates: Mapping[str, str]) -> None:
        for node, fate in fates.items():
            folder = self.nodes.pop(node)
            self._say_over(node, fate)
            with suppress(OSError):
                self.disk.record_end_reported(folder)

    def _say_over(self, node: str, fate: str) -> None:
        at = self.disk.clock()
        self.say(e.NodeLost(at, node) if fate == "lost" else e.NodeGone(at, node))
