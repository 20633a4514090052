"""Verifies a journal's hash chain, and summarises it. `penstock journal` and the API's health endpoint use it."""

from contextlib import closing

from penstock.core.errors import BadInput
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.journal import anchors
from penstock.journal.database import has
from penstock.journal.open import database, must_exist, reachable, read


@value
class About:
    where: str
    installation: str
    format: int
    steps: int
    head: str  # number and hash of the last step: stored elsewhere, it detects a truncated journal
    first_at: Instant | None
    last_at: Instant | None
    projected: int  # steps that the tables include
    writer: str
    epoch: int


def about(where: str) -> About:
    """A journal's summary, without verification."""
    must_exist(where)
    with reachable(), closing(database(where, readonly=True)) as db:
        (version,) = db.all("select format from journal")[0]
        if version == 1:
            raise BadInput(f"{where} is a journal of format 1, which says nothing of itself; it can be read.")
        installation, head, link, projected = db.all("select installation, head, hash, projected from journal")[0]
        first_at, last_at = db.all("select min(at), max(at) from steps")[0]
        epoch, writer = db.all("select epoch, holder from lease")[0] if projected else (0, "")
        return About(
            where,
            installation,
            version,
            head,
            f"{head}:{bytes(link).hex()}",
            first_at,
            last_at,
            projected,
            writer,
            epoch,
        )


def verify(where: str, expected: str = "") -> tuple[int, str]:
    """Verify every row against the chain and the end against the head, then against a head that was stored elsewhere:
    `NUMBER:HASH`.

    Returns the number of steps and the head. Whoever can change the whole file can truncate steps and head together;
    only a head stored elsewhere detects that.
    """
    noted, link = _noted(expected)
    steps, hashes = 0, dict[int, str]()
    with reachable(), closing(database(where, readonly=True)) as db:
        for row in read(where):
            steps = row.number
        wanted = [number for number in (noted, steps) if number]
        for number in wanted:
            rows = db.all("select hash from steps where number = ?", number)
            hashes[number] = bytes(rows[0][0]).hex() if rows else ""
    if noted and hashes.get(noted) != link:
        outcome = "is another one now" if hashes.get(noted) else "is gone"
        raise BadInput(f"{where}: step {noted}, noted as {link[:12]}..., {outcome}; this is not the journal it was.")
    return steps, f"{steps}:{hashes.get(steps, '')}"


def compare_anchors(where: str, file: str) -> int:
    """Hold the anchors in a file against the journal; returns how many there are. Raises `BadInput`."""
    must_exist(where)
    with reachable(), closing(database(where, readonly=True)) as db:
        ((installation,),) = db.all("select installation from journal")
        return anchors.compare(file, installation, lambda head: has(db, head))


def _noted(expected: str) -> tuple[int, str]:
    number, colon, link = expected.partition(":")
    if expected and not (colon and number.isdigit() and len(link) == 64):
        raise BadInput(f"'{expected}' is no head of a journal; `penstock journal info` prints one as NUMBER:HASH.")
    return int(number or 0), link
