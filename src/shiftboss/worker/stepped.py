"""The decorator `@step`, for functions that are steps of the task that calls them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from shiftboss.model.errors import UsageError
from shiftboss.model.step import StepRetry
from shiftboss.worker.blocking import SyncContext
from shiftboss.worker.context import current
from shiftboss.worker.encoding import returns

P = ParamSpec("P")
T = TypeVar("T")


@overload
def step(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def step(
    *, name: str | None = None, retry: StepRetry | int | None = None, timeout: timedelta | float | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: StepRetry | int | None = None,
    timeout: timedelta | float | None = None,
) -> Any:
    """Make a function a step of any task that calls it. Outside of a task, it runs as usual.

    >>> from shiftboss import step
    >>> @step(retry=3)
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> double(21)
    42
    """
    if function is None:
        return functools.partial(_decorated, name=name, retry=retry, timeout=timeout)
    return _decorated(function)


def _decorated(
    function: Callable[..., Any],
    name: str | None = None,
    retry: StepRetry | int | None = None,
    timeout: timedelta | float | None = None,
) -> Callable[..., Any]:
    named, is_async = name or function.__name__, inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        context = current.get()
        if context is None:
            return function(*args, **kwargs)
        ctx = context()
        if not is_async and not isinstance(ctx, SyncContext):
            raise UsageError(
                f"{named} is a plain function and its task is async", hint=f'write "async def {named}"'
            )
        bound = functools.partial(function, *args, **kwargs)
        return ctx.step(named, bound, retry=retry, timeout=timeout, type=returns(function))

    return call
