"""Who may be a worker: a token in the call's metadata, `authorization: Bearer <token>`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
import structlog

from shiftboss.db import Database
from shiftboss.model.access import Role
from shiftboss.model.errors import DatabaseError

log = structlog.get_logger()

OPEN_SERVICES = ("/grpc.health.v1.", "/grpc.reflection.")
REMEMBERED_SECONDS = 30.0
HOW_TO_ENTER = (
    "this call needs the token of a worker in its metadata: authorization: Bearer <token>;"
    " make one with `shiftboss token create --role worker`"
)


class Authenticator(Protocol):
    """Knows tokens."""

    async def may_work(self, token: str) -> bool:
        """Whether this token is one of a worker."""
        ...


class DatabaseTokens:
    """The tokens made by `shiftboss token create --role worker`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def may_work(self, token: str) -> bool:
        principal = await self._db.tokens.authenticate(token)
        return principal is not None and principal.role is Role.WORKER


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without a worker's token. Health checks and reflection are open to all."""

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
            good = await self._is_good(_token(details))
        except DatabaseError as error:
            log.warning("a token could not be looked up", reason=error.message)
            return _refusing(handler, grpc.StatusCode.UNAVAILABLE, "the database is away; try again")
        return handler if good else _refusing(handler, grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)

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


def _token(details: grpc.HandlerCallDetails) -> str | None:
    for key, value in details.invocation_metadata or ():
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
