"""Limits on the memory and the processes of a job, by cgroups of version 2 where root can write them. The supervisor
makes one for each attempt; standard library only.

All of them are below `penstock` at the top of the hierarchy. Where that cannot be made, or the controllers are missing,
jobs have a limit on processes alone, by their user.
"""

import os
import time
from contextlib import suppress
from typing import Final

CONTROLLERS: Final = ("memory", "pids")


def top() -> str:
    """Where cgroups for attempts can be made; empty if nowhere."""
    mounted = _mounted()
    above = f"{mounted}/penstock"
    if not mounted or not set(CONTROLLERS) <= set(_read(f"{mounted}/cgroup.controllers").split()):
        return ""
    try:
        os.makedirs(above, exist_ok=True)
        for place in (mounted, above):
            _enable(place)
    except OSError:
        return ""
    return above


def _mounted() -> str:
    """Where cgroups of version 2 are mounted."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
        rows = [line.split() for line in file]
    return next((row[1] for row in rows if row[2] == "cgroup2"), "")


def _enable(place: str) -> None:
    if not set(CONTROLLERS) <= set(_read(f"{place}/cgroup.subtree_control").split()):
        _write(f"{place}/cgroup.subtree_control", " ".join(f"+{name}" for name in CONTROLLERS))


def make(place: str, memory: int, processes: int) -> None:
    """Make a cgroup; `memory` 0 is no limit."""
    os.makedirs(place, exist_ok=True)
    _write(f"{place}/pids.max", str(processes))
    if memory:
        _write(f"{place}/memory.max", str(memory))
        with suppress(OSError):  # a kernel without swap accounting
            _write(f"{place}/memory.swap.max", "0")
        _write(f"{place}/memory.oom.group", "1")


def join(place: str) -> None:
    """Move this process there; what it starts is there, too."""
    _write(f"{place}/cgroup.procs", "0")


def end(place: str) -> None:
    """Kill what is there, and remove it."""
    with suppress(OSError):
        _write(f"{place}/cgroup.kill", "1")
    for _ in range(100):
        try:
            os.rmdir(place)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
