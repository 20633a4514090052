"""Lets a backup of a journal go on. `penstock journal restore` calls it.

Nothing is told to the sites here. The next writer finds the note, takes every site whatever its claim says, and raises
the epoch above what the site has seen: whoever still renews the old claim finds that and ends.
"""

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.formatting import instant
from penstock.journal.anchors import Anchor, write_anchor
from penstock.journal.folding import fold_all
from penstock.journal.journal import Held
from penstock.journal.open import is_postgres, must_exist, open_journal, reachable, read
from penstock.journal.writer import JournalWriter

LEASE_MS: Final = 10_000  #: short, so that nobody waits if we are killed


def last_of(where: str) -> tuple[int, Instant]:
    """The last step and when it was, after every step was verified."""
    number, at = 0, 0
    for row in read(where):
        number, at = row.number, row.at
    return number, at


def question(source: str, where: str, steps: int, last_at: Instant) -> str:
    """What a person should know before they say yes."""
    put = f"It replaces {where}. " if source != where else ""
    return (
        f"{source} ends with step {steps:,} ({instant(last_at)}). {put}Whatever happened since is not in it: jobs that"
        " were submitted since are unknown, and money that was spent since is not counted. If another control plane of"
        " this installation still runs, it will end; jobs at the sites are not stopped. Does this journal go on?"
    )


def put_in_place(backup: str, where: str) -> str:
    """Copy a SQLite backup to where the journal is. Returns the new name of what was there; empty if nothing was."""
    if is_postgres(backup) or is_postgres(where):
        raise BadInput("--from copies SQLite files; restore a PostgreSQL backup with its own tools, then leave it out.")
    must_exist(backup)
    if Path(where).exists():
        _check_unused(where)
    try:
        fresh = _copied(backup, f"{where}.restoring")
        aside = _put_aside(where) if Path(where).exists() else ""
        os.rename(fresh, where)
    except (OSError, sqlite3.Error) as error:
        raise BadInput(f"Cannot copy {backup} to {where}: {error}.") from None
    return aside


def _copied(backup: str, fresh: str) -> str:
    """All of the backup in one file, whoever writes it meanwhile."""
    Path(fresh).unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(fresh)) as copy:
        source.backup(copy)
        copy.execute("pragma journal_mode=delete")
    return fresh


def _put_aside(where: str) -> str:
    aside = f"{where}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(where + end, aside + end)
    return aside


def _check_unused(where: str) -> None:
    """Raise if a process writes the journal that is to be replaced."""
    with reachable(), closing(open_journal(where, create=False)) as journal:
        journal.release(_taken(journal))


def restore(where: str, anchors: Sequence[str] = ()) -> None:
    """Note that this journal goes on in any case, in itself and after these anchors."""
    now = int(time.time() * 1000)
    with reachable(), closing(open_journal(where, create=False)) as journal:
        for _ in fold_all(journal.read(), where):  # one that no start could go on from is not put in charge
            pass
        epoch = _taken(journal)
        note = Anchor(journal.claims().head, journal.installation, now, restored=True)
        for file in anchors:
            try:
                write_anchor(file, note)
            except OSError as error:
                raise BadInput(f"Cannot note the restore in {file}: {error.strerror or error}.") from None
        journal.restore(epoch, now)
        journal.release(epoch)


def _taken(journal: JournalWriter) -> int:
    """The journal's lease, also if a copied one has not run out. Raises `BadInput` while somebody writes this one."""
    try:
        return journal.take("penstock journal restore", int(time.time() * 1000), LEASE_MS, copied=True)
    except Held as error:
        raise BadInput(str(error)) from None
