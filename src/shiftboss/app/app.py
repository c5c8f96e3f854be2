"""The `App` class, the entry point of the Python API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload
from uuid import UUID
from weakref import WeakKeyDictionary

from pydantic_core import to_jsonable_python

from shiftboss.app.calls import Call, Calls, whole
from shiftboss.app.decorator import BatchDecorator, TaskDecorator
from shiftboss.app.handle import Group, Handle, as_id
from shiftboss.app.task import AsyncTask, PlainTask, Task
from shiftboss.extension import attribute
from shiftboss.log import get_logger
from shiftboss.model.errors import UsageError
from shiftboss.model.task import Enqueued, NewTask
from shiftboss.worker.batches import Batch
from shiftboss.worker.handlers import Handler, Handlers
from shiftboss.worker.middleware import Middleware
from shiftboss.worker.options import AllTerms, Terms

if TYPE_CHECKING:  # imported on first use, because the driver and the worker dominate the import time
    from shiftboss.app.connection import AppConnection
    from shiftboss.app.schedule import Cron
    from shiftboss.app.sync import Sync
    from shiftboss.db import Database
    from shiftboss.worker.runtime import Worker

log = get_logger(__name__)
R = TypeVar("R")
M = TypeVar("M", bound=Middleware)
H = TypeVar("H", bound=Callable[[], Any])


def elsewhere(**arguments: Any) -> Any:
    """Stand in for a function that this program does not import."""
    raise UsageError(
        "a task from `task_named` has no function to call in this process", hint="call its `enqueue` instead"
    )


class App:
    """A set of tasks and the database they are enqueued in.

    The settings (`SHIFTBOSS_DATABASE_URL`, `shiftboss.toml`) name the database; without one, the embedded
    server is used. The database is opened on first use; `async with app:` closes it at the end of the block.

    >>> import asyncio
    >>> from shiftboss import App
    >>> app = App("hello")
    >>> @app.task()
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}"
    >>> async def main() -> None:
    ...     async with app, app.worker():
    ...         handle = await greet.enqueue("World")
    ...         print(await handle.result(timeout=30))
    >>> asyncio.run(main())
    Hello, World
    """

    def __init__(self, name: str, *, url: str | None = None) -> None:
        if not name:
            raise UsageError("an app needs a name", hint='for example: App("shop")')
        self.name = name
        self.handlers = Handlers()
        self.schedules: list[Cron] = []
        self._url = url
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, AppConnection] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @overload
    def task(
        self, name: str | None = None, *, batch: Batch | int, **terms: Unpack[Terms]
    ) -> BatchDecorator: ...

    @overload
    def task(self, name: str | None = None, **terms: Unpack[Terms]) -> TaskDecorator: ...

    def task(self, name: str | None = None, **terms: Any) -> Any:
        """Decorate a function as a task. The default name is `<app>.<function>`.

        An `async def` runs in the worker's event loop, a `def` in a thread, and with `mode="process"` in a
        child process. With `batch=Batch(max_size=100, max_wait=0.1)`, one call handles many tasks: the
        function takes a list of items and returns a list of results. Each task is enqueued with one item.
        """

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, Task):
                raise UsageError(
                    f"{function.name} is already a task",
                    hint="use one decorator: `@app.cron` declares a task too and takes the same options",
                )
            given = cast(AllTerms, terms)
            handler = Handler.of(function, name or f"{self.name}.{function.__name__}", given)
            self.handlers.add(handler)
            return self._task(handler)

        return BatchDecorator(decorate) if terms.get("batch") else TaskDecorator(decorate)

    def task_named(self, name: str) -> Task[..., Any]:
        """Return a task by name, also one whose function this program does not import.

        Pass all arguments by name. Without the function, they are checked against the schema that workers
        publish, and a key that is a function does not apply.
        """
        return self._task(self.handlers.get(name) or Handler(name=name, function=elsewhere, mode="thread"))

    def _task(self, handler: Handler) -> Task[..., Any]:
        kind = AsyncTask if handler.mode == "async" else PlainTask
        return kind(self, handler)

    def cron(
        self, expression: str, *, timezone: str = "UTC", name: str | None = None, **terms: Unpack[Terms]
    ) -> TaskDecorator:
        """Decorate a function as a task that is also enqueued on a schedule, once for the whole fleet.

        The schedule is registered when a worker or `shiftboss up` starts with this app. Accepts the options
        of `task`. The function must be callable without arguments.
        """
        from shiftboss.app.schedule import schedule

        decorate = self.task(name, **terms)

        def scheduled(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = decorate(function)
            self.schedules.append(schedule(task.handler, expression, timezone))
            return task

        return TaskDecorator(scheduled)

    def middleware(self, function: M) -> M:
        """Decorate an `async def f(ctx, call_next)` that wraps each attempt of every task.

        `await call_next()` runs the handler and returns its result as plain JSON data, or raises its error.
        The value that the middleware returns or raises becomes the outcome of the attempt. The middleware
        declared first is outermost.
        """
        self.handlers.environment.middleware.append(function)
        return function

    def on_start(self, function: H) -> H:
        """Decorate a function that each worker calls before it takes tasks: sync or async, no arguments."""
        self.handlers.environment.starts.append(function)
        return function

    def on_stop(self, function: H) -> H:
        """Decorate a function that each worker calls after its last task: sync or async, no arguments."""
        self.handlers.environment.stops.append(function)
        return function

    def resource(self, function: H) -> H:
        """Decorate a function that creates a resource for each worker: an HTTP client, a model, a pool.

        The function yields or returns the resource. Task parameters annotated with its type receive it and
        are not arguments of the task. Give them the default `inject` to satisfy type checkers.
        """
        self.handlers.environment.add_resource(function)
        return function

    def include(self, other: Handlers | App) -> None:
        """Add the tasks of another app, or the handlers of an extension, to this app."""
        if isinstance(other, App):
            self.schedules += other.schedules
            other = other.handlers
        self.handlers.include(other)

    @overload
    async def enqueue(self, call: Call[R], /, *, conn: Any = None) -> Handle[R]: ...

    @overload
    async def enqueue(self, group: Calls[R], /, *, conn: Any = None) -> Group[R]: ...

    @overload
    async def enqueue(self, *calls: Call[Any], conn: Any = None) -> Group[Any]: ...

    async def enqueue(self, *calls: Any, conn: Any = None) -> Handle[Any] | Group[Any]:
        """Enqueue calls and everything they wait for, all or nothing.

        With `conn` (psycopg's AsyncConnection, or SQLAlchemy's AsyncSession or AsyncConnection), the tasks
        are inserted in that connection's transaction and disappear if it rolls back.
        """
        if len(calls) == 1 and isinstance(calls[0], Calls):
            return await self.enqueue_all(calls[0], conn=conn)
        group = await self.enqueue_all(calls, conn=conn)
        return group.handles[0] if len(calls) == 1 else group

    async def enqueue_all(self, calls: Sequence[Call[R]], *, conn: Any = None) -> Group[R]:
        """Enqueue any number of calls, like `enqueue`, and always return a group."""
        tasks, named = self._new_tasks(calls)
        await self._check(named)
        if conn is None:
            made = await (await self.database()).tasks.enqueue(tasks) if tasks else []
        else:
            from shiftboss.db.callers import enqueue_on

            made = await enqueue_on(conn, tasks)
        return Group(self._handles(calls, tasks, made), self)

    def _new_tasks(self, calls: Sequence[Call[Any]]) -> tuple[list[NewTask], list[NewTask]]:
        """Return the tasks, and those of them whose function is elsewhere: only the published schema fits."""
        made = [(call, call.new_task()) for call in whole(calls)]
        return [task for _, task in made], [task for call, task in made if call.handler.function is elsewhere]

    async def _check(self, tasks: Sequence[NewTask]) -> None:
        """Check tasks against the schemas that workers publish."""
        if not tasks:
            return
        from shiftboss.model.settings import Settings

        schemas, strict = (await self.database()).schemas, Settings.load().tasks.strict
        for warning in await schemas.check(tasks, strict=strict):
            log.warning(warning)

    def _handles(
        self, calls: Sequence[Call[R]], tasks: Sequence[NewTask], made: Sequence[Enqueued]
    ) -> list[Handle[R]]:
        by_id = {task.id: one for task, one in zip(tasks, made, strict=True)}
        return [
            Handle(by_id[call.id].id, self, decode=call.decode, created=by_id[call.id].created)
            for call in calls
        ]

    def handle(self, id: UUID | str) -> Handle[Any]:
        """Return the handle of a task by its id. Use `task.handle(id)` to decode the result to its type."""
        return Handle(as_id(id), self)

    async def send_event(
        self,
        key: str,
        payload: Any = None,
        *,
        task: UUID | None = None,
        id: UUID | None = None,
        keep: timedelta | None = None,
        conn: Any = None,
    ) -> int:
        """Send an event to the tasks that wait for `key`, and return how many of them it wakes.

        `task` limits the event to one task. Repeating a call with the same `id` has no effect. Tasks that
        start to wait within `keep` (default: one day) receive the event too. With `conn`, a psycopg
        connection, the event is sent when that transaction commits.
        """
        db = await self.database()
        plain = to_jsonable_python(payload)
        return await db.steps.send_event(key, plain, task=task, id=id, keep=keep, conn=conn)

    @cached_property
    def sync(self) -> Sync:
        """The same API for code without an event loop: Flask, Django, scripts."""
        from shiftboss.app.sync import Sync

        return Sync(self)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that an extension adds, such as `app.name`."""
        return attribute(self, name)

    async def database(self) -> Database:
        """Return the database of this event loop, opening it if necessary."""
        return (await self.connection()).db

    async def connection(self) -> AppConnection:
        from shiftboss.app.connection import AppConnection

        loop = asyncio.get_running_loop()
        lock = self._opening.setdefault(loop, asyncio.Lock())
        async with lock:
            if loop not in self._connections:
                self._connections[loop] = await AppConnection.open(self._url)
            return self._connections[loop]

    async def use(self, db: Database) -> None:
        """Use an open database in this event loop. The caller closes it."""
        from shiftboss.app.connection import AppConnection

        await self.close()
        self._connections[asyncio.get_running_loop()] = AppConnection(db, owned=False)

    async def close(self) -> None:
        """Close the database of this event loop. The next use opens it again."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> Self:
        await self.connection()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def worker(
        self, *, queues: list[str] | None = None, concurrency: int | None = None
    ) -> AsyncIterator[Worker]:
        """Run a worker in this process for the duration of the block, for scripts, notebooks and tests."""
        connection = await self.connection()
        async with connection.worker(self, queues, concurrency) as worker:
            yield worker
