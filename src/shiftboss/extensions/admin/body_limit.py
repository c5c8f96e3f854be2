"""Limits the size of request bodies, which are read before the caller is authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 16_000_000
LARGER = {"/journal": 64_000_000}
"""Pages that accept files."""


class BodyLimit:
    """Responds with 413 if the body of a request is too large."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size, most = 0, LARGER.get(scope["path"], LARGEST)

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise HTTPException(413, f"the request is larger than {most // 1_000_000} MB")
            return message

        await self._app(scope, counted, send)
