"""Who a person is. Today that comes from their token: browsers act for the token that let them in, and two tokens that
were made for the same name are one person. Routes that need a second person ask here, and login will answer here.
"""

import unicodedata

from penstock.journal.journal import Reader
from penstock.web.details import name_in
from penstock.web.tokens import MOST_DEEP, Token


def is_same_person(reader: Reader, caller: Token, other: str) -> bool:
    """True if the caller is whom this opaque id names. Reads the journal's tables: call it in a thread."""
    if not other:
        return False
    mine, theirs = _root(reader, caller.id), _root(reader, other)
    return mine == theirs or _alike(_name(reader, mine)) == _alike(_name(reader, theirs)) != ""


def _alike(name: str) -> str:
    """The same for names that people take for the same: without what differs in case, blanks and kinds of letters."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _root(reader: Reader, token: str) -> str:
    for _ in range(MOST_DEEP):
        row = reader.token(token)
        if row is None or not row.made_by:
            break
        token = row.made_by
    return token


def _name(reader: Reader, token: str) -> str:
    """Empty if nobody was named, or the name was erased."""
    row = reader.token(token)
    return name_in(reader.blob(row.name)) if row is not None and row.name else ""
