"""Rows of the API's tokens and of their revocations. `projection` makes them from the chain, so that every control
plane of one journal knows the same tokens; `web.tokens` follows them.
"""

from penstock.core.model import events as e
from penstock.core.units import Instant
from penstock.core.values import value


@value
class TokenRow:
    id: str
    digest: str  # SHA-256 of the secret, in hex
    role: str
    team: str  # empty: all teams
    expires_at: int  # seconds since 1970; 0: never
    made_by: str  # of a browser's token: the token that let it in
    name: str  # digest of the name of whom it is for; empty: it has none
    number: int  # of its step: followers ask for what is newer
    part: int  # its index in the step


@value
class RevocationRow:
    token: str
    at: Instant
    number: int  # of its step
    part: int


def token_row(number: int, part: int, event: e.TokenIssued) -> TokenRow:
    return TokenRow(
        id=event.token,
        digest=event.digest,
        role=event.role,
        team=event.team,
        expires_at=event.expires_at,
        made_by=event.made_by,
        name=event.name,
        number=number,
        part=part,
    )


def revocation_row(number: int, part: int, event: e.TokenRevoked) -> RevocationRow:
    return RevocationRow(event.token, event.at, number, part)
