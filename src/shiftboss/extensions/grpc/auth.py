"""Authenticates workers by a token in the metadata of a call, `authorization: Bearer <token>`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

import grpc

from shiftboss.db import Database
from shiftboss.log import get_logger
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import DatabaseError

log = get_logger(__name__)

OPEN_SERVICES = (
    "/grpc.health.v1.",
    "/grpc.reflection.",
    "/shiftboss.v1.Fleet/EnqueueTask",  # not for workers: it checks for an operator's token itself
    "/externalscaler.ExternalScaler/",  # KEDA sends no token; `coordinator.scaler` turns the service on
)
#: How long a revoked or expired token may still be used by calls and open streams.
REMEMBERED_SECONDS = 1.0
HOW_TO_ENTER = (
    "this call needs the token of a worker in its metadata: authorization: Bearer <token>;"
    " create one with `shiftboss token create NAME --role worker`"
)


class Authenticator(Protocol):
    """Looks up tokens."""

    async def may_work(self, token: str) -> bool:
        """Whether this is the token of a worker."""
        ...

    async def principal(self, token: str) -> Principal | None:
        """Return the owner of a token, or None if it is unknown."""
        ...


class DatabaseTokens:
    """The tokens in the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def may_work(self, token: str) -> bool:
        principal = await self.principal(token)
        return principal is not None and principal.role is Role.WORKER

    async def principal(self, token: str) -> Principal | None:
        return await self._db.tokens.authenticate(token)


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without the token of a worker, except health checks and reflection."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._good: dict[str, float] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        handler: Any = await continuation(details)
        if handler is None or details.method.startswith(OPEN_SERVICES):
            return handler
        try:
            good = await self._is_good(bearer(details.invocation_metadata or ()))
        except DatabaseError as error:
            log.warning("cannot look up a token", reason=error.message)
            return _refusing(handler, grpc.StatusCode.UNAVAILABLE, "the database is unreachable; try again")
        if not good:
            return _refusing(handler, grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)
        return self._watched(handler, details) if handler.request_streaming else handler

    def _watched(self, handler: Any, details: grpc.HandlerCallDetails) -> Any:
        """Return a handler that ends the stream when its token is revoked or expires."""
        token = bearer(details.invocation_metadata or ())

        async def serve(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            served = asyncio.ensure_future(handler.stream_stream(requests, context))
            over = asyncio.ensure_future(self._until_bad(token))
            try:
                await asyncio.wait({served, over}, return_when=asyncio.FIRST_COMPLETED)
                if served.done():
                    served.result()
                    return
            finally:
                for part in (served, over):
                    part.cancel()
                await asyncio.gather(served, over, return_exceptions=True)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)

        return grpc.stream_stream_rpc_method_handler(
            serve, handler.request_deserializer, handler.response_serializer
        )

    async def _until_bad(self, token: str | None) -> None:
        """Return when the token is no longer valid. An unreachable database does not invalidate it."""
        good = True
        while good:
            await asyncio.sleep(REMEMBERED_SECONDS)
            with suppress(DatabaseError):
                good = await self._is_good(token)

    async def _is_good(self, token: str | None) -> bool:
        if not token or len(token) > 1000 or not token.isprintable():
            return False
        now = time.monotonic()
        if self._good.get(token, 0.0) > now:
            return True
        if not await self._authenticator.may_work(token):
            self._good.pop(token, None)
            return False
        self._good[token] = now + REMEMBERED_SECONDS
        return True


def bearer(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """Return the token in the metadata of a call."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value[:7].lower() == "bearer ":
            return value[7:]
    return None


def _refusing(handler: Any, code: grpc.StatusCode, words: str) -> Any:
    """Return a handler of the same kind that refuses every call."""

    async def refuse(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(code, words)

    stream = handler.request_streaming
    wrap = grpc.stream_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
    return wrap(refuse, handler.request_deserializer, handler.response_serializer)
