"""What a handler may know about the attempt it is in, and its durable steps and waits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context as ContextVars
from contextvars import ContextVar, copy_context
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload
from uuid import UUID

import orjson

from shiftboss import tracing
from shiftboss.extension import attribute
from shiftboss.log import Log, get_logger
from shiftboss.model.codec import KeyMissing, Sealed
from shiftboss.model.errors import TaskCancelled, TaskFailed, UsageError, WaitTimeout
from shiftboss.model.step import (
    MOST_PART,
    MOST_STEPS,
    Key,
    Loaded,
    Part,
    Recorded,
    Step,
    StepRetry,
    StepScope,
    Suspend,
    check_name,
    check_question,
    in_step,
)
from shiftboss.model.task import Claimed, NewTask, storable
from shiftboss.worker.encoding import decode, returns, schema_of, to_json
from shiftboss.worker.tries import run_async

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.steps import StepStore

ReportProgress = Callable[[int, UUID, int, str | None], None]
Span = timedelta | float
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

#: Gives the context of the attempt that runs here, for functions decorated with `@step`.
current: ContextVar[Callable[[], Context] | None] = ContextVar("shiftboss_context", default=None)


class TaskCall(Protocol[R_co]):
    """What `task.call(...)` makes: a task that is not in the queue yet."""

    @property
    def decode(self) -> Callable[[Any], R_co]: ...

    def new_task(self) -> NewTask: ...


class Context:
    """The first argument of a handler that asks for it (named `ctx`, or annotated `Context`)."""

    def __init__(
        self,
        task: Claimed,
        seconds: float | None,
        report: ReportProgress,
        db: Database | None = None,
        steps: StepStore | None = None,
        on_loaded: Callable[[Loaded], None] = lambda loaded: None,
        version: str | None = None,
    ) -> None:
        self.task = task
        self._report = report
        self._db = db
        self._store = steps
        self._on_loaded = on_loaded
        self._version = version
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._asked: Counter[tuple[str, str]] = Counter()
        self._loading: asyncio.Future[Loaded] | None = None
        self._loaded: Loaded | None = None
        self.cancelled = False
        self._loop = _running_loop()

    @property
    def id(self) -> UUID:
        return self.task.id

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.task.attempt

    @property
    def deadline(self) -> datetime | None:
        return self.task.deadline

    @property
    def seconds_left(self) -> float | None:
        """Until this attempt is ended by force; None: no limit."""
        return None if self._ends is None else self._ends - time.monotonic()

    def progress(self, percent: float, message: str | None = None) -> None:
        """Show how far this is, from 0 to 100. Cheap: call it as often as you like, from any thread."""
        percent = int(min(max(0, percent), 100))  # in this order also for what is not a number
        self._report(self.task.lease, self.task.id, percent, message and storable(str(message)))

    @property
    def db(self) -> Database:
        """The worker's database, for handlers that need one."""
        if self._db is None:
            raise RuntimeError("this worker has no database: it is fed by a coordinator")
        return self._db

    @property
    def backend(self) -> Any:
        """What keeps this task, for extensions: the worker's database, or the source that feeds it."""
        where = self._db or (self._store and self._store.where)
        if where is None:
            raise RuntimeError("this task runs without a database and without a coordinator")
        return where

    def run_in_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What an `async` call returns, for a handler that runs in a thread."""
        if self._loop is None or self._loop is _running_loop():
            coroutine.close()
            raise RuntimeError("this is for handlers that run in a thread; in `async def` use await")
        within = copy_context()  # of the step that runs in this thread
        return asyncio.run_coroutine_threadsafe(_run_within(within, coroutine), self._loop).result()

    def __getattr__(self, name: str) -> Any:
        """What extensions add to a context, such as `ctx.ai`."""
        return attribute(self, name)

    @cached_property
    def log(self) -> Log:
        """A logger that carries the task's id, type and attempt."""
        return get_logger("shiftboss.task").bind(
            task_id=str(self.task.id), task_type=self.task.task_type, attempt=self.task.attempt
        )

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        retry: StepRetry | int | None = None,
        timeout: Span | None = None,
        type: Any = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        retry: StepRetry | int | None = None,
        timeout: Span | None = None,
        type: Any = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retry: StepRetry | int | None = None,
        timeout: Span | None = None,
        type: Any = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run the function, keep its result, and never run it again for this task.

        An attempt that comes after a crash or a failure gets the result that is kept. A name that is used
        again in one attempt is another step. `retry` says how often to try, `timeout` how long one try may
        take, `type` what to decode the result as; by default that is the function's return annotation.
        """
        key = self._key("step", name)
        tries = partial(run_async, partial(function, *args, **kwargs), name, retry, timeout)
        return self._step(key, tries, type or returns(function))

    def sleep(self, name: str, duration: Span) -> Coroutine[Any, Any, None]:
        """Go on after this time. Holds no worker meanwhile: the handler starts again from its top then."""
        return self._sleep(self._key("sleep", name), seconds_of(duration))

    def wait_for(
        self,
        event: str,
        type: Callable[..., T] | Any = None,
        timeout: Span | None = None,
        question: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """The payload of the event with this key, as `type`. Holds no worker while it waits.

        An event that was sent before is found, as long as it is kept. With a `question` people are asked: it
        shows with a form for `type`, and `shiftboss approvals` lists it. Raises WaitTimeout.
        """
        key = self._key("event", event)
        return self._event(key, type, None if timeout is None else seconds_of(timeout), question)

    def run(self, call: TaskCall[T]) -> Coroutine[Any, Any, T]:
        """What a child task returned. Holds no worker while it waits. Raises TaskFailed or TaskCancelled."""
        task = call.new_task()
        return self._child(self._key("child", task.task_type), call, task)

    async def gather(self, *parts: Awaitable[Any] | TaskCall[Any]) -> list[Any]:
        """All results, in order; calls are run as child tasks. The task waits for all of them at once."""
        awaitables = [part if isinstance(part, Awaitable) else self.run(part) for part in parts]
        results = await asyncio.gather(*awaitables, return_exceptions=True)
        return sorted_out(results)

    async def emit(self, part: Any) -> None:
        """Show a part of the result to those who read the task's stream; any JSON.

        Parts are stored in order within 50 ms. What a step emits is taken back if the step runs again.
        """
        text = to_json("emit", part, MOST_PART) or b"null"
        scope = in_step.get()
        name = None if scope is None else scope.name
        await self._steps.emit(Part(self.task.id, self.task.lease, name, text))

    def _key(self, kind: str, name: str) -> Key:
        self._asked[kind, check_name(name)] += 1
        if self._asked.total() > MOST_STEPS:
            raise UsageError(f"a task can have {MOST_STEPS} steps at most", hint="use child tasks: ctx.run")
        return kind, name, self._asked[kind, name]

    async def _known(self) -> Loaded:
        """The steps of earlier attempts: loaded once, when the first step is asked for."""
        if self._loaded is None:
            if self._loading is None:
                self._loading = asyncio.ensure_future(self._steps.load(self.task, self._version))
            self._loaded = await asyncio.shield(self._loading)
            self._on_loaded(self._loaded)
        return self._loaded

    @property
    def _steps(self) -> StepStore:
        if self._store is None:
            raise UsageError(
                "durable steps and waits need a worker with a database or a coordinator",
            )
        return self._store

    async def _recorded(self, key: Key) -> Recorded | None:
        recorded = (await self._known()).steps.get(key)
        if recorded is not None and isinstance(recorded.result, Sealed):
            raise KeyMissing(f"what is recorded for {key[1]!r}", recorded.result.key)
        return recorded

    async def _step(self, key: Key, run: Callable[[], Awaitable[Any]], kind: Any) -> Any:
        recorded = await self._recorded(key)
        if recorded is not None:
            return decode(f"step {key[1]!r}", recorded.result, kind)
        began, scope = time.monotonic(), self._scope(key)
        stored = False
        try:
            with stepping(scope, key[1]):
                value = await run()
            shown = await self._keep(key, value, kind, time.monotonic() - began, scope)
            stored = True
            return shown
        finally:
            scope.end(stored)

    def _scope(self, key: Key) -> StepScope:
        return StepScope(f"{key[1]}#{key[2]}", self._steps.where)

    async def _keep(self, key: Key, value: Any, kind: Any, seconds: float, scope: StepScope) -> Any:
        """Store the result, and give it as a later attempt will get it."""
        what = f"step {key[1]!r}"
        text = to_json(what, value, (await self._known()).most)
        shown = decode(what, None if text is None else orjson.loads(text), kind)
        await self._steps.flush(self.task.lease)  # a step that is stored has been heard in full
        also = scope.take()
        await self._steps.store(Step(self.task.id, self.task.lease, key[1], key[2], seconds, text, also))
        return shown

    async def _wait(self, wanted: Key, **terms: Any) -> Recorded:
        recorded = await self._recorded(wanted)
        if recorded is None or recorded.state == "waiting":
            kind, name, ordinal = wanted
            raise Suspend([{"kind": kind, "name": name, "ordinal": ordinal, **terms}])
        return recorded

    async def _sleep(self, key: Key, seconds: float) -> None:
        await self._wait(key, seconds=seconds)

    async def _event(self, key: Key, kind: Any, seconds: float | None, question: str | None) -> Any:
        asked = {} if question is None else {"question": check_question(question), "schema": schema_of(kind)}
        recorded = await self._wait(key, key=key[1], seconds=seconds, **asked)
        if recorded.state == "timeout":
            raise WaitTimeout(f"the event {key[1]!r} has not come in time")
        return decode(f"event {key[1]!r}", recorded.result, kind)

    async def _child(self, key: Key, call: TaskCall[Any], task: NewTask) -> Any:
        from shiftboss.db.tasks import as_json

        new = await self._recorded(key) is None
        with tracing.sending([task] if new else []) as carried:
            plain = as_json(carried[0] if carried else task)
        recorded = await self._wait(key, task=plain)
        child = recorded.child_id or self.task.id
        if recorded.state == "failed":
            raise TaskFailed(child, recorded.result)
        if recorded.state == "cancelled":
            raise TaskCancelled(child, recorded.result)
        return call.decode(recorded.result)


@contextmanager
def stepping(scope: StepScope, name: str) -> Iterator[None]:
    """What is emitted, logged and traced in this block belongs to the step."""
    token = in_step.set(scope)
    try:
        with tracing.step(name):
            yield
    finally:
        in_step.reset(token)


def sorted_out(results: list[Any]) -> list[Any]:
    """The results, if all are there; else the first failure, or one Suspend for everything that waits."""
    waits: list[dict[str, Any]] = []
    for result in results:
        if isinstance(result, Suspend):
            waits += result.waits
        elif isinstance(result, BaseException):
            raise result
    if waits:
        raise Suspend(waits)
    return results


def seconds_of(span: Span) -> float:
    """A plain number means seconds."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds <= 10 * 366 * 86400:
        raise UsageError(f"a task cannot wait for {seconds} s", hint="at most ten years")
    return seconds


async def _run_within(context: ContextVars, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.get_running_loop().create_task(coroutine, context=context)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
