"""Errors of a Kubernetes API server, named by what the caller does next."""


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
