"""App: tasks by decorator, enqueue, results. The one object that user code needs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from shiftboss.app.calls import Call, whole
from shiftboss.app.decorator import TaskDecorator
from shiftboss.app.handle import Group, Handle
from shiftboss.app.link import Link
from shiftboss.app.schedule import Cron, schedule
from shiftboss.app.sync import Sync
from shiftboss.app.task import AsyncTask, PlainTask, Task
from shiftboss.db import Database
from shiftboss.db.callers import enqueue_on
from shiftboss.model.errors import UsageError
from shiftboss.model.task import Enqueued, NewTask
from shiftboss.worker.handlers import Handler, Handlers, Terms
from shiftboss.worker.runtime import Worker

R = TypeVar("R")


class App:
    """A name, a set of handlers, and the way to the database.

    Where the database is comes from the settings (`SHIFTBOSS_DATABASE_URL`, `shiftboss.toml`), or is the
    embedded server. It is opened on first use; `async with app:` closes it in the end.

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
            raise UsageError("an app needs a name", hint='App("shop"): its tasks are named shop.<function>')
        self.name = name
        self.handlers = Handlers()
        self.tasks: dict[str, Task[..., Any]] = {}
        self.schedules: list[Cron] = []
        self._url = url
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, Link] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def task(self, name: str | None = None, **terms: Unpack[Terms]) -> TaskDecorator:
        """Decorate a function as a task. Its name is `<app>.<function>` unless you give one.

        `async def` runs in the worker's event loop, `def` in a thread, `mode="process"` in a child process.
        """

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            handler = Handler.of(function, name or f"{self.name}.{function.__name__}", terms)
            self.handlers.add(handler)
            kind = AsyncTask if inspect.iscoroutinefunction(function) else PlainTask
            task: Task[..., Any] = kind(self, handler)
            self.tasks[handler.name] = task
            return task

        return TaskDecorator(decorate)

    def cron(
        self, expression: str, *, timezone: str = "UTC", name: str | None = None, **terms: Unpack[Terms]
    ) -> TaskDecorator:
        """Decorate a function as a task that is also enqueued by the clock, once for the whole fleet.

        The schedule is made known when a worker or `shiftboss up` starts with this app. Takes the terms of
        `task`. The function must be callable without arguments.
        """
        decorate = self.task(name, **terms)

        def scheduled(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = decorate(function)
            self.schedules.append(schedule(task.handler, expression, timezone))
            return task

        return TaskDecorator(scheduled)

    def include(self, other: Handlers | App) -> None:
        """Take over the handlers of another app, or of a room of Shiftboss."""
        if isinstance(other, App):
            self.tasks |= other.tasks
            self.schedules += other.schedules
            other = other.handlers
        self.handlers.include(other)

    @overload
    async def enqueue(self, call: Call[R], /, *, conn: Any = None) -> Handle[R]: ...

    @overload
    async def enqueue(self, *calls: Call[Any], conn: Any = None) -> Group[Any]: ...

    async def enqueue(self, *calls: Call[Any], conn: Any = None) -> Handle[Any] | Group[Any]:
        """Put calls and all they wait for into the queue: all of them or none.

        With `conn` (psycopg's AsyncConnection, SQLAlchemy's AsyncSession or AsyncConnection) it happens in
        the transaction of that connection: if it rolls back, there never was a task.
        """
        group = await self.enqueue_all(calls, conn=conn)
        return group.handles[0] if len(calls) == 1 else group

    async def enqueue_all(self, calls: Sequence[Call[R]], *, conn: Any = None) -> Group[R]:
        """As `enqueue`, for any number of calls."""
        tasks = self._new_tasks(calls)
        if conn is None:
            made = await (await self.database()).tasks.enqueue(tasks) if tasks else []
        else:
            made = await enqueue_on(conn, tasks)
        return Group(self._handles(calls, tasks, made), self)

    def _new_tasks(self, calls: Sequence[Call[Any]]) -> Sequence[NewTask]:
        return [call.new_task() for call in whole(calls)]

    def _handles(
        self, calls: Sequence[Call[R]], tasks: Sequence[NewTask], made: Sequence[Enqueued]
    ) -> list[Handle[R]]:
        by_id = {task.id: one for task, one in zip(tasks, made, strict=True)}
        return [
            Handle(by_id[call.id].id, self, decode=call.decode, created=by_id[call.id].created)
            for call in calls
        ]

    @cached_property
    def sync(self) -> Sync:
        """The same for code without an event loop: Flask, Django, scripts."""
        return Sync(self)

    async def database(self) -> Database:
        """The open database of this event loop."""
        return (await self.link()).db

    async def link(self) -> Link:
        loop = asyncio.get_running_loop()
        lock = self._opening.setdefault(loop, asyncio.Lock())
        async with lock:
            if loop not in self._links:
                self._links[loop] = await Link.open(self._url)
            return self._links[loop]

    async def use(self, db: Database) -> None:
        """Use this open database in this event loop; whoever opened it closes it."""
        await self.close()
        self._links[asyncio.get_running_loop()] = Link(db, owned=False)

    async def close(self) -> None:
        """Close what this event loop opened; the next use opens it again."""
        link = self._links.pop(asyncio.get_running_loop(), None)
        if link is not None:
            await link.close()

    async def __aenter__(self) -> Self:
        await self.link()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def worker(
        self, *, queues: list[str] | None = None, concurrency: int | None = None
    ) -> AsyncIterator[Worker]:
        """A worker in this very process while the block lasts: for scripts, notebooks and tests."""
        link = await self.link()
        async with link.worker(self, queues, concurrency) as worker:
            yield worker
