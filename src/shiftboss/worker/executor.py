"""One attempt as a straight pipeline: resolve, bind, run under a deadline, classify. Never raises."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import orjson

from shiftboss.model.errors import Defer
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Outcome, Postpone, Unreadable, storable
from shiftboss.worker.children import ChildDied, Children
from shiftboss.worker.context import Context, ReportProgress
from shiftboss.worker.handlers import BadArguments, Handler, Handlers

if TYPE_CHECKING:
    from shiftboss.db import Database

Stop = Literal["cancel", "timeout", "stop", "lost"]

MAX_RESULT = 16 * 1024 * 1024
UNKNOWN_DELAY = 30.0
JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
#: Seconds that a coroutine has for its end once it was told to; then it is left to itself.
MOMENT = 2.0
#: A handler forked and came back twice: the copy must not go on with our loop and our sockets.
EXIT_FORKED = 70
_pid = os.getpid()


def _forked() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_forked)


class Attempt:
    """A task while it runs here; claimed at `since`, by the monotonic clock."""

    __slots__ = ("context", "handle", "since", "stopped", "task", "timer")

    def __init__(self, task: Claimed, since: float) -> None:
        self.task = task
        self.since = since
        self.context: Context | None = None
        self.handle: asyncio.Task[None] | None = None
        self.stopped: Stop | None = None
        self.timer: asyncio.TimerHandle | None = None


class Executor:
    """Runs attempts by the mode of their handler."""

    def __init__(
        self,
        handlers: Handlers,
        report: ReportProgress,
        db: Database | None = None,
        children: int = 4,
        child_memory_mb: int | None = None,
        on_stopped: Callable[[Attempt, Outcome], None] = lambda attempt, outcome: None,
    ) -> None:
        """`on_stopped` hears of attempts that were stopped and will not end, or may have already."""
        self._handlers = handlers
        self._report = report
        self._db = db
        self._children = Children(children, child_memory_mb)
        self._on_stopped = on_stopped
        self._pid = _pid
        #: Handlers that went on when they were told to end: threads can not be killed, so they are counted.
        self.abandoned = 0

    async def close(self) -> None:
        await self._children.close()

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """End it from outside; the first reason stands."""
        handle = attempt.handle
        if attempt.stopped is not None or handle is None or handle.done():
            return
        attempt.stopped = why
        if attempt.context is not None:
            attempt.context.cancelled = True
        handle.cancel()
        # One that had not begun ends without a word, and one that does not listen not at all.
        handle.add_done_callback(lambda _: self._on_stopped(attempt, _stopped(attempt)))
        handle.get_loop().call_later(MOMENT, self._abandon, attempt, handle)

    def _abandon(self, attempt: Attempt, handle: asyncio.Task[None]) -> None:
        if not handle.done():
            self.abandoned += 1
            asyncio.tasks._unregister_task(handle)  # or the end of the loop would wait for it
            self._on_stopped(attempt, _stopped(attempt))

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
            if _pid != self._pid:
                os._exit(EXIT_FORKED)

    async def _run(self, attempt: Attempt, handler: Handler) -> Outcome:
        task = attempt.task
        if type(task.params) is Unreadable:
            return Fail(f"the task can not be read: {task.params.reason}", retry=False)
        arguments = handler.bind(task.params)
        seconds = _allowance(attempt, handler)
        if seconds is not None:
            if seconds <= 0:
                return Fail("its deadline has passed", "timeout", retry=False)
            attempt.timer = asyncio.get_running_loop().call_later(seconds, self.stop, attempt, "timeout")
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
            finally:
                if _pid != self._pid:
                    os._exit(EXIT_FORKED)

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


def _allowance(attempt: Attempt, handler: Handler) -> float | None:
    """Seconds that this attempt may take: its timeout, or less if the task's deadline is nearer."""
    task = attempt.task
    timeout = task.timeout or handler.timeout
    seconds = None if timeout is None else timeout.total_seconds()
    if task.deadline is not None:
        # By the database's clock, which set both: this host's may be wrong.
        left = (task.deadline - task.started_at).total_seconds() - (time.monotonic() - attempt.since)
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
    if attempt.stopped is not None:  # whatever the handler made of it
        return _stopped(attempt)
    if isinstance(error, Defer):
        return Postpone(max(error.seconds, 0.0), storable(str(error.reason)))
    if isinstance(error, BadArguments):
        return Fail(storable(error.message), retry=False)
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
    text = storable(text).strip()
    if len(text) > limit:
        text = "…" + text[-limit:]
    try:
        summary = storable(f"{type(error).__name__}: {error}")[:500]
    except Exception:
        summary = type(error).__name__
    return f"{summary}\n\n{text}"
