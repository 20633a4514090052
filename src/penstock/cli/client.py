"""HTTP client of the commands: finds the server and the token, and maps answers to exit codes.

Address and token are in Penstock's home folder, where `penstock up` wrote them; PENSTOCK_URL and PENSTOCK_TOKEN
override them. A token goes to the address it belongs to and to no other, never over plain HTTP beyond this machine, and
within it only to a program that may be a control plane: not to a job that listens on the port of one that is down.
Heavy modules are imported with the first request.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import click

from penstock.cli.output import safe

if TYPE_CHECKING:
    import socket
    import ssl

    import httpx2

UNANSWERED: Final = 3
ANSWERED: Final = "penstock.answered"  #: in the meta of a command's context: the address whose answer it goes by
FORBIDDEN: Final = 4
TOO_MANY: Final = 5
#: HTTP status -> exit code. Other 4xx are bad input.
EXIT_CODES: Final = {401: FORBIDDEN, 403: FORBIDDEN, 429: TOO_MANY}
PATIENCE_SECONDS: Final = 60  #: for a Penstock that is being started again while we follow something

F = TypeVar("F", bound=Callable[..., Any])


def home() -> Path:
    """Penstock's home folder: $PENSTOCK_HOME, or a folder in the user's data folder."""
    if named := os.environ.get("PENSTOCK_HOME"):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "penstock"


class Failed(click.ClickException):
    """A request failed: the server's own sentence, or ours if it sent none."""

    def __init__(self, message: str, exit_code: int = 2, status: int = 0) -> None:
        super().__init__("\n".join(safe(line) for line in message.split("\n")))
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for each class; ours differ by answer
        self.status = status


def talks(command: F) -> F:
    """Decorates a command that asks a running Penstock: adds --json and --url, and passes `client` and `as_json`."""

    @click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
    @click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print JSON; amounts are millionths of the currency, times milliseconds.",
    )
    @wraps(command)
    def with_client(*args: Any, url: str | None, **more: Any) -> Any:
        return command(*args, client=Client(url), **more)

    return with_client  # type: ignore[return-value]  # the options' names are taken out again


class Client:
    def __init__(self, url: str | None = None) -> None:
        self.url = (url or os.environ.get("PENSTOCK_URL") or _kept("address")).rstrip("/")
        if not self.url:
            raise Failed(
                f"No Penstock runs on this machine ({home()} has no address); start it: penstock up", UNANSWERED
            )
        self.withheld = ""  #: why no token was sent

    def get(self, path: str, **params: Any) -> Any:
        return self._json(self.send("GET", path, params=_said(params)))

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json", **headers}}
        return self._json(self.send("POST", path, **(sent if body is not None else {"headers": headers})))

    def put(self, path: str, body: Any) -> Any:
        return self._json(self.send("PUT", path, json=body))

    def delete(self, path: str) -> Any:
        return self._json(self.send("DELETE", path))

    def _json(self, answer: "httpx2.Response") -> Any:
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise self._not_ours(answer.status_code) from None

    def send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> "httpx2.Response":
        import httpx2

        try:
            return self.checked(self._session.request(method, path, headers=headers, **more))
        except httpx2.HTTPError as error:
            raise self.unanswered(error) from None

    def steadily(self, method: str, path: str, **more: Any) -> "httpx2.Response":
        """Like `send`, for requests that are repeated for hours: waits while Penstock restarts."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.send(method, path, **more)
            except Failed as failed:
                if failed.exit_code != UNANSWERED or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def lines(self, path: str, headers: dict[str, str], **params: Any) -> Iterator[str]:
        """Yields the lines of a streamed answer."""
        import httpx2

        try:
            with self._session.stream("GET", path, headers=headers, params=_said(params), timeout=None) as answer:
                if answer.status_code >= 400:
                    answer.read()
                yield from self.checked(answer).iter_lines()
        except httpx2.HTTPError as error:
            raise self.unanswered(error) from None

    @property
    def _session(self) -> "httpx2.Client":
        import httpx2

        if not hasattr(self, "_made"):
            self._made = httpx2.Client(**self._ways(), event_hooks={"request": [self._watch_connecting]})
            if context := click.get_current_context(silent=True):
                context.call_on_close(self._made.close)
        return self._made

    def session(self) -> "httpx2.AsyncClient":
        """Opens a WebSocket session."""
        import httpx2

        async def watched(request: "httpx2.Request") -> None:
            async def connected(event: str, info: dict[str, Any]) -> None:
                self._on_event(event, info)

            request.extensions = {**request.extensions, "trace": connected}

        return httpx2.AsyncClient(**self._ways(), event_hooks={"request": [watched]})

    def _watch_connecting(self, request: "httpx2.Request") -> None:
        request.extensions = {**request.extensions, "trace": self._on_event}

    def _on_event(self, event: str, info: dict[str, Any]) -> None:
        """Called by the HTTP client at each step of a request: after it has connected and before it sends anything."""
        if event == "connection.connect_tcp.complete" and self.url.startswith("http:") and self._token():
            self._check_listener(info["return_value"].get_extra_info("socket"))

    def _check_listener(self, connected: "socket.socket") -> None:
        """Without TLS only the kernel can say who listens there. Our own address is answered by whom our home belongs
        to, or by root; whoever answers at another one is no job.
        """
        from penstock.drivers.local.listeners import accepted_by

        try:
            owner = accepted_by(connected)
        except OSError as error:
            raise self.unanswered(error) from None
        if owner is None:
            return
        own = _kept("address")
        is_own = bool(own) and self._parsed(own) == self._parsed(self.url)
        if owner.is_job or (is_own and owner.uid not in (0, home().stat().st_uid)):
            raise Failed(
                f"No Penstock answers at {self.url}: {owner.words} listens there, and was sent no token. End it, and"
                " start Penstock: penstock up",
                UNANSWERED,
            )

    def _ways(self) -> dict[str, Any]:
        """Options of the HTTP client: address, token and trusted certificates."""
        token = self._token()
        if token and not (token.isascii() and token.isprintable()):
            raise Failed("The token has characters that no token has; copy it again.", FORBIDDEN)
        # trust_env off: a proxy of the environment is not for a server on this machine.
        auth = {"Authorization": f"Bearer {token}"} if token else {}
        return {"base_url": self.url, "headers": auth, "timeout": 40, "trust_env": False, "verify": self._trust()}

    def _token(self) -> str:
        """The token that belongs to this address; empty if we have none for it."""
        source, belongs_to = "PENSTOCK_TOKEN", os.environ.get("PENSTOCK_URL") or _kept("address")
        token = os.environ.get("PENSTOCK_TOKEN", "")
        if not token:
            source, belongs_to, token = f"{home() / 'token'}", _kept("address"), _kept("token")
        where = self._parsed(self.url)
        if not token:
            return ""
        if not belongs_to or self._parsed(belongs_to) != where:
            self.withheld = (
                f"The token of {source} is for {belongs_to or 'no address'} and was not sent to {self.url}; set"
                " PENSTOCK_URL and PENSTOCK_TOKEN to use that one."
            )
            return ""
        scheme, host, _ = where
        if scheme != "https" and not _is_here(host):
            raise Failed(
                f"Others could read your token on its way to {self.url}; use an https:// address, or a tunnel"
                " (ssh -L, kubectl port-forward).",
                FORBIDDEN,
            )
        return token

    def _parsed(self, url: str) -> tuple[str, str, int | None]:
        """Scheme, host and port, as the request itself will read them."""
        import httpx2

        try:
            parts = httpx2.URL(url)
        except (httpx2.InvalidURL, ValueError):
            raise Failed(f"{url!r} is not an address; write it like https://penstock.example.org:7070.") from None
        if parts.scheme not in ("http", "https") or not parts.host or parts.userinfo:
            raise Failed(f"{url!r} is not an address; write it like https://penstock.example.org:7070.")
        return parts.scheme, parts.host, parts.port

    def _trust(self) -> "ssl.SSLContext | bool":
        """What TLS trusts: for our own server exactly its certificate, otherwise the system's certificates and
        those in PENSTOCK_CA_FILE.
        """
        if not self.url.startswith("https:"):
            return False  # nothing to check, and to read the system's certificates takes longer than most requests
        import ssl

        own, authorities = home() / "certificate.pem", os.environ.get("PENSTOCK_CA_FILE")
        try:
            if _kept("address").rstrip("/") == self.url and own.exists():
                context = ssl.create_default_context(cafile=str(own))
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.check_hostname = False  # no other server has this certificate's key
                return context
            return ssl.create_default_context(cafile=authorities) if authorities else True
        except OSError as error:
            raise Failed(f"{authorities or own} cannot be used to check {self.url} ({error}).") from None

    def checked(self, answer: "httpx2.Response") -> "httpx2.Response":
        status = answer.status_code
        if context := click.get_current_context(silent=True):
            context.meta[ANSWERED] = self.url
        if status < 300:
            return answer
        if status == 401 and self.withheld:
            raise Failed(self.withheld, FORBIDDEN, status)
        try:
            detail = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._not_ours(status) from None
        raise Failed(detail, UNANSWERED if status >= 500 else EXIT_CODES.get(status, 2), status)

    def _not_ours(self, status: int) -> Failed:
        code = EXIT_CODES.get(status, 2) if 400 <= status < 500 else UNANSWERED
        return Failed(f"{self.url} answered {status}, and not as a Penstock does.", code, status)

    def unanswered(self, error: Exception) -> Failed:
        return Failed(f"No Penstock answers at {self.url} ({error}); start it: penstock up", UNANSWERED)


def job_path(job: str, suffix: str = "") -> str:
    """The API path of a job. The id is quoted, so that it stays one part of the path."""
    return f"/v1/jobs/{quote(job, safe='')}{suffix}"


def find_job(client: Client, named: str) -> str:
    """The id of a job, which may be named as its home Job is: NAME, or NAMESPACE/NAME. The newest of that name."""
    if "/" not in named:
        try:
            client.get(job_path(named))
            return named
        except Failed as failed:
            if failed.status != 404:
                raise
    rows = client.get("/v1/jobs", text=named)["jobs"]
    same = [str(row["id"]) for row in rows if named in (row["name"], str(row["name"]).rpartition("/")[2])]
    if not same:
        raise Failed(f"There is no job '{named}'; 'penstock jobs' lists them.", status=404)
    return same[0]


def _is_here(host: str) -> bool:
    """True if what is sent there stays on this machine."""
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _said(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value not in (None, "", ())}


def _kept(name: str) -> str:
    path = home() / name
    try:
        if name == "token" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise Failed(f"Other users can read {path}; protect it: chmod 600 {path}", FORBIDDEN)
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Failed(f"{path} cannot be read ({error.strerror}).") from None
