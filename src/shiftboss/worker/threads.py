"""Functions of handlers in threads of their own, and their ends as futures of the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from shiftboss.model.step import LeaseLost, Suspend
from shiftboss.model.task import storable
from shiftboss.worker.mark import Mark

#: A handler forked and came back twice: the copy must not go on with our loop and our sockets.
EXIT_FORKED = 70
_pid = os.getpid()


def _forked() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_forked)


def process() -> int:
    """The id of this process; a call of its own for every attempt would cost more."""
    return _pid


async def in_thread(call: Callable[[], Any], name: str, mark: Mark, leases: Sequence[int]) -> Any:
    """What `call` returns, from a thread that is marked as running these leases."""
    # A thread of its own, and a daemon: one that never returns must not hold a pool's place or the exit.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    started = _pid

    def body() -> None:
        try:
            result = call()
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


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, *values)


def resolve(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def reject(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        if not isinstance(error, Exception | Suspend | LeaseLost) or isinstance(error, StopIteration):
            # These mean something to a coroutine that awaits them; here they are only a handler's failure.
            error = RuntimeError(f"the handler raised {describe(error)}")
        done.set_exception(error)


def describe(error: BaseException, limit: int = 8000) -> str:
    """The error as text, whatever its __str__ does; the end of the traceback is what tells most."""
    try:
        text = "".join(traceback.format_exception(error))
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
