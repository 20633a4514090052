"""What a training job may tell Penstock, and ask it. For jobs to import; Penstock itself does not.

    from penstock import sdk

    found = sdk.latest()                                   # the newest whole checkpoint, or None
    model = load(found.read()) if found else new_model()
    for step in range(found.step if found else 0, 300):
        train(model)
        sdk.progress(step + 1, of=300)
        if sdk.due(every_s=60):                            # a minute has passed, or we are told to stop
            sdk.save(step + 1, dump(model))                # bytes, a file or a folder: whole or not at all
        if sdk.stopping():                                 # SIGTERM: there is a checkpoint, so go
            break

Only the standard library is needed. With obstore (`pip install 'obstore>=0.10'`) large files go to a bucket faster,
and buckets need not be S3's. The same script runs without Penstock too: then it prints what it would report, and keeps
checkpoints in `./checkpoints`.
docs/checkpoints.md says what is behind this, for jobs in other languages.
"""

import operator
import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import SupportsIndex

from penstock.sdk.checkpoints import Checkpoint, CheckpointStore, Damaged, place

__all__ = ["Checkpoint", "Damaged", "attempt", "due", "latest", "progress", "resuming", "save", "stopping"]

_told_to_stop = threading.Event()
_last_save = time.monotonic()  # of the program's start, until there is one
_listening = False


def progress(step: SupportsIndex, of: SupportsIndex | None = None) -> None:
    """So many steps are done. A step beyond the last is a slip, and no reason to end a training: it is told alone."""
    done, most = _whole(step, "step"), None if of is None else _whole(of, "of")
    if most is not None and done > most:
        warnings.warn(f"penstock.sdk.progress: step {done} is beyond of={most}", stacklevel=2)
        most = None
    _report(f"step {done}" if most is None else f"step {done} of {most}")


def save(step: SupportsIndex, what: bytes | str | os.PathLike[str], keep: int = 2) -> None:
    """Write a checkpoint: bytes, or the file or folder at a path. It counts once all of it is there.

    The `keep` newest stay. Call it from one process of the job only.
    """
    global _last_save  # noqa: PLW0603 - one job a process, as one signal handler
    step = _whole(step, "step")
    shelf().save(step, what if isinstance(what, bytes) else Path(what))
    _report(f"checkpoint step {step}")
    _last_save = time.monotonic()
    shelf().keep(keep)


def latest() -> Checkpoint | None:
    """The newest checkpoint that is whole, of this attempt or an earlier one."""
    return shelf().latest()


def due(every_s: float) -> bool:
    """Is it time for a checkpoint? So many seconds after the last one, and at once when told to stop."""
    return stopping() or time.monotonic() - _last_save >= every_s


def stopping() -> bool:
    """Was the job told to stop? From the first call on, SIGTERM no longer ends the program: it is yours to end."""
    _listen()
    return _told_to_stop.is_set()


def resuming() -> bool:
    """Does Penstock believe that an earlier attempt left a checkpoint?"""
    return bool(os.environ.get("PENSTOCK_RESUME"))


def attempt() -> str:
    """This attempt's id, `JOB.NUMBER`; empty outside Penstock."""
    return os.environ.get("PENSTOCK_ATTEMPT", "")


def shelf() -> CheckpointStore:
    """Where this job's checkpoints are."""
    return CheckpointStore(place(os.environ.get("PENSTOCK_CHECKPOINT_URL") or Path("checkpoints").absolute().as_uri()))


def _whole(number: SupportsIndex, name: str) -> int:
    """Also what other libraries have for whole numbers. Wrong calls are wrong from the first one on."""
    try:
        whole = operator.index(number)
    except TypeError:
        raise TypeError(f"penstock.sdk: {name} is a whole number, not {number!r:.60}") from None
    if whole < 0:
        raise ValueError(f"penstock.sdk: {name} counts from 0, and is {whole}")
    return whole


def _report(words: str) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    line = f"penstock: {words}\n"
    path = os.environ.get("PENSTOCK_REPORT")
    if not path:
        print(line, end="", flush=True)
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _listen() -> None:
    """From a thread that is not the main one Python takes no signals: then whoever calls there never hears it."""
    global _listening  # noqa: PLW0603 - as above
    if _listening or threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)

    def on_sigterm(number: int, frame: object) -> None:
        _told_to_stop.set()
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]  # a frame, but its type is of no use to us

    signal.signal(signal.SIGTERM, on_sigterm)
    _listening = True
