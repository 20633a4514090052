"""Errors of a Kubernetes API server, named by what the caller does next."""

import re
from collections.abc import Collection
from typing import Final

#: Our admission policies that let only us write what they protect: if they deny us, they do not know our login.
LOGIN_POLICIES: Final = ("penstock-bindings", "penstock-users")


class KubeError(Exception):
    """The message is the cluster's own if it sent one."""


class NotFound(KubeError):
    """The object does not exist; the API server said so."""


class Conflict(KubeError):
    """Somebody else wrote first: read again, then decide again."""


class AlreadyExists(Conflict):
    """An object of this name exists: check whose it is."""


class Gone(KubeError):
    """The server no longer has this resourceVersion: list again."""


class Invalid(KubeError):
    """The server will never accept this object: tell its author."""


class Forbidden(KubeError):
    """`by_account`: our account lacks a right, and a person must grant it. Otherwise an admission policy refused."""

    def __init__(self, words: str, verb: str, resource: str) -> None:
        super().__init__(words)
        self.verb, self.resource = verb, resource
        self.by_account = f"cannot {verb} resource" in words


class Unavailable(KubeError):
    """Retry later: the request may or may not have taken effect."""


class Silent(Unavailable):
    """No answer at all: other connections to this server may be dead, too."""


def own_policy(error: KubeError) -> str:
    """Our own policy that denied the request because it does not know our login; empty if none did."""
    denied = re.search(r"ValidatingAdmissionPolicy '([^']+)'", str(error))
    return denied[1] if denied and denied[1] in LOGIN_POLICIES else ""


def gone_namespace(error: KubeError, ending: Collection[str] = ()) -> str:
    """The namespace that is not there, or on its way out, so that nothing can be created in it; empty otherwise.
    `ending`: those whose deletion was seen, and which may have taken our Role with them.
    """
    words = str(error)
    if isinstance(error, NotFound):
        found = re.fullmatch(r'namespaces "([^"]+)" not found', words)
    elif isinstance(error, Forbidden) and "because it is being terminated" in words:
        found = re.search(r"in namespace (\S+)", words)
    elif isinstance(error, Forbidden) and error.by_account:
        found = re.search(r'in the namespace "([^"]+)"', words)
        return found[1] if found and found[1] in ending else ""
    else:
        found = None
    return found[1] if found else ""
