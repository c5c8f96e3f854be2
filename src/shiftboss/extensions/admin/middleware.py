"""Limits the size of request bodies, and makes lists show the changes of a request immediately."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shiftboss.extensions.admin.access import SAFE
from shiftboss.extensions.admin.backend import Backend

LARGEST = 16_000_000
LARGER = {"/journal": 64_000_000}
"""Pages that accept files."""
ANONYMOUS = 100_000
"""Bytes that are read of a request before its caller is authenticated."""
SIGNED = "/hooks/"
"""Requests that are authenticated by a signature of the whole body."""


class Middleware:
    """Limits bodies to what the caller may send, and notifies the backend of each changing request.

    Routes read a body before they authenticate the caller, so a large one needs a valid credential here.
    """

    def __init__(self, app: ASGIApp, admin: Backend) -> None:
        self._app, self._admin = app, admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE:
            await self._app(scope, receive, send)
            return
        size, most = 0, LARGER.get(scope["path"], LARGEST)
        known = scope["path"].startswith(SIGNED)

        async def counted() -> Message:
            nonlocal size, known
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise HTTPException(413, f"the request is larger than {most // 1_000_000} MB")
            if size > ANONYMOUS and not known:
                known = await self._admin.access.still_allows(Request(scope))
                if not known:
                    raise HTTPException(401, "a token is required for a request of this size")
            return message

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._admin.wrote()
            await send(message)

        await self._app(scope, counted, told)
