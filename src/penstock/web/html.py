"""HTML responses: pages with a strict content security policy, and problems as pages instead of JSON."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from penstock.web.problems import Problem, is_bug, no_route, problem_of

THEME: Final = "penstock_theme"  #: cookie with the chosen theme, so that a dark page never flashes white
#: No other origins, nothing inline: text that somebody typed can never run as a script.
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
    """A route that answers problems as pages to clients that accept HTML."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as error:
                if is_bug(error) or not _wants_html(request):
                    raise
                page = _page(request, problem_of(error))
                error.__traceback__ = None  # it leads to frames that lead back to it, and all of them would stay
                return page

        return handled


async def nowhere(request: Request, error: Exception) -> Response:
    """The answer where no route is: a page for people, unless they ask the API."""
    problem = problem_of(error)
    if problem.status == 404:
        problem = no_route(request.url.path)
        if _wants_html(request) and not request.url.path.startswith("/v1/"):
            return _page(request, problem)
    return problem.response()


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


TITLES: Final = {401: "Who are you?", 403: "Not with this token", 404: "Nothing here", 503: "Not ready"}
SIGN_IN: Final = (401, 410)  #: not signed in; a used link


def _page(request: Request, problem: Problem) -> Response:
    detail = "This page needs to know you first." if problem.status == 401 else problem.detail
    title = TITLES.get(problem.status, "That did not work")
    sign_in = problem.status in SIGN_IN or request.url.path == "/login"
    made = html(request, "problem.html", problem.status, title=title, detail=detail, sign_in=sign_in)
    made.headers.update(problem.headers)
    return made
