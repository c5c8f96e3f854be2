"""Errors of the service as gRPC statuses with helpful messages."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, TasksLocked

log = get_logger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


PUSHBACK = "grpc-retry-pushback-ms"
"""The trailing metadata by which a server asks the client to retry later."""
LOCKED = "shiftboss-locked-tasks"
"""The trailing metadata with the tasks whose reports must be repeated; all others were stored."""
MALFORMED = object()
"""Represents a message that could not be decoded."""


class CallRefused(Exception):
    """Ends a call with this status."""

    trailer: tuple[tuple[str, str], ...] = ()

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TooFast(CallRefused):
    """The call is valid but must be repeated later."""

    trailer: tuple[tuple[str, str], ...] = ((PUSHBACK, "1000"),)

    def __init__(self, message: str) -> None:
        super().__init__(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def must_wait_for(locked: TasksLocked) -> CallRefused:
    """Return the error for locked tasks. A client that ignores LOCKED safely repeats the whole batch."""
    refused = TooFast(locked.message)
    refused.trailer = (*TooFast.trailer, (LOCKED, ",".join(map(str, locked.ids))))
    return refused


def invalid(message: str) -> CallRefused:
    return CallRefused(grpc.StatusCode.INVALID_ARGUMENT, message)


def lenient(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a parser that returns MALFORMED for bytes that cannot be decoded."""

    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            return MALFORMED

    return read


def readable(message: Any) -> Any:
    if message is MALFORMED:
        raise invalid("the request is not a valid message of this call; see proto/shiftboss/v1/fleet.proto")
    return message


def unknown_worker(worker_id: str) -> CallRefused:
    return CallRefused(
        grpc.StatusCode.NOT_FOUND, f"worker {worker_id!r} is not registered; call RegisterWorker first"
    )


def wrong_session(worker_id: str) -> CallRefused:
    return CallRefused(
        grpc.StatusCode.UNAUTHENTICATED,
        f"the session of worker {worker_id!r} was replaced; call RegisterWorker again",
    )


def _status(error: Exception) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, CallRefused):
        return error.code, error.message
    if isinstance(error, DatabaseUnavailable):
        return grpc.StatusCode.UNAVAILABLE, "the database is unreachable; try again"
    if isinstance(error, DatabaseError) and (error.sqlstate or "").startswith(("22", "23", "54")):
        return grpc.StatusCode.INVALID_ARGUMENT, error.message
    return grpc.StatusCode.INTERNAL, "internal error; see the log of the coordinator"


def answering(handler: Handler) -> Handler:
    """Convert every exception of a handler to a gRPC status."""

    @functools.wraps(handler)
    async def call(self: Any, request: Any, context: Context) -> Any:
        try:
            return await handler(self, readable(request), context)
        except Exception as error:
            if isinstance(error, grpc.aio.AbortError):
                raise
            told = must_wait_for(error) if isinstance(error, TasksLocked) else error
            code, message = _status(told)
            trailer = told.trailer if isinstance(told, CallRefused) else ()
            if code is grpc.StatusCode.INTERNAL:
                log.exception("call failed", call=handler.__name__)
        return await context.abort(code, message, trailer)

    return call  # type: ignore[return-value]
