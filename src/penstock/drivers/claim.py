"""A site's claim: which control plane it obeys. `live/site_claims` reads and renews it; each kind of site has a store.

One installation has one journal, and one control plane. But a journal can be copied, and a copy has the same
installation. So a claim carries an incarnation, which the control plane renews every few seconds: first in its journal,
then at the site. A copy of the journal does not have the newest ones.
"""

from typing import Final, Protocol

import msgspec

from penstock.core.values import value

MOST_EPOCHS: Final = 2**62  #: a journal counts no further
MOST_BYTES: Final = 64 << 10  #: of a claim; whatever is longer is none


class Superseded(Exception):
    """The site has another claim than the one that was to be replaced."""


@value
class Claim:
    installation: str
    epoch: int = 0  # of the journal's lease
    incarnation: str = ""  # random; empty: an older Penstock wrote the claim
    place: str = ""  # where the journal is that renews it: a copy of the journal has another
    holder: str = ""  # machine and home folder, for people
    head: str = ""  # number and hash of the journal's last step then


@value
class SeenClaim:
    claim: Claim | None  # None: nobody has claimed the site
    version: str = ""  # of the site's record: a write replaces this version, or fails
    doubt: str = ""  # why the record proves nothing: it is damaged, or was copied here


class ClaimStore(Protocol):
    """Where a site keeps its claim. Calls raise `Unreachable`, and `Refused` if another installation owns the site."""

    by_path: bool  #: the site is found by a path, which is another place on another machine

    async def read(self) -> SeenClaim: ...

    async def write(self, claim: Claim, over: SeenClaim) -> SeenClaim:
        """Replace `over` and nothing else: otherwise raises `Superseded`."""

    async def is_renewed(self, seen: SeenClaim) -> bool:
        """True if a control plane lives that renews this claim. It may take a while to see that none does."""


def packed(claim: Claim, **more: str) -> str:
    return msgspec.json.encode({**msgspec.to_builtins(claim), **more}).decode()


def unpacked(text: str) -> Claim | None:
    """None: this is no claim."""
    try:
        claim = msgspec.json.decode(text, type=Claim)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return claim if 0 <= claim.epoch < MOST_EPOCHS else None
