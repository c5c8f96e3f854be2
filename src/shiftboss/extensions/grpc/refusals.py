"""What a caller is told when it asks for what cannot be: a gRPC status and a message that helps."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, TasksLocked

log = get_logger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


PUSHBACK = "grpc-retry-pushback-ms"
"""The trailing metadata by which a server asks for patience."""
LOCKED = "shiftboss-locked-tasks"
"""The trailing metadata that names the tasks whose reports must wait; all the others were taken."""
MALFORMED = object()
"""What stands for a message that could not be read."""


class Refused(Exception):
    """Ends a call with this status."""

    trailer: tuple[tuple[str, str], ...] = ()

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TooFast(Refused):
    """Nothing is wrong with the call, only its time."""

    trailer: tuple[tuple[str, str], ...] = ((PUSHBACK, "1000"),)

    def __init__(self, message: str) -> None:
        super().__init__(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def must_wait_for(locked: TasksLocked) -> Refused:
    """A client that does not know LOCKED reports the whole batch again later, which changes nothing twice."""
    refused = TooFast(locked.message)
    refused.trailer = (*TooFast.trailer, (LOCKED, ",".join(map(str, locked.ids))))
    return refused


def invalid(message: str) -> Refused:
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, message)


def readable(message: Any) -> Any:
    if message is MALFORMED:
        raise invalid(
            "these bytes are not the message that this call takes; see proto/shiftboss/v1/fleet.proto"
        )
    return message


def unknown_worker(worker_id: str) -> Refused:
    return Refused(
        grpc.StatusCode.NOT_FOUND, f"no worker {worker_id!r} is registered; call RegisterWorker first"
    )


def wrong_session(worker_id: str) -> Refused:
    return Refused(
        grpc.StatusCode.UNAUTHENTICATED,
        f"this is not the session of worker {worker_id!r}, which was registered again; call RegisterWorker",
    )


def _status(error: Exception) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, Refused):
        return error.code, error.message
    if isinstance(error, DatabaseUnavailable):
        return grpc.StatusCode.UNAVAILABLE, "the database is away; try again"
    if isinstance(error, DatabaseError) and (error.sqlstate or "").startswith(("22", "23", "54")):
        return grpc.StatusCode.INVALID_ARGUMENT, error.message
    return grpc.StatusCode.INTERNAL, "the coordinator failed on this call; its log tells more"


def answering(handler: Handler) -> Handler:
    """Let a handler of the service end in a status for whatever it raises."""

    @functools.wraps(handler)
    async def call(self: Any, request: Any, context: Context) -> Any:
        try:
            return await handler(self, readable(request), context)
        except Exception as error:
            if isinstance(error, grpc.aio.AbortError):
                raise
            code, message = _status(error)
            trailer = error.trailer if isinstance(error, Refused) else ()
            if code is grpc.StatusCode.INTERNAL:
                log.exception("call failed", call=handler.__name__)
        return await context.abort(code, message, trailer)

    return call  # type: ignore[return-value]
