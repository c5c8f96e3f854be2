"""The context of an attempt: what a handler can read about it, and its durable steps and waits."""

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
    IN_STEP,
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

#: Returns the context of the current attempt, for functions decorated with `@step`.
current: ContextVar[Callable[[], Context] | None] = ContextVar("shiftboss_context", default=None)


class TaskCall(Protocol[R_co]):
    """The result of `task.call(...)`: a task that is not enqueued yet."""

    @property
    def decode(self) -> Callable[[Any], R_co]: ...

    def new_task(self) -> NewTask: ...


class Context:
    """The first argument of a handler whose first parameter is named `ctx` or annotated `Context`."""

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
        """The number of this attempt, from 1."""
        return self.task.attempt

    @property
    def tenant(self) -> str | None:
        """The tenant that the task was enqueued for."""
        return self.task.tenant

    @property
    def deadline(self) -> datetime | None:
        return self.task.deadline

    @property
    def seconds_left(self) -> float | None:
        """Seconds until this attempt times out; None without a limit."""
        return None if self._ends is None else self._ends - time.monotonic()

    def progress(self, percent: float, message: str | None = None) -> None:
        """Report the progress, from 0 to 100. Cheap, and safe to call from any thread."""
        percent = int(min(max(0, percent), 100))  # in this order, NaN becomes 0
        self._report(self.task.lease, self.task.id, percent, message and storable(str(message)))

    @property
    def db(self) -> Database:
        """The worker's database."""
        if self._db is None:
            raise RuntimeError("this worker has no database: it gets its tasks from another source")
        return self._db

    @property
    def backend(self) -> Any:
        """What stores this task, for extensions: the worker's database, or the source of its tasks."""
        where = self._db or (self._store and self._store.where)
        if where is None:
            raise RuntimeError("this task runs without a database and without another source of tasks")
        return where

    def run_in_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the worker's event loop and return its result, from a handler in a thread."""
        if self._loop is None or self._loop is _running_loop():
            coroutine.close()
            raise RuntimeError("run_in_loop is for handlers that run in a thread; in `async def` use await")
        within = copy_context()  # keeps the current step
        return asyncio.run_coroutine_threadsafe(_run_within(within, coroutine), self._loop).result()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that an extension adds, such as `ctx.name`."""
        return attribute(self, name)

    @cached_property
    def log(self) -> Log:
        """A logger that adds the task's id, type and attempt to every message."""
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
        """Run the function once per task and store its result.

        Later attempts, after a crash or a failure, get the stored result. Using a name again in one attempt
        creates another step. `retry` sets how often to try, `timeout` how long one try may take, and `type`
        the type of the result; the default is the function's return annotation.
        """
        key = self._key("step", name)
        tries = partial(run_async, partial(function, *args, **kwargs), name, retry, timeout)
        return self._step(key, tries, type or returns(function))

    def sleep(self, name: str, duration: Span) -> Coroutine[Any, Any, None]:
        """Suspend the task for this time. It occupies no worker; then the handler starts from its top."""
        return self._sleep(self._key("sleep", name), seconds_of(duration))

    def wait_for(
        self,
        event: str,
        type: Callable[..., T] | Any = None,
        timeout: Span | None = None,
        question: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Wait for the event with this key and return its payload as `type`. The wait occupies no worker.

        An event that was sent earlier counts until it expires. A `question` asks a person: the dashboard
        shows it with a form for `type`, and `shiftboss approvals` lists it. Raises WaitTimeout.
        """
        key = self._key("event", event)
        return self._event(key, type, None if timeout is None else seconds_of(timeout), question)

    def run(self, call: TaskCall[T]) -> Coroutine[Any, Any, T]:
        """Run a child task and return its result. The wait occupies no worker.

        The child has this task's tenant unless it names another. Raises TaskFailed or TaskCancelled.
        """
        task = call.new_task()
        task.tenant = task.tenant or self.task.tenant
        return self._child(self._key("child", task.task_type), call, task)

    async def gather(self, *parts: Awaitable[Any] | TaskCall[Any]) -> list[Any]:
        """Wait for all parts at once and return their results in order. Calls run as child tasks."""
        awaitables = [part if isinstance(part, Awaitable) else self.run(part) for part in parts]
        results = await asyncio.gather(*awaitables, return_exceptions=True)
        return sorted_out(results)

    async def emit(self, part: Any) -> None:
        """Append a part, which can be any JSON, to the task's stream.

        Parts are stored in order within 50 ms. If a step runs again, the parts that it emitted are removed.
        """
        text = to_json("emit", part, MOST_PART) or b"null"
        scope = in_step.get()
        name = None if scope is None else scope.name
        await self._steps.emit(Part(self.task.id, self.task.lease, name, text))

    def _key(self, kind: str, name: str) -> Key:
        self._asked[kind, check_name(name)] += 1
        if self._asked.total() > MOST_STEPS:
            raise UsageError(f"a task can have at most {MOST_STEPS} steps", hint="use child tasks: ctx.run")
        return kind, name, self._asked[kind, name]

    async def _known(self) -> Loaded:
        """Return the steps of earlier attempts. They are loaded once, before the first step."""
        if self._loaded is None:
            if self._loading is None:
                self._loading = asyncio.ensure_future(self._steps.load(self.task, self._version))
            self._loaded = await asyncio.shield(self._loading)
            self._loading = None  # otherwise its context variables keep this attempt in a cycle
            self._on_loaded(self._loaded)
        return self._loaded

    @property
    def _steps(self) -> StepStore:
        if self._store is None:
            raise UsageError(
                "durable steps and waits need a worker with a database, or a source that stores them"
            )
        return self._store

    async def _recorded(self, key: Key) -> Recorded | None:
        recorded = (await self._known()).steps.get(key)
        if recorded is not None and isinstance(recorded.result, Sealed):
            raise KeyMissing(f"the stored result of {key[1]!r}", recorded.result.key)
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
        """Store the result, and return it as a later attempt will read it."""
        what = f"step {key[1]!r}"
        text = to_json(what, value, (await self._known()).most)
        shown = decode(what, None if text is None else orjson.loads(text), kind)
        await self._steps.flush(self.task.lease)  # store the parts of a step before the step
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
            raise WaitTimeout(f"the event {key[1]!r} did not arrive in time")
        return decode(f"event {key[1]!r}", recorded.result, kind)

    async def _child(self, key: Key, call: TaskCall[Any], task: NewTask) -> Any:
        from shiftboss.db.encoding import as_json

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
    """Assign what is emitted, logged and traced in this block to the step."""
    token = in_step.set(scope)
    try:
        with tracing.step(name):
            yield
    except Exception as error:
        error.add_note(f"{IN_STEP}{scope.name}")  # the traceback ends with it
        raise
    finally:
        in_step.reset(token)


def sorted_out(results: list[Any]) -> list[Any]:
    """Return the results. Raise the first failure, or else one Suspend for all that wait."""
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
    """Convert a timedelta or a number of seconds, and check the range."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds <= 10 * 366 * 86400:
        raise UsageError(f"a task cannot wait for {seconds} s", hint="use 0 seconds to ten years")
    return seconds


async def _run_within(context: ContextVars, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.get_running_loop().create_task(coroutine, context=context)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
