"""Authenticates workers by a token in the metadata of a call, `authorization: Bearer <token>`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc

from shiftboss.db import Database
from shiftboss.extensions.grpc.refusals import Context
from shiftboss.lifecycle import first_of
from shiftboss.log import get_logger
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import DatabaseError

log = get_logger(__name__)
Call = Callable[[Any, Context], Awaitable[Any]]

#: How long a revoked or expired token may still be used by calls and open streams.
REMEMBERED_SECONDS = 1.0
HOW_TO_ENTER = (
    "this call needs the token of a worker in its metadata: authorization: Bearer <token>;"
    " create one with `shiftboss token create NAME --role worker`"
)


class DatabaseTokens:
    """Checks calls against the tokens in the database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._good: dict[str, float] = {}

    async def principal(self, context: Context) -> Principal | None:
        """Return the owner of the token of a call, or None if there is no valid one."""
        token = bearer(context)
        return None if token is None else await self._db.tokens.authenticate(token)

    def guarded(self, call: Call) -> Call:
        """Return a handler that refuses calls without the token of a worker."""

        async def guard(request: Any, context: Context) -> Any:
            await self._check(context)
            return await call(request, context)

        return guard

    def watched(self, serve: Call) -> Call:
        """Return a guarded handler of a stream, which ends when its token is revoked or expires."""

        async def watch(requests: Any, context: Context) -> None:
            await self._check(context)
            served = asyncio.ensure_future(serve(requests, context))
            if await first_of(served, self._until_bad(context)) is served:
                served.result()
                return
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)

        return watch

    async def _check(self, context: Context) -> None:
        try:
            good = await self._is_good(context)
        except DatabaseError as error:
            log.warning("cannot look up a token", reason=error.message)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the database is unreachable; try again")
        if not good:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)

    async def _until_bad(self, context: Context) -> None:
        """Return when the token is no longer valid. An unreachable database does not invalidate it."""
        good = True
        while good:
            await asyncio.sleep(REMEMBERED_SECONDS)
            with suppress(DatabaseError):
                good = await self._is_good(context)

    async def _is_good(self, context: Context) -> bool:
        token = bearer(context) or ""
        if self._good.get(token, 0.0) > time.monotonic():
            return True
        principal = await self.principal(context)
        if principal is None or principal.role is not Role.WORKER:
            self._good.pop(token, None)
            return False
        self._good[token] = time.monotonic() + REMEMBERED_SECONDS
        return True


def bearer(context: Context) -> str | None:
    """Return the token in the metadata of a call, unless it cannot be one of ours."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value[:7].lower() == "bearer ":
            token = value[7:]
            return token if token.isprintable() and 0 < len(token) <= 1000 else None
    return None
