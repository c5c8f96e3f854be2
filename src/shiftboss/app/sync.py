"""The sync facade: one background thread with an event loop, for code that has none."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from shiftboss.app.calls import Call
from shiftboss.app.handle import Group, Handle
from shiftboss.db.callers import enqueue_sync_on
from shiftboss.model.task import Status

if TYPE_CHECKING:
    from shiftboss.app.app import App

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Sync:
    """`app.sync`: the same words as `app`, without await. Safe to use from many threads.

    >>> from shiftboss import App
    >>> app = App("flask")
    >>> @app.task()
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> with app.sync.worker():
    ...     app.sync.enqueue(add.call(2, 3)).result(timeout=30)
    5
    >>> app.sync.close()
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something async of this app on the background loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name=f"shiftboss-{self._app.name}", daemon=True
                ).start()
                atexit.register(self.close)
            return self._loop

    @overload
    def enqueue(self, call: Call[R_co], /, *, conn: Any = None) -> SyncHandle[R_co]: ...

    @overload
    def enqueue(self, *calls: Call[Any], conn: Any = None) -> list[SyncHandle[Any]]: ...

    def enqueue(self, *calls: Call[Any], conn: Any = None) -> Any:
        """Put calls into the queue; with `conn` in that connection's transaction.

        `conn` may be a connection of psycopg or of Django, or a Session or Connection of SQLAlchemy.
        """
        group = self.run(self._app.enqueue_all(calls)) if conn is None else self._enqueue_on(calls, conn)
        handles = [SyncHandle(handle, self) for handle in group]
        return handles[0] if len(calls) == 1 else handles

    def _enqueue_on(self, calls: Sequence[Call[Any]], conn: Any) -> Group[Any]:
        # In the caller's thread: a connection may not be used from another one.
        tasks = self._app._new_tasks(calls)
        return Group(self._app._handles(calls, tasks, enqueue_sync_on(conn, tasks)), self._app)

    @contextmanager
    def worker(self, *, queues: list[str] | None = None, concurrency: int | None = None) -> Iterator[None]:
        """A worker on the background loop while the block lasts."""
        worker = self._app.worker(queues=queues, concurrency=concurrency)
        self.run(_enter(worker))
        try:
            yield
        finally:
            self.run(_leave(worker))

    def close(self) -> None:
        """Close the database and end the thread; the next use starts both again."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            atexit.unregister(self.close)
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)


class SyncHandle(Generic[R_co]):
    """A handle whose methods block."""

    def __init__(self, handle: Handle[R_co], sync: Sync) -> None:
        self._handle = handle
        self._sync = sync
        self.id: UUID = handle.id
        self.created = handle.created

    def result(self, timeout: float | None = None) -> R_co:
        return self._sync.run(self._handle.result(timeout))

    def status(self) -> Status:
        return self._sync.run(self._handle.status())

    def cancel(self, reason: str | None = None) -> None:
        self._sync.run(self._handle.cancel(reason))


async def _enter(context: Any) -> None:
    await context.__aenter__()


async def _leave(context: Any) -> None:
    await context.__aexit__(None, None, None)
