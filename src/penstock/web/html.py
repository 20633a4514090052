"""Answers for people: pages with a strict policy of what they may load, and problems as pages instead of JSON."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from penstock.web.problems import Problem, problem_of

THEME: Final = "penstock_theme"  #: a cookie: the reader's choice, so that a page is dark from its first moment
#: Nothing from elsewhere, nothing inline: text that somebody typed cannot become a script, whatever it holds.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; font-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def html(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    from penstock.web.views.render import page

    theme = request.cookies.get(THEME, "")
    frame = {
        "theme": theme if theme in ("light", "dark") else "",
        "picture": "picture" in request.query_params,
        "here": "",
    }
    return HTMLResponse(page(template, **(frame | values)), status, HEADERS)


class ForPeople(APIRoute):
    """A route whose problems are pages, to whoever asks for pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as error:
                problem = problem_of(error)
                if problem.kind == "bug" or "text/html" not in request.headers.get("accept", ""):
                    raise
                return _page(request, problem)

        return handled


TITLES: Final = {401: "Who are you?", 403: "Not with this token", 404: "Nothing here", 503: "Not ready"}
SIGN_IN: Final = (401, 410, 422)  #: not known yet; a link that was used; a token that is none


def _page(request: Request, problem: Problem) -> Response:
    detail = "This page needs to know you first." if problem.status == 401 else problem.detail
    title = TITLES.get(problem.status, "That did not work")
    sign_in = problem.status in SIGN_IN
    made = html(request, "problem.html", problem.status, title=title, detail=detail, sign_in=sign_in)
    made.headers.update(problem.headers)
    return made
