"""Calls: tasks that are not enqueued yet, and the graphs they form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

from shiftboss.model.errors import UsageError
from shiftboss.model.task import DependencyPolicy, NewTask, new_id
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handler

if TYPE_CHECKING:
    from shiftboss.app.task import Task

P = ParamSpec("P")
R = TypeVar("R")
R2 = TypeVar("R2")
R_co = TypeVar("R_co", covariant=True)
AnyCall = TypeVar("AnyCall", bound="Call[Any]")


#: The metadata key that tells the database which arguments are results of other tasks.
RESULTS = "shiftboss.results"


@dataclass(frozen=True, eq=False)
class Call(Generic[R_co]):
    """A task that is not enqueued yet. `after` builds graphs of calls; `app.enqueue` enqueues them whole."""

    handler: Handler
    params: dict[str, Any]
    decode: Callable[[Any], R_co]
    terms: dict[str, Any] = field(default_factory=dict)
    id: UUID = field(default_factory=new_id)
    before: list[Call[Any] | UUID] = field(default_factory=list)
    results: dict[str, int | list[int]] = field(default_factory=dict)
    """Arguments filled with results of calls in `before`, given by their positions there."""

    def after(
        self: AnyCall, *others: Call[Any] | UUID, on_failure: DependencyPolicy | None = None
    ) -> AnyCall:
        """Run this call after the others. `on_failure` is its fate if one of them fails (default: cancel)."""
        self.before.extend(others)
        if on_failure is not None:
            self.terms["on_dependency_failure"] = on_failure
        return self

    def then(self, task: Task[Concatenate[R_co, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return a call of `task` that runs when this one completes and receives its result first.

        The other arguments follow the result.

        >>> from shiftboss import App
        >>> app = App("press")
        >>> @app.task()
        ... async def fetch(url: str) -> str:
        ...     return f"<p>{url}</p>"
        >>> @app.task()
        ... async def count(page: str, at_least: int = 0) -> int:
        ...     return max(len(page), at_least)
        >>> async def main() -> None:
        ...     async with app, app.worker():
        ...         handle = await app.enqueue(fetch.call("a.org").then(count, at_least=3))
        ...         print(await handle.result(timeout=30))
        >>> import asyncio
        >>> asyncio.run(main())
        12
        """
        return task.call_with_result([self], 0, *args, **kwargs)

    def new_task(self) -> NewTask:
        terms = {"id": self.id, **self.terms}
        if self.results:
            terms["metadata"] = (terms.get("metadata") or {}) | {RESULTS: self.results}
        if self.before:
            terms["depends_on"] = [x.id if isinstance(x, Call) else x for x in self.before]
        return self.handler.new_task(self.params, **terms)


def chain(*calls: Call[Any]) -> list[Call[Any]]:
    """Run calls one after the other: each waits for the one before it.

    >>> from shiftboss import App, chain
    >>> app = App("factory")
    >>> @app.task()
    ... async def step(name: str) -> str:
    ...     return name
    >>> first, second = chain(step.call("cut"), step.call("weld"))
    >>> second.before == [first]
    True
    """
    for earlier, later in pairwise(calls):
        later.after(earlier)
    return list(calls)


class Calls(list[Call[R]]):
    """A list of independent calls. `app.enqueue` returns a `Group` of handles for it."""

    def then(self, task: Task[Concatenate[list[R], P], R2], /, *args: P.args, **kwargs: P.kwargs) -> Call[R2]:
        """Return a call of `task` that runs when all complete. Its first argument is the list of results."""
        return task.call_with_result(self, list(range(len(self))), *args, **kwargs)

    def ended(self, call: AnyCall) -> AnyCall:
        """Run a call after all have ended, whether complete, failed or cancelled."""
        return call.after(*self, on_failure="run")


@overload
def group(*calls: Call[R]) -> Calls[R]: ...


@overload
def group(*calls: Call[Any], then: Call[Any]) -> Calls[Any]: ...


def group(*calls: Call[Any], then: Call[Any] | None = None) -> Calls[Any]:
    """Group independent calls. `then` waits for all of them; `group(...).then(task)` also passes results.

    >>> from shiftboss import App, group
    >>> app = App("kitchen")
    >>> @app.task()
    ... async def cook(dish: str) -> str:
    ...     return dish
    >>> *dishes, dinner = group(cook.call("soup"), cook.call("rice"), then=cook.call("dinner"))
    >>> dinner.before == dishes
    True
    """
    return Calls(calls if then is None else [*calls, then.after(*calls)])


def whole(calls: Iterable[Call[Any]]) -> list[Call[Any]]:
    """Return the calls and everything they wait for, each once, parents first."""
    found: dict[UUID, Call[Any]] = {}
    seen: set[UUID] = set()
    calls = list(calls)
    for call in calls:
        if not isinstance(call, Call):
            raise UsageError(
                f"cannot enqueue a {type(call).__name__}",
                hint="pass the call of a task: app.enqueue(greet.call('World'))",
            )
    stack: list[tuple[Call[Any], bool]] = [(call, False) for call in reversed(calls)]
    while stack:
        call, ready = stack.pop()
        if ready:
            found[call.id] = call
        elif call.id not in seen:  # break cycles here; enqueue rejects them with an error message
            seen.add(call.id)
            earlier = [x for x in call.before if isinstance(x, Call)]
            stack += [(call, True), *((x, False) for x in reversed(earlier))]
    return list(found.values())


async def parents(ctx: Context) -> Sequence[Any]:
    """Return the results of the tasks that the running task waited for, in the order of `after`."""
    task = await ctx.db.tasks.get(ctx.id)
    ids: list[UUID] = (task or {}).get("depends_on") or []
    by_id = {result.id: result.result for result in await ctx.db.tasks.watch(ids)}
    return [by_id.get(id) for id in ids]
