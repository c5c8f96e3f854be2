"""Who may be a worker: a token in the call's metadata, `authorization: Bearer <token>`."""

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
    "/shiftboss.v1.Fleet/EnqueueTask",  # not for workers: it asks for an operator's token itself
    "/externalscaler.ExternalScaler/",  # KEDA sends no token; `coordinator.scaler` turns the service on
)
#: How long a token that was revoked or has expired may still be used, by calls and by open streams.
REMEMBERED_SECONDS = 1.0
HOW_TO_ENTER = (
    "this call needs the token of a worker in its metadata: authorization: Bearer <token>;"
    " make one with `shiftboss token create --role worker`"
)


class Authenticator(Protocol):
    """Knows tokens."""

    async def may_work(self, token: str) -> bool:
        """Whether this token is one of a worker."""
        ...

    async def principal(self, token: str) -> Principal | None:
        """Whose token this is; None for one that is not known."""
        ...


class DatabaseTokens:
    """The tokens made by `shiftboss token create --role worker`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def may_work(self, token: str) -> bool:
        principal = await self.principal(token)
        return principal is not None and principal.role is Role.WORKER

    async def principal(self, token: str) -> Principal | None:
        return await self._db.tokens.authenticate(token)


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls of workers without a worker's token. Health checks and reflection are open to all."""

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
            log.warning("a token could not be looked up", reason=error.message)
            return _refusing(handler, grpc.StatusCode.UNAVAILABLE, "the database is away; try again")
        if not good:
            return _refusing(handler, grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)
        return self._watched(handler, details) if handler.request_streaming else handler

    def _watched(self, handler: Any, details: grpc.HandlerCallDetails) -> Any:
        """A stream that ends when its token is revoked or expires."""
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
        """Returns when this token no longer opens anything; a database that is away decides nothing."""
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
    """The token in the metadata of a call."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str) and value[:7].lower() == "bearer ":
            return value[7:]
    return None


def _refusing(handler: Any, code: grpc.StatusCode, words: str) -> Any:
    """A handler of the same kind that says no."""

    async def refuse(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(code, words)

    stream = handler.request_streaming
    wrap = grpc.stream_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
    return wrap(refuse, handler.request_deserializer, handler.response_serializer)
