"""How much a request may bring along: bodies are read before anybody is asked who sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 16_000_000
ITSELF = frozenset({"/journal/import"})
"""Routes that read their body piece by piece, and know their own bounds."""


class Bounded:
    """Ends a request whose body grows too large with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ITSELF:
            await self._app(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST:
                raise HTTPException(413, f"a request may bring {LARGEST // 1_000_000} MB")
            return message

        await self._app(scope, counted, send)
