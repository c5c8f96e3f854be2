"""Where the pages are, and where they are not: what belongs to the API keeps the API's answers."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shiftboss.admin.page.frame import plain
from shiftboss.admin.page.markup import empty, link
from shiftboss.admin.problems import problem

TAKEN = frozenset({"api", "metrics", "healthz", "readyz", "login", "logout"})
HEADERS = {
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Pages(Mount):
    """Everything but what begins with a word of the API: there 404 and 405 stay problem documents."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__("/", app=_guarded(app))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope.get("path", "/").lstrip("/").partition("/")[0] in TAKEN:
            return Match.NONE, {}
        return super().matches(scope)


def _guarded(app: ASGIApp) -> ASGIApp:
    """The same app, whose answers can not be framed by other sites."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await app(scope, receive, sending)

    return guarded


async def nowhere(request: Request, error: Exception) -> Response:
    """There is no such page: in HTML for those who look, as a problem for those who call."""
    if "text/html" not in request.headers.get("accept", ""):
        return problem(404, "there is nothing here", "the API is described at /api/docs")
    return HTMLResponse(
        plain("Nothing here", empty("There is no such page", link("/", "To the overview"))), 404
    )
