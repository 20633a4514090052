"""HTTP client of the commands: finds the server and the token, and maps answers to exit codes.

Address and token are in Penstock's home folder, where `penstock up` wrote them; PENSTOCK_URL and PENSTOCK_TOKEN
override them. Heavy modules are imported with the first request.
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

if TYPE_CHECKING:
    import httpx2

UNANSWERED: Final = 3
FORBIDDEN: Final = 4
TOO_MANY: Final = 5
#: HTTP status -> exit code. Other 4xx are bad input.
EXIT_CODES: Final = {401: FORBIDDEN, 403: FORBIDDEN, 429: TOO_MANY}
PATIENCE_SECONDS: Final = 60  #: for a Penstock that is being started again while we follow something

F = TypeVar("F", bound=Callable[..., Any])


def home() -> Path:
    """$PENSTOCK_HOME, or where the machine keeps such things."""
    if named := os.environ.get("PENSTOCK_HOME"):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "penstock"


class Failed(click.ClickException):
    """The sentence that the server gave, or ours if it gave none."""

    def __init__(self, message: str, exit_code: int = 2, status: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for each class; ours differ by answer
        self.status = status


def talks(command: F) -> F:
    """A command that asks a running Penstock: gets a `client`, and `as_json`."""

    @click.option("--url", metavar="URL", help="Address of another Penstock than this machine's.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
        self.token = os.environ.get("PENSTOCK_TOKEN") or _kept("token")

    def get(self, path: str, **params: Any) -> Any:
        return self.send("GET", path, params=_said(params)).json()

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json", **headers}}
        return self.send("POST", path, **(sent if body is not None else {"headers": headers})).json()

    def put(self, path: str, body: Any) -> Any:
        return self.send("PUT", path, json=body).json()

    def delete(self, path: str) -> Any:
        return self.send("DELETE", path).json()

    def send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> "httpx2.Response":
        import httpx2

        try:
            return self.checked(self._session.request(method, path, headers=headers, **more))
        except httpx2.HTTPError as error:
            raise self.unanswered(error) from None

    def steadily(self, method: str, path: str, **more: Any) -> "httpx2.Response":
        """As `send`, for what goes on for hours: a Penstock that is being started again is waited for."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self.send(method, path, **more)
            except Failed as failed:
                if failed.exit_code != UNANSWERED or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def lines(self, path: str, headers: dict[str, str], **params: Any) -> Iterator[str]:
        """The lines of an answer that does not end."""
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
            # trust_env off: a proxy of the environment is not for a server on this machine.
            auth = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            self._made = httpx2.Client(base_url=self.url, headers=auth, timeout=40, trust_env=False)
            if context := click.get_current_context(silent=True):
                context.call_on_close(self._made.close)
        return self._made

    def session(self) -> "httpx2.AsyncClient":
        """For what goes both ways at once."""
        import httpx2

        auth = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx2.AsyncClient(base_url=self.url, headers=auth, timeout=40, trust_env=False)

    def checked(self, answer: "httpx2.Response") -> "httpx2.Response":
        status = answer.status_code
        if status < 400:
            return answer
        try:
            detail = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = f"{self.url} answered {status}, and not as a Penstock does."
        raise Failed(detail, UNANSWERED if status >= 500 else EXIT_CODES.get(status, 2), status)

    def unanswered(self, error: Exception) -> Failed:
        return Failed(f"No Penstock answers at {self.url} ({error}); start it: penstock up", UNANSWERED)


def job_path(job: str, what: str = "") -> str:
    """The address of a job; whatever a person typed stays one word of it."""
    return f"/v1/jobs/{quote(job)}{what}"


def _said(params: dict[str, Any]) -> dict[str, Any]:
    return {name: found for name, found in params.items() if found not in (None, "", ())}


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
