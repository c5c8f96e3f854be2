"""The synchronous facade: a background thread runs the event loop for code that has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from uuid import UUID

from shiftboss.app.calls import Call, Calls
from shiftboss.app.handle import Group, Handle
from shiftboss.db.callers import enqueue_sync_on
from shiftboss.db.sync import Background, SyncFamily
from shiftboss.extension import attribute
from shiftboss.model.task import Cancel, Reason, Result, State, Status

if TYPE_CHECKING:
    from shiftboss.app.app import App

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Sync(Background):
    """The blocking counterpart of `App`, available as `app.sync`. Safe to use from many threads.

    It runs coroutines like any `Background`, and `close` closes the database.

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
        self.app = app
        super().__init__(f"shiftboss-{app.name}", app.close)

    @property
    def db(self) -> Any:
        """The app's database with blocking methods, such as `app.sync.db.health.get_all_workers()`."""
        return SyncFamily(self.run(self.app.database()), self)

    def handle(self, id: UUID | str) -> SyncHandle[Any]:
        """Return the handle of a task by its id."""
        return SyncHandle(self.app.handle(id), self)

    @overload
    def enqueue(self, call: Call[R_co], /, *, conn: Any = None) -> SyncHandle[R_co]: ...

    @overload
    def enqueue(self, group: Calls[T], /, *, conn: Any = None) -> list[SyncHandle[T]]: ...

    @overload
    def enqueue(self, *calls: Call[Any], conn: Any = None) -> list[SyncHandle[Any]]: ...

    def enqueue(self, *calls: Any, conn: Any = None) -> Any:
        """Enqueue calls, with `conn` in that connection's transaction.

        `conn` is a psycopg or Django connection, or a SQLAlchemy Session or Connection.
        """
        several = len(calls) != 1 or isinstance(calls[0], Calls)
        chosen: Sequence[Call[Any]] = calls[0] if several and len(calls) == 1 else calls
        group = self.run(self.app.enqueue_all(chosen)) if conn is None else self._enqueue_on(chosen, conn)
        handles = [SyncHandle(handle, self) for handle in group]
        return handles if several else handles[0]

    def _enqueue_on(self, calls: Sequence[Call[Any]], conn: Any) -> Group[Any]:
        # Stay in the caller's thread: a connection must not be used from another one.
        tasks, named = self.app._new_tasks(calls)
        if named:
            self.run(self.app._check(named))
        return Group(self.app._handles(calls, tasks, enqueue_sync_on(conn, tasks)), self.app)

    def send_event(self, key: str, payload: Any = None, *, task: UUID | None = None) -> int:
        """Send an event to the tasks that wait for `key`, and return how many of them it wakes."""
        return self.run(self.app.send_event(key, payload, task=task))

    @contextmanager
    def worker(self, *, queues: list[str] | None = None, concurrency: int | None = None) -> Iterator[None]:
        """Run a worker on the background loop for the duration of the block."""
        with self.within(self.app.worker(queues=queues, concurrency=concurrency)):
            yield

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that an extension adds, such as `app.sync.name`."""
        return attribute(self, name)


class SyncHandle(Generic[R_co]):
    """The blocking counterpart of `Handle`."""

    def __init__(self, handle: Handle[R_co], sync: Sync) -> None:
        self._handle = handle
        self._sync = sync
        self.id: UUID = handle.id
        self.created = handle.created

    def result(self, timeout: float | None = None) -> R_co:
        return self._sync.run(self._handle.result(timeout))

    def wait(self, timeout: float | None = None) -> Result:
        return self._sync.run(self._handle.wait(timeout))

    def follow(self, every: float = 0.5) -> Iterator[State]:
        return self._sync.iterate(self._handle.follow(every))

    def status(self) -> Status:
        return self._sync.run(self._handle.status())

    def look(self) -> dict[str, Any]:
        return self._sync.run(self._handle.look())

    def why(self) -> list[Reason]:
        return self._sync.run(self._handle.why())

    def cancel(self, reason: str | None = None) -> Cancel:
        return self._sync.run(self._handle.cancel(reason))

    def retry(self, start: str | None = None, *, restart: bool = False) -> bool:
        return self._sync.run(self._handle.retry(start, restart=restart))
