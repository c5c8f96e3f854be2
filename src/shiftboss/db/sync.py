"""The database for code without an event loop: the same families and methods, but blocking."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from typing import Any, Self, TypeVar, cast

from shiftboss.db.database import Database

T = TypeVar("T")
CLOSE_SECONDS = 10


class Background:
    """An event loop in a background thread, started on first use. Safe to use from many threads."""

    def __init__(self, name: str, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Create a loop that runs `close` before it ends."""
        self._name, self._close = name, close
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    def iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator on the loop."""
        end = object()

        async def following() -> T | object:
            return await anext(values, end)

        while (value := self.run(following())) is not end:
            yield cast(T, value)

    @contextmanager
    def within(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an async context manager on the loop."""
        value = self.run(_enter(context))
        try:
            yield value
        except BaseException as error:
            if not self.run(_leave(context, error)):
                raise
        else:
            self.run(_leave(context, None))

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=[self._loop], name=self._name, daemon=True
                )
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    def close(self) -> None:
        """Run the closing function and end the thread. The next use starts another."""
        with self._lock:
            loop, self._loop, thread = self._loop, None, self._thread
        if loop is None or thread is None:
            return
        atexit.unregister(self.close)
        try:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(CLOSE_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()  # a thread that still runs while the interpreter ends can crash or block it


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _enter(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    return bool(await context.__aexit__(type(error) if error else None, error, None))


class SyncFamily:
    """Wraps an object of this package so that its async methods block."""

    def __init__(self, target: Any, background: Background) -> None:
        self._target, self._background = target, background

    def __repr__(self) -> str:
        return f"<sync {self._target!r}>"

    def __getattr__(self, name: str) -> Any:
        return self._blocking(getattr(self._target, name))

    def _blocking(self, value: Any) -> Any:
        if callable(value):
            return self._call(value)
        ours = type(value).__module__.startswith("shiftboss.") and not isinstance(value, tuple | str)
        return SyncFamily(value, self._background) if ours else value

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if inspect.iscoroutine(result):
                return self._background.run(result)
            if hasattr(result, "__aenter__"):
                return self._background.within(result)
            if hasattr(result, "__anext__"):
                return self._background.iterate(result)
            return self._blocking(result)

        return call


class SyncDatabase(SyncFamily):
    """An open database for code without an event loop.

    >>> from shiftboss.db import SyncDatabase
    >>> with SyncDatabase.open() as db:
    ...     db.health.register_worker("worker:mail:0", pid=None)
    ...     [row["status"] for row in db.health.get_all_workers()]
    ['starting']
    """

    @classmethod
    def open(cls, url: str | None = None, **options: Any) -> Self:
        """Open `url`, the database of the settings, or the embedded server, like `Database.open`."""

        async def close() -> None:
            if opened:
                await opened.pop().close()

        opened: list[Database] = []
        background = Background("shiftboss-database", close)
        try:
            opened.append(background.run(Database.open(url, **options)))
        except BaseException:
            background.close()
            raise
        return cls(opened[0], background)

    def close(self) -> None:
        """Close the database and end its thread."""
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
