"""Errors as `application/problem+json` (RFC 9457): what is wrong and what to do. Every route answers so.

A route raises `Problem`; errors of other layers are converted here.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketState

from penstock.core.errors import BadFile, BadInput, FileError
from penstock.drivers.driver import NoCapacity, Refused, Unreachable, Unstartable
from penstock.journal.journal import Unwritable
from penstock.live.admission import NotAdmitted
from penstock.live.plane import KeyReused, NotReady, Quarantined
from penstock.web.patterns import MEANINGS

MEDIA_TYPE: Final = "application/problem+json"
JOBS: Final = "/v1/jobs/"
LONGEST_PLACE: Final = 100  #: characters of a key that an answer repeats
BUG: Final = "bug"  #: the kind of whatever we did not expect
RETRY_SECONDS: Final = "5"  #: Retry-After while the journal or a site is unavailable


class Problem(Exception):
    """`kind` is a word for programs, `detail` a sentence for people that says what to do."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[FileError] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, dict(headers or {})
        self.errors = errors  #: all errors of a file

    def body(self) -> dict[str, object]:
        title = HTTPStatus(self.status).phrase
        problem = {"type": f"urn:penstock:{self.kind}", "title": title, "status": self.status, "detail": self.detail}
        errors = [{"line": error.line, "key": error.key, "message": error.message} for error in self.errors]
        return {**problem, "errors": errors} if errors else problem

    def response(self) -> JSONResponse:
        return _ProblemResponse(self.body(), self.status, self.headers, MEDIA_TYPE)


class _ProblemResponse(JSONResponse):
    """A sentence may repeat what somebody sent: half of a surrogate pair, which JSON can spell, has no bytes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def not_found(kind: str, name: str) -> Problem:
    """Also the answer about another team's things: their existence is not revealed."""
    return Problem(404, "not-found", f"There is no {kind} {name!r}, or you may not see it; check the name.")


def no_route(path: str) -> Problem:
    """The answer where no route is. A job's id with a slash, as one types it for a namespace, leads there, too."""
    if path.startswith(JOBS) and not path.endswith("/"):
        job, _, last = path.removeprefix(JOBS).rpartition("/")
        return not_found("job", (job or last)[:LONGEST_PLACE])
    return Problem(404, "not-found", f"There is nothing at {path[:LONGEST_PLACE]!r}; the API is in /v1/openapi.json.")


def cut_off() -> Problem:
    """Nobody reads it: the client is gone."""
    return Problem(400, "cut-off", "The connection ended before the answer; send it again.")


def conflict(detail: str) -> Problem:
    return Problem(409, "conflict", detail)


def install(app: FastAPI) -> None:
    """Register a handler for every exception that a route may raise."""
    app.add_exception_handler(Problem, _answer)
    app.add_exception_handler(RequestValidationError, _answer)
    app.add_exception_handler(WebSocketRequestValidationError, _answer)
    app.add_exception_handler(Exception, _answer)
    for kind in (
        BadInput,
        NotAdmitted,
        KeyReused,
        NotReady,
        Unwritable,
        Quarantined,
        Unreachable,
        Refused,
        NoCapacity,
        Unstartable,
    ):
        app.add_exception_handler(kind, _answer)


async def _answer(asked: Request | WebSocket, error: Exception) -> Any:
    """The response, which also denies a WebSocket. One that is open already has nothing to respond to."""
    if isinstance(asked, WebSocket) and asked.client_state != WebSocketState.CONNECTING:
        return None
    answer = problem_of(error).response()
    if isinstance(asked, WebSocket):  # the server hangs up after it: a client must not send its next request there
        answer.headers["Connection"] = "close"
    return answer


def problem_of(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case BadFile(errors=errors):
            return Problem(422, "bad-input", str(error), errors=errors)
        case BadInput():
            return Problem(422, "bad-input", str(error))
        case RequestValidationError() | WebSocketRequestValidationError():
            return invalid(error.errors())
        case HTTPException(status_code=404):
            return Problem(404, "not-found", "There is nothing at this address; check it.")
        case HTTPException(status_code=405, headers=headers):
            return Problem(405, "wrong-method", "This address does not support that method; see Allow.", headers)
        case HTTPException(status_code=status, detail=detail, headers=headers):
            return Problem(status, "refused", f"{detail}", headers)
        case NotAdmitted(reason="NoSuchData"):
            return Problem(422, "bad-input", str(error))
        case NotAdmitted(retry_s=float() | int() as seconds):
            return Problem(429, "too-many", str(error), {"Retry-After": str(round(seconds + 0.5))})
        case NotAdmitted():
            return Problem(403, "forbidden", str(error))
        case KeyReused():
            return Problem(422, "key-reused", "This Idempotency-Key was used with another body before; use a new key.")
        case NotReady() | Unwritable():
            return Problem(503, "not-ready", str(error), {"Retry-After": RETRY_SECONDS})
        case Unreachable():
            return Problem(503, "unreachable", f"The site does not answer: {error}", {"Retry-After": RETRY_SECONDS})
        case Refused() | NoCapacity() | Unstartable():
            return conflict(f"The site refused: {error}")
        case Quarantined():
            return Problem(500, "quarantined", f"Nothing was done: {error}")
        case _:
            return Problem(500, BUG, "This is a bug in Penstock; its log has the traceback. Nothing was recorded.")


def is_bug(error: Exception) -> bool:
    """True if no layer expected it: the server logs it."""
    return problem_of(error).kind == BUG


def invalid(errors: Sequence[Any]) -> Problem:
    """The first error with its location: `query.limit: Input should be at most 200`."""
    first = errors[0]
    place = ".".join(str(part)[:LONGEST_PLACE] for part in first["loc"])
    pattern = first.get("ctx", {}).get("pattern", "")
    return Problem(422, "bad-input", f"{place}: {MEANINGS.get(pattern, first['msg'])}.")
