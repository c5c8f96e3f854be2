"""Runs one attempt: resolve, bind, run under a deadline, classify. Never raises."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from shiftboss import tracing
from shiftboss.model.arguments import BadArguments
from shiftboss.model.codec import KeyMissing, Sealed, missing_key
from shiftboss.model.errors import Defer, UsageError
from shiftboss.model.log import LogLine
from shiftboss.model.step import LeaseLost, Loaded, Suspend
from shiftboss.model.task import (
    Cancelled,
    Claimed,
    Complete,
    Fail,
    Outcome,
    Postpone,
    Suspended,
    Unreadable,
    storable,
)
from shiftboss.worker.batches import ITEM, STOP_SECONDS, Batches
from shiftboss.worker.blocking import SyncContext, on
from shiftboss.worker.children import Children
from shiftboss.worker.context import Context, ReportProgress, current
from shiftboss.worker.encoding import to_json
from shiftboss.worker.handlers import Handler, Handlers
from shiftboss.worker.mark import Mark
from shiftboss.worker.messages import Callbacks, ChildDied
from shiftboss.worker.middleware import OpenEnvironment
from shiftboss.worker.retries import ruled
from shiftboss.worker.steps import StepStore, StepWriter
from shiftboss.worker.threads import EXIT_FORKED, describe, in_thread, process

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.engines import Engine

Stop = Literal["cancel", "timeout", "stop", "lost"]

MAX_RESULT = 16 * 1024 * 1024
UNKNOWN_DELAY = 30.0
NOTHING = Complete(None)


class Attempt:
    """A running task; claimed at `since`, by the monotonic clock."""

    context: Context | None = None
    handle: asyncio.Task[None] | None = None
    stopped: Stop | None = None
    timer: asyncio.TimerHandle | None = None
    span: Any = None

    def __init__(self, task: Claimed, since: float) -> None:
        self.task = task
        self.since = since


class Executor:
    """Runs attempts in the event loop, in threads, in child processes or in an engine."""

    def __init__(
        self,
        handlers: Handlers,
        report: ReportProgress,
        db: Database | None = None,
        children: int = 4,
        child_memory_mb: int | None = None,
        on_stopped: Callable[[Attempt, Outcome], None] = lambda attempt, outcome: None,
        mark: Mark | None = None,
        steps: StepStore | None = None,
        on_logs: Callable[[list[LogLine]], None] = lambda lines: None,
        engine: Engine | None = None,
    ) -> None:
        """`on_stopped` is called for stopped attempts, because they may never return an outcome.

        `steps` stores the results of steps; the default is the database. `on_logs` receives the log lines of
        child processes. Handlers that name the `engine` run there.
        """
        self._handlers = handlers
        self._report = report
        self._db = db
        self._steps = StepWriter(db.steps, db) if db is not None and steps is None else steps
        self._writer = self._steps if isinstance(self._steps, StepWriter) else None
        self._children = Children(children, child_memory_mb)
        self._engine = engine
        self._on_stopped = on_stopped
        self._on_logs = on_logs
        self._mark = mark or Mark()
        self._environment = OpenEnvironment(handlers.environment, db)
        self._pid = process()
        self.batches = Batches(self._mark)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """How many handlers continued after they were stopped. Threads cannot be killed."""
        return self._abandoned + self.batches.abandoned

    def fits(self, task: Claimed, running: int, most: int) -> bool:
        """Whether a task can start beside `running` tasks: fewer than `most` run, or it joins a batch."""
        if self.batches.gathers(self._handlers.get(task.task_type)):
            return True
        return running - self.batches.tasks + self.batches.slots < most

    def free(self, running: int, most: int) -> int:
        """Return how many tasks can start beside `running` tasks, up to `most`. A batch counts as one.

        Room in batches counts only while no ordinary task runs: the next claim may bring more ordinary tasks.
        """
        ordinary = running - self.batches.tasks
        return most - ordinary - self.batches.slots + (0 if ordinary else self.batches.wanted)

    async def open(self) -> None:
        """Run the start hooks, open the resources and connect to the engine."""
        await self._environment.open()
        if self._engine is not None:
            await self._engine.open(self._handlers, self._db)

    async def close(self) -> None:
        try:
            await self._children.close()
            if self._engine is not None:
                await self._engine.close()
            if self._writer is not None:
                await self._writer.close()
        finally:
            await self._environment.close()

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """Stop a running attempt. The first reason counts."""
        handle = attempt.handle
        if attempt.stopped is not None or handle is None or handle.done():
            return
        attempt.stopped = why
        if attempt.context is not None:
            attempt.context.cancelled = True
        handle.cancel()
        # A task cancelled before its first step never reaches `_end`, and one that swallows CancelledError
        # never finishes. Report both here.
        handle.add_done_callback(lambda _: self._on_stopped(attempt, self.verdict(attempt)))
        handle.get_loop().call_later(STOP_SECONDS, self._abandon, attempt, handle)

    def _abandon(self, attempt: Attempt, handle: asyncio.Task[None]) -> None:
        if not handle.done():
            self._abandoned += 1
            self._mark.give_up(handle)
            self._on_stopped(attempt, self.verdict(attempt))

    def verdict(self, attempt: Attempt) -> Outcome:
        """Return the outcome of a stopped attempt that returned none."""
        return _stopped(attempt, self._handlers.get(attempt.task.task_type))

    async def run(self, attempt: Attempt) -> Outcome:
        handler = self._handlers.get(attempt.task.task_type)
        attempt.span = tracing.begin(attempt.task)
        try:
            if handler is None:
                return Postpone(UNKNOWN_DELAY, f"no handler for {attempt.task.task_type} on this worker")
            return await self._run(attempt, handler)
        except BaseException as error:
            # Catch all exceptions of handlers: SystemExit and others must not end the worker.
            return await self._flushed(attempt, classify(attempt, error, handler))
        finally:
            if self._writer is not None:
                self._writer.forget(attempt.task.lease)
            if attempt.timer is not None:
                attempt.timer.cancel()
            if process() != self._pid:
                os._exit(EXIT_FORKED)

    async def _run(self, attempt: Attempt, handler: Handler) -> Outcome:
        task = attempt.task
        if type(task.params) is Unreadable:
            return Fail(f"the params cannot be parsed: {task.params.reason}", retry=False)
        _check_opened(task)
        arguments = dict(handler.bind(task.params)) if handler.batch else handler.bind(task.params)
        seconds = _allowance(attempt, handler)
        if seconds is not None:
            if seconds <= 0:
                return Fail("the deadline has passed", "timeout", retry=False)
            attempt.timer = asyncio.get_running_loop().call_later(seconds, self.stop, attempt, "timeout")
        if handler.injected:
            arguments = self._environment.fill(handler.injected, arguments)
        if handler.mode != "async":
            self._loop = asyncio.get_running_loop()
        context = partial(self._context, attempt, handler, seconds)
        current.set(context)
        if self._environment.middleware:
            invoke = partial(self._invoke, attempt, handler, arguments, seconds)
            return await self._environment.through(context(), handler.name, invoke, encode)
        if handler.wants_context and handler.mode != "process":
            context()
        return await self._invoke(attempt, handler, arguments, seconds)

    async def _invoke(
        self, attempt: Attempt, handler: Handler, arguments: dict[str, Any], seconds: float | None
    ) -> Outcome:
        if handler.mode == "process":
            loaded = partial(self._count_time, weakref.ref(attempt), handler)
            callbacks = Callbacks(self._report, self._steps, loaded, self._on_logs)
            outcome = await self._place(handler).run(handler, attempt.task, seconds, callbacks)
            return await self._flushed(attempt, outcome)
        function: Callable[..., Any] = handler.function
        if handler.wants_context:
            function = partial(function, attempt.context)
        if handler.batch is not None:
            item = arguments.pop(ITEM)
            result = await self.batches.run(handler, attempt.task.lease, item, arguments)
        elif handler.mode == "async":
            result = await function(**arguments)
        else:
            result = await self._in_thread(partial(function, **arguments), attempt)
        if self._steps is not None:
            await self._steps.flush(attempt.task.lease)
        return encode(handler.name, result)

    def _place(self, handler: Handler) -> Engine | Children:
        if handler.engine is None:
            return self._children
        if self._engine is None or self._engine.name != handler.engine:
            raise Defer(f"this worker is not connected to {handler.engine}", UNKNOWN_DELAY)
        return self._engine

    async def _flushed(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """Store what a failed attempt emitted before its outcome is reported."""
        if self._steps is not None and attempt.stopped is None:
            with suppress(BaseException):
                await self._steps.flush(attempt.task.lease)
        return outcome

    def _context(self, attempt: Attempt, handler: Handler, seconds: float | None) -> Context:
        """Return the context of this attempt, created on first use."""
        if attempt.context is None:
            loaded = partial(self._count_time, weakref.ref(attempt), handler)
            kind = Context if handler.mode == "async" else SyncContext
            attempt.context = context = kind(
                attempt.task, seconds, self._report, self._db, self._steps, loaded, handler.version
            )
            if isinstance(context, SyncContext):
                assert self._loop is not None
                context.wait = on(self._loop)
        return attempt.context

    def _count_time(self, running: weakref.ref[Attempt], handler: Handler, loaded: Loaded) -> None:
        """Shorten the timeout by the time that the attempt ran before it was suspended."""
        attempt = running()
        if attempt is None:
            return
        timeout = attempt.task.timeout or handler.timeout
        if timeout is None or not loaded.ran or attempt.timer is None:
            return
        left = timeout.total_seconds() - loaded.ran - (time.monotonic() - attempt.since)
        loop = asyncio.get_running_loop()
        if loop.time() + left < attempt.timer.when():
            attempt.timer.cancel()
            attempt.timer = loop.call_later(max(left, 0), self.stop, attempt, "timeout")

    async def _in_thread(self, call: Callable[[], Any], attempt: Attempt) -> Any:
        try:
            return await in_thread(call, f"task-{attempt.task.id}", self._mark, [attempt.task.lease])
        except asyncio.CancelledError:
            self._abandoned += 1
            raise


def _check_opened(task: Claimed) -> None:
    """Raise KeyMissing if this worker has no key for an argument; results of parents are arguments too."""
    if type(task.params) is Sealed or "shiftboss.results" in (task.metadata or ()):
        name = missing_key(task.params)
        if name is not None:
            raise KeyMissing("an argument", name)


def _allowance(attempt: Attempt, handler: Handler) -> float | None:
    """Return the seconds that this attempt may take: its timeout, or less if the deadline is earlier."""
    task = attempt.task
    timeout = task.timeout or handler.timeout
    seconds = None if timeout is None else timeout.total_seconds()
    if task.deadline is not None:
        # Both times are from the database's clock; the clock of this host may be wrong.
        left = (task.deadline - task.started_at).total_seconds() - (time.monotonic() - attempt.since)
        seconds = left if seconds is None else min(seconds, left)
    return seconds


def encode(name: str, result: Any) -> Outcome:
    """Return Complete with the result as JSON, or Fail if it cannot be encoded."""
    if result is None:
        return NOTHING
    try:
        return Complete(to_json(name, result, MAX_RESULT))
    except UsageError as error:
        return Fail(error.text, retry=False)


def classify(attempt: Attempt, error: BaseException, handler: Handler | None = None) -> Outcome:
    """Return the outcome of an attempt that raised `error`."""
    if attempt.stopped is None and _find(error, LeaseLost) is not None:
        attempt.stopped = "lost"  # nothing can be reported
    if attempt.stopped is not None:  # the handler may have raised another error when it was cancelled
        return _stopped(attempt, handler)
    suspend = _find(error, Suspend)
    if isinstance(suspend, Suspend):
        return Suspended(suspend.waits)
    if isinstance(error, Defer):
        return Postpone(max(error.seconds, 0.0), storable(str(error.reason)), error.clear)
    if isinstance(error, KeyMissing):  # another worker may have the key
        return Postpone(UNKNOWN_DELAY, error.message)
    if isinstance(error, BadArguments):
        return Fail(storable(error.text), retry=False)
    if isinstance(error, ChildDied):
        return Fail(str(error), error.kind)
    return ruled(Fail(describe(error)), handler, attempt.task, error)


def _find(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return the error if it has this type, or one from a group in which all have this type."""
    if isinstance(error, BaseExceptionGroup):
        found, others = error.split(kind)
        return _find(found.exceptions[0], kind) if found is not None and others is None else None
    return error if isinstance(error, kind) else None


def _stopped(attempt: Attempt, handler: Handler | None) -> Outcome:
    match attempt.stopped:
        case "cancel":
            return Cancelled()
        case "timeout":
            error = TimeoutError("the attempt timed out")
            return ruled(Fail(str(error), "timeout"), handler, attempt.task, error)
        case _:
            return Postpone(0, "its worker stopped")
