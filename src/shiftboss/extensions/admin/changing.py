"""Detects requests that change something, so that lists show the change immediately."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from shiftboss.extensions.admin.backend import Backend

READING = ("GET", "HEAD", "OPTIONS")


class Changing:
    """Notifies the backend of each changing request before the response is sent."""

    def __init__(self, app: ASGIApp, admin: Backend) -> None:
        self._app, self._admin = app, admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._admin.wrote()
            await send(message)

        changes = scope["type"] == "http" and scope["method"] not in READING
        await self._app(scope, receive, told if changes else send)
