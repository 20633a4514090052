"""Takes over what an older version kept in the file `leaving` of the home folder: which home clusters are being left.

The journal has it now, so that a standby with another home folder knows it, too. `wiring` calls this before the
controllers run.
"""

import asyncio
from pathlib import Path
from typing import Final

from penstock.front.manager import Manager

BRING_HOME: Final = "bring-home"  #: after a site's name: what runs elsewhere is moved home first


async def import_leave_file(file: Path, manager: Manager) -> None:
    """Leave its sites as if somebody asked now, and put it aside. Whoever is stopped in between asks again, which is
    the same.
    """
    if not await asyncio.to_thread(file.exists):
        return
    lines = (await asyncio.to_thread(file.read_text, "utf-8")).splitlines()
    for site, _, how in [line.partition(" ") for line in lines]:
        if site in manager.controllers:
            await manager.leave(site, how == BRING_HOME)
    await asyncio.to_thread(file.replace, file.with_name("leaving.imported"))
