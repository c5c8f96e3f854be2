"""Where the pages are, and where they are not: what belongs to the API keeps the API's answers."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Pages(Mount):
    """Everything but the paths that begin like one of `others`: there 404 and 405 stay problem documents."""

    def __init__(self, app: ASGIApp, others: list[BaseRoute]) -> None:
        super().__init__("/", app=_guarded(app))
        self._taken = {getattr(route, "path", "").lstrip("/").partition("/")[0] for route in others}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope.get("path", "/").lstrip("/").partition("/")[0] in self._taken:
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
