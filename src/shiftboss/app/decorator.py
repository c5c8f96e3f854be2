"""The types of `@app.task()`: what a function becomes, with its context argument left out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from shiftboss.app.task import AsyncTask, PlainTask
from shiftboss.worker.context import Context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskDecorator:
    """Four shapes of function, each with its own type of task."""

    def __init__(self, decorate: Callable[[Callable[..., Any]], Any]) -> None:
        self._decorate = decorate

    # The order decides: a checker takes the first that fits, and a coroutine would also do as a plain result.
    # That overlap is meant, and there is no type for "a result that is no coroutine": hence the two ignores.
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
    """A function of a list of items becomes a task of one item."""

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
