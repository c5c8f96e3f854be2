"""The types of `@app.task()`: they map a function to its task type, without the context argument."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from shiftboss.app.task import AsyncTask, PlainTask
from shiftboss.worker.context import Context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskDecorator:
    """Types functions by kind: async or plain, with or without a context argument."""

    def __init__(self, decorate: Callable[[Callable[..., Any]], Any]) -> None:
        self._decorate = decorate

    # Type checkers use the first overload that matches, and a coroutine also matches a plain result. This
    # overlap is intended: there is no type for "a result that is not a coroutine".
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> AsyncTask[P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> PlainTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> PlainTask[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        return self._decorate(function)


class BatchDecorator:
    """Types a function of a list of items as a task of one item."""

    def __init__(self, decorate: Callable[[Callable[..., Any]], Any]) -> None:
        self._decorate = decorate

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]]
    ) -> AsyncTask[[T], R]: ...

    @overload
    def __call__(self, function: Callable[[list[T]], Sequence[R | Exception]]) -> PlainTask[[T], R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        return self._decorate(function)
