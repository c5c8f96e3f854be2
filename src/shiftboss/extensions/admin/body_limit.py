"""Bounds the size of requests: bodies are read before the caller is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 16_000_000
LARGER = {"/journal": 64_000_000}
"""Pages that take files."""


class BodyLimit:
    """Ends a request whose body grows too large with 413."""

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
                raise HTTPException(413, f"a request may have at most {most // 1_000_000} MB")
            return message

        await self._app(scope, counted, send)
