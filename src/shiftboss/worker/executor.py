"""One attempt as a straight pipeline: resolve, bind, run under a deadline, classify. Never raises."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from shiftboss.model.errors import Defer
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Outcome, Postpone
from shiftboss.worker.children import ChildDied, Children
from shiftboss.worker.context import Context, ReportProgress
from shiftboss.worker.handlers import BadArguments, Handler, Handlers

if TYPE_CHECKING:
    from shiftboss.db import Database

Stop = Literal["cancel", "timeout", "stop", "lost"]

MAX_RESULT = 16 * 1024 * 1024
UNKNOWN_DELAY = 30.0
JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class Attempt:
    """A task while it runs here."""

    __slots__ = ("context", "handle", "stopped", "task", "timer")

    def __init__(self, task: Claimed) -> None:
        self.task = task
        self.context: Context | None = None
        self.handle: asyncio.Task[None] | None = None
        self.stopped: Stop | None = None
        self.timer: asyncio.TimerHandle | None = None

    def stop(self, why: Stop) -> None:
        """End it from outside; the first reason stands."""
        if self.stopped is None and self.handle is not None and not self.handle.done():
            self.stopped = why
            if self.context is not None:
                self.context.cancelled = True
            self.handle.cancel()


class Executor:
    """Runs attempts by the mode of their handler."""

    def __init__(
        self,
        handlers: Handlers,
        report: ReportProgress,
        db: Database | None = None,
        children: int = 4,
        child_memory_mb: int | None = None,
    ) -> None:
        self._handlers = handlers
        self._report = report
        self._db = db
        self._children = Children(children, child_memory_mb)
        #: Threads whose deadline passed while they went on: they can not be killed, so they are counted.
        self.abandoned = 0

    async def close(self) -> None:
        await self._children.close()

    async def run(self, attempt: Attempt) -> Outcome:
        try:
            handler = self._handlers.get(attempt.task.task_type)
            if handler is None:
                return Postpone(UNKNOWN_DELAY, f"no handler for {attempt.task.task_type} on this worker")
            return await self._run(attempt, handler)
        except BaseException as error:
            # Whatever a handler raises ends here; SystemExit and the like must not take the worker with them.
            return classify(attempt, error)
        finally:
            if attempt.timer is not None:
                attempt.timer.cancel()

    async def _run(self, attempt: Attempt, handler: Handler) -> Outcome:
        task = attempt.task
        arguments = handler.bind(task.params)
        seconds = _allowance(task, handler)
        if seconds is not None:
            if seconds <= 0:
                return Fail("its deadline has passed", "timeout", retry=False)
            attempt.timer = asyncio.get_running_loop().call_later(seconds, attempt.stop, "timeout")
        if handler.wants_context:
            attempt.context = Context(task, seconds, self._report, self._db)
        if handler.mode == "async":
            call = handler.function
            result = await (call(attempt.context, **arguments) if attempt.context else call(**arguments))
        elif handler.mode == "thread":
            result = await self._in_thread(handler.function, attempt, arguments)
        else:
            return await self._children.run(handler, task, seconds, self._report)
        return encode(handler.name, result)

    async def _in_thread(
        self, function: Callable[..., Any], attempt: Attempt, arguments: dict[str, Any]
    ) -> Any:
        # A thread of its own, and a daemon: one that never returns must not hold a pool's place or the exit.
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        positional = (attempt.context,) if attempt.context else ()

        def body() -> None:
            try:
                result = function(*positional, **arguments)
            except BaseException as error:
                _post(loop, _reject, done, error)
            else:
                _post(loop, _resolve, done, result)

        threading.Thread(target=body, name=f"task-{attempt.task.id}", daemon=True).start()
        try:
            return await done
        except asyncio.CancelledError:
            self.abandoned += 1
            raise


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(call, *values)


def _resolve(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _reject(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        if not isinstance(error, Exception) or isinstance(error, StopIteration):
            # These mean something to a coroutine that awaits them; here they are only a handler's failure.
            error = RuntimeError(f"the handler raised {describe(error)}")
        done.set_exception(error)


def _allowance(task: Claimed, handler: Handler) -> float | None:
    """Seconds that this attempt may take: its timeout, or less if the task's deadline is nearer."""
    timeout = task.timeout or handler.timeout
    seconds = None if timeout is None else timeout.total_seconds()
    if task.deadline is not None:
        left = (task.deadline - datetime.now(UTC)).total_seconds()
        seconds = left if seconds is None else min(seconds, left)
    return seconds


def encode(name: str, result: Any) -> Outcome:
    """A handler's result as JSON, or the failure to be that."""
    if result is None:
        return Complete(None)
    try:
        text = orjson.dumps(result, default=_plain, option=JSON)
    except (TypeError, ValueError, RecursionError) as error:
        return Fail(f"the result of {name} is not JSON: {error}", retry=False)
    if len(text) > MAX_RESULT:
        return Fail(
            f"the result of {name} takes {len(text)} bytes, at most {MAX_RESULT} can be kept", retry=False
        )
    if b"\\u0000" in text:
        return Fail(
            f"the result of {name} holds a NUL character, which PostgreSQL can not store", retry=False
        )
    return Complete(text)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def classify(attempt: Attempt, error: BaseException) -> Outcome:
    """What an attempt that raised this came to."""
    if isinstance(error, asyncio.CancelledError) and attempt.stopped is not None:
        return _stopped(attempt)
    if isinstance(error, Defer):
        return Postpone(max(error.seconds, 0.0), error.reason)
    if isinstance(error, BadArguments):
        return Fail(error.message, retry=False)
    if isinstance(error, ChildDied):
        return Fail(str(error), "crashed")
    return Fail(describe(error))


def _stopped(attempt: Attempt) -> Outcome:
    match attempt.stopped:
        case "cancel":
            return Cancelled()
        case "timeout":
            return Fail("it ran out of time", "timeout")
        case _:
            return Postpone(0, "its worker stopped")


def describe(error: BaseException, limit: int = 8000) -> str:
    """The error as text, whatever its __str__ does; the end of the traceback is what tells most."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        text = f"{type(error).__name__} (can not be printed)"
    text = text.replace("\x00", "\\x00").strip()
    if len(text) > limit:
        text = "…" + text[-limit:]
    try:
        summary = f"{type(error).__name__}: {error}".replace("\x00", "\\x00")[:500]
    except Exception:
        summary = type(error).__name__
    return f"{summary}\n\n{text}"
