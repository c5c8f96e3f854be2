"""Runs the function of a step with retries and a timeout."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from shiftboss.model.errors import Defer, StepTimeout, UsageError
from shiftboss.model.step import StepRetry
from shiftboss.worker.threads import with_own_connections

Call = Callable[[], Any]


def rule(retry: StepRetry | int | None) -> StepRetry:
    """Return the retry rule. A plain number is the number of tries."""
    chosen = StepRetry(attempts=1) if retry is None else StepRetry(retry) if isinstance(retry, int) else retry
    if chosen.attempts < 1:
        raise UsageError(f"a step cannot be tried {chosen.attempts} times")
    return chosen


def limit(timeout: timedelta | float | None) -> float | None:
    """Return the timeout in seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


async def run_async(
    call: Call, name: str, retry: StepRetry | int | None, timeout: timedelta | float | None
) -> Any:
    """Run the call, await it if it is awaitable, and return the result."""
    chosen, seconds = rule(retry), limit(timeout)
    for attempt in range(1, chosen.attempts):
        try:
            return await _once(call, name, seconds)
        except Defer:
            raise
        except chosen.on:
            await asyncio.sleep(chosen.pause(attempt))
    return await _once(call, name, seconds)


async def _once(call: Call, name: str, seconds: float | None) -> Any:
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            value = call()
            return await value if inspect.isawaitable(value) else value
    except TimeoutError:
        if scope.expired():
            raise StepTimeout(f"step {name!r} took longer than {seconds:g} s") from None
        raise


def run_blocking(
    call: Call, name: str, retry: StepRetry | int | None, timeout: timedelta | float | None
) -> Any:
    """Run the call and return its result. With a timeout it runs in a thread, which may outlive the call."""
    if inspect.iscoroutinefunction(call):
        raise UsageError(
            f"step {name!r} is async, but its handler is not", hint='define the handler with "async def"'
        )
    chosen, seconds = rule(retry), limit(timeout)
    once = call if seconds is None else partial(_bounded, call, name, seconds)
    for attempt in range(1, chosen.attempts):
        try:
            return once()
        except Defer:
            raise
        except chosen.on:
            time.sleep(chosen.pause(attempt))
    return once()


def _bounded(call: Call, name: str, seconds: float) -> Any:
    answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def body() -> None:
        try:
            answers.put((with_own_connections(call), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=copy_context().run, args=(body,), name=f"step {name}", daemon=True).start()
    try:
        value, error = answers.get(timeout=seconds)
    except Empty:
        raise StepTimeout(f"step {name!r} took longer than {seconds:g} s") from None
    if error is not None:
        raise error
    return value
