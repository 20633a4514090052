"""Renews the token of a kubeconfig that `penstock connect` wrote, before it ends. `access` makes it; `transport` asks.

Such a kubeconfig bears the mark `penstock.dev/renew`. Its token is a service account's, bound in time; the account may
create a new one for itself and for nobody else. The new token goes back to where the old one was read: the file, or
the Secret. Tokens that were not marked are left alone.
"""

import asyncio
import base64
import binascii
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from penstock.core.values import value

MARK: Final = "penstock.dev/renew"
LIFE_S: Final = 7 * 86_400  #: what we ask for; a cluster may give less
AGAIN_S: Final = 60  #: after a renewal that failed
SUBJECT: Final = "system:serviceaccount:"
Json = dict[str, Any]


class TokenStore(Protocol):
    """Where a kubeconfig is kept. Both methods block; `OSError` and `ValueError` say why not."""

    def load(self) -> Json: ...

    def save(self, kubeconfig: Json) -> None: ...


class KubeconfigFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Json:
        import yaml

        kubeconfig = yaml.safe_load(self.path.read_text())
        if not isinstance(kubeconfig, dict):
            raise ValueError("it is no kubeconfig")
        return kubeconfig

    def save(self, kubeconfig: Json) -> None:
        """At once, and for us alone: whoever reads it sees the old file or the new one."""
        text = json.dumps(kubeconfig, indent=2) + "\n"
        with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix=f".{self.path.name}-", delete=False) as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        os.replace(new.name, self.path)


@value
class BoundToken:
    """A service account's token, as it says of itself. Whether that is true only the cluster knows."""

    namespace: str
    account: str
    begins: float
    ends: float

    @property
    def half(self) -> float:
        return (self.begins + self.ends) / 2


def read_token(token: str) -> BoundToken | None:
    """None: it is no service account's, or it never ends."""
    try:
        middle = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        subject = str(claims["sub"])
        namespace, account = subject.removeprefix(SUBJECT).split(":")
        begins, ends = float(claims["iat"]), float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None
    return BoundToken(namespace, account, begins, ends) if subject.startswith(SUBJECT) else None


def marked(life_s: int = LIFE_S) -> list[Json]:
    """A kubeconfig user's `extensions`, as kubectl has them, with our mark."""
    return [{"name": MARK, "extension": {"seconds": life_s}}]


def token_request(life_s: int) -> Json:
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": life_s},
    }


class TokenRenewal:
    """One marked user of one kubeconfig."""

    def __init__(self, store: TokenStore, user: str, life_s: int, now: Callable[[], float] = time.time) -> None:
        self.store, self.user, self.life_s, self.now = store, user, life_s, now
        self.token: BoundToken | None = None
        self.not_before = 0.0
        self.last_notice = ""

    def take(self, token: str) -> None:
        """The token in use from now on."""
        self.token = read_token(token)

    def due(self) -> bool:
        """From half of its life on, and not again within a minute of a failure."""
        return self.token is not None and self.now() >= max(self.token.half, self.not_before)

    @property
    def path(self) -> str:
        assert self.token is not None
        return f"/api/v1/namespaces/{quote(self.token.namespace)}/serviceaccounts/{quote(self.token.account)}/token"

    def begin(self) -> bytes:
        """The body of the request; the next one is due after a while, however this one ends."""
        self.not_before = self.now() + AGAIN_S
        return json.dumps(token_request(self.life_s)).encode()

    async def renewed(self, status: int, content: bytes) -> str:
        """The new token, in use and kept; empty, and said once, if the cluster gave none."""
        try:
            answer = json.loads(content)
            token = str(answer["status"]["token"]) if status < 300 else ""
        except (ValueError, KeyError, TypeError):
            answer, token = {}, ""
        if not token:
            words = answer.get("message") if isinstance(answer, dict) else ""
            self._tell(f"The token of '{self.user}' was not renewed: {words or f'the cluster answers {status}'}.")
            return ""
        self.take(token)
        await asyncio.to_thread(self._keep, token)
        return token

    async def newest(self) -> str:
        """As it is stored now: another control plane may have renewed it."""
        token = await asyncio.to_thread(self._stored)
        self.take(token)
        return token

    def _keep(self, token: str) -> None:
        try:
            kubeconfig = self.store.load()
            user_of(kubeconfig, self.user)["token"] = token
            self.store.save(kubeconfig)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._tell(f"The renewed token of '{self.user}' is used, but cannot be stored ({error}).")

    def _stored(self) -> str:
        try:
            return str(user_of(self.store.load(), self.user)["token"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"the kubeconfig has no token for '{self.user}' any more") from error

    def _tell(self, words: str) -> None:
        if words != self.last_notice:
            self.last_notice = words
            sys.stderr.write(f"Notice: {words}\n")


def user_of(kubeconfig: Mapping[str, Any], name: str) -> Json:
    users: list[Json] = [user["user"] for user in kubeconfig["users"] if user["name"] == name]
    if not users:
        raise KeyError(name)
    return users[0]


def life_asked(user: Mapping[str, Any]) -> int:
    """The seconds that our mark asks for; 0 without the mark."""
    try:
        marks = [extension for extension in user.get("extensions") or () if extension["name"] == MARK]
        return int(marks[0]["extension"]["seconds"]) if marks else 0
    except (KeyError, TypeError, ValueError):
        return LIFE_S
