"""Runs handlers in threads, with their results as futures of the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from types import TracebackType
from typing import Any

from shiftboss.model.step import LeaseLost, Suspend
from shiftboss.model.task import storable
from shiftboss.worker.mark import Mark

#: A handler forked and returned in both processes. The copy must not use the loop and the sockets.
EXIT_FORKED = 70
#: The last frames of a traceback that an error keeps. More would be truncated, and each takes time to format.
FRAMES = 50
HERE = os.path.dirname(__file__) + os.sep
_pid = os.getpid()


def _forked() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_forked)


def process() -> int:
    """Return the cached pid of this process, which is cheaper than a system call for every attempt."""
    return _pid


async def in_thread(call: Callable[[], Any], name: str, mark: Mark, leases: Sequence[int]) -> Any:
    """Run `call` in a thread that is marked with these leases, and return its result."""
    # A new daemon thread: one that never returns must not block a pool or the exit of the process.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    started = _pid

    def body() -> None:
        try:
            result = with_own_connections(call)
        except BaseException as error:
            _post(loop, reject, done, error)
        else:
            _post(loop, resolve, done, result)
        finally:
            if _pid != started:
                os._exit(EXIT_FORKED)
            for lease in leases:
                mark.leave(lease)

    for lease in leases:
        mark.enter(lease)
    threading.Thread(target=copy_context().run, args=(body,), name=name, daemon=True).start()
    return await done


def with_own_connections(call: Callable[[], Any]) -> Any:
    """Run `call`, and close the connections that Django's ORM opened in this thread.

    Django has one connection per thread and closes it when a request ends, but not when a thread does.
    """
    try:
        return call()
    finally:
        database = sys.modules.get("django.db")
        if database is not None:
            with suppress(Exception):  # Django is not configured, or the connection is broken
                database.connections.close_all()


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
        loop.call_soon_threadsafe(call, *values)


def resolve(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def reject(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        if not isinstance(error, Exception | Suspend | LeaseLost) or isinstance(error, StopIteration):
            # These would affect the coroutine that awaits the future. Here they are a handler's failure.
            error = RuntimeError(f"the handler raised {describe(error)}")
        done.set_exception(error)


def _from_handler(error: BaseException) -> TracebackType | None:
    """Return the traceback from the handler on, without the frames of this package that called it."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(HERE):
        found = found.tb_next
    return found or error.__traceback__


def describe(error: BaseException, limit: int = 8000) -> str:
    """Return the error as text with the end of the traceback, even if its __str__ fails."""
    try:
        text = "".join(traceback.format_exception(type(error), error, _from_handler(error), limit=-FRAMES))
    except Exception:
        text = f"{type(error).__name__} (cannot be printed)"
    text = storable(text).strip()
    if len(text) > limit:
        text = "…" + text[-limit:]
    try:
        summary = storable(f"{type(error).__name__}: {error}")[:500]
    except Exception:
        summary = type(error).__name__
    return f"{summary}\n\n{text}"
