"""The context of handlers that are plain functions. Its methods block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from shiftboss.model.errors import UsageError
from shiftboss.model.step import LeaseLost, Loaded, StepRetry, StepScope, Suspend
from shiftboss.worker.context import Context, Span, TaskCall, seconds_of, sorted_out, stepping
from shiftboss.worker.encoding import decode, returns
from shiftboss.worker.tries import run_blocking

T = TypeVar("T")


class SyncContext(Context):
    """The context of a `def` handler: `ctx.step(...)` and the waits return results directly."""

    #: Runs a coroutine of this class and returns its result; set by the creator.
    wait: Callable[[Coroutine[Any, Any, Any]], Any]

    def step(  # type: ignore[override]
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        retry: StepRetry | int | None = None,
        timeout: Span | None = None,
        type: Any = None,
        **kwargs: Any,
    ) -> T:
        """Like `Context.step`, but blocking."""
        key, kind = self._key("step", name), type or returns(function)
        recorded = self._finish(self._recorded(key))
        if recorded is not None:
            kept: T = decode(f"step {name!r}", recorded.result, kind)
            return kept
        began, scope = time.monotonic(), self._scope(key)
        stored = False
        try:
            with stepping(scope, name):
                value = run_blocking(partial(function, *args, **kwargs), name, retry, timeout)
            done: T = self._finish(self._keep(key, value, kind, time.monotonic() - began, scope))
            stored = True
            return done
        finally:
            self._end(scope, stored)

    def _end(self, scope: StepScope, stored: bool) -> None:
        """End the scope in the event loop, where the callbacks of extensions must run."""
        if self._loop is None or self._loop.is_closed():
            scope.end(stored)
        else:
            self._loop.call_soon_threadsafe(scope.end, stored)

    def sleep(self, name: str, duration: Span) -> None:  # type: ignore[override]
        """Like `Context.sleep`, but blocking."""
        self._finish(self._sleep(self._key("sleep", name), seconds_of(duration)))

    def wait_for(
        self, event: str, type: Any = None, timeout: Span | None = None, question: str | None = None
    ) -> Any:
        """Like `Context.wait_for`, but blocking."""
        return self._finish(super().wait_for(event, type, timeout, question))

    def run(self, call: TaskCall[T]) -> T:  # type: ignore[override]
        """Like `Context.run`, but blocking."""
        result: T = self._finish(super().run(call))
        return result

    def gather(self, *parts: Any) -> list[Any]:  # type: ignore[override]
        """Run child tasks in parallel and return their results in order."""
        results: list[Any] = []
        for part in parts:
            if not hasattr(part, "new_task"):
                raise UsageError("gather in a plain handler takes task calls", hint="use task.call(...)")
            try:
                results.append(self.run(part))
            except (Suspend, Exception) as error:
                results.append(error)
        return sorted_out(results)

    async def _known(self) -> Loaded:
        if self._loaded is None:
            self._loaded = await self._steps.load(self.task, self._version)
            self._on_loaded(self._loaded)
        return self._loaded

    def emit(self, part: Any) -> None:  # type: ignore[override]
        """Like `Context.emit`, but blocking."""
        self._finish(super().emit(part))

    def _finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self.cancelled:
            work.close()
            raise LeaseLost("this attempt was stopped")
        return self.wait(work)


def on(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Return a function that runs coroutines on this loop from a thread."""
    return lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("this coroutine needs an event loop")
