"""What a cluster answers when it does not do what it was asked, named by what the caller does next."""


class KubeError(Exception):
    """The words are the cluster's own where it said any."""


class NotFound(KubeError):
    """It is not there: the cluster said so, which is more than not being heard."""


class Conflict(KubeError):
    """Somebody else was first: look again, then decide again."""


class AlreadyExists(Conflict):
    """One of this name is there: look whose it is."""


class Gone(KubeError):
    """What is asked from there on is no longer kept: list again."""


class Invalid(KubeError):
    """It will never take this: tell whoever wrote it."""


class Forbidden(KubeError):
    """`by_account`: our account lacks a right, and a person must grant it. Otherwise a rule of the cluster said no."""

    def __init__(self, words: str, verb: str, resource: str) -> None:
        super().__init__(words)
        self.verb, self.resource = verb, resource
        self.by_account = f"cannot {verb} resource" in words


class Unavailable(KubeError):
    """Again later: it may or may not have happened."""


class Silent(Unavailable):
    """It said nothing at all: who else listens to it may be waiting in vain."""
