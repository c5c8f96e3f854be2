"""Middleware, start and stop hooks, and resources that are injected by type."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import orjson

from shiftboss.model.errors import ShiftbossError, UsageError
from shiftboss.model.task import Complete, Outcome
from shiftboss.worker.context import Context

if TYPE_CHECKING:
    from shiftboss.db import Database

Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]
Hook = Callable[[], Any]
Encode = Callable[[str, Any], Outcome]


class AttemptFailed(ShiftbossError):
    """Raised by `call_next` in middleware when the handler failed in another process."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(getattr(outcome, "error", None) or getattr(outcome, "reason", outcome)))
        self.outcome = outcome


class Injected:
    """The type of `inject`."""

    def __repr__(self) -> str:
        return "inject"


inject: Any = Injected()
"""The default of a parameter that a resource fills, so that callers and type checkers can omit it."""


@dataclass
class Environment:
    """The middleware, hooks and resources that an app declares. `parts` has those of included apps."""

    middleware: list[Middleware] = field(default_factory=list)
    starts: list[Hook] = field(default_factory=list)
    stops: list[Hook] = field(default_factory=list)
    resources: dict[Any, Callable[[], Any]] = field(default_factory=dict)
    parts: list[Environment] = field(default_factory=list)

    def all(self) -> list[Environment]:
        """Return this environment and those of included apps, each once."""
        found = {id(self): self}
        for part in self.parts:
            found |= {id(one): one for one in part.all() if id(one) not in found}
        return list(found.values())

    def factory(self, kind: Any) -> Callable[[], Any] | None:
        try:
            return next((one.resources[kind] for one in self.all() if kind in one.resources), None)
        except TypeError:  # an annotation that is not hashable cannot be a resource
            return None

    def add_resource(self, factory: Callable[[], Any]) -> None:
        kind = _provided(factory)
        if kind in self.resources:
            raise UsageError(f"there are two resources of type {kind!r}", hint="wrap one of them in a class")
        self.resources[kind] = factory


def is_database(kind: Any) -> bool:
    """Whether a parameter of this type gets the worker's database. Does not import the driver."""
    module = sys.modules.get("shiftboss.db.database")
    return module is not None and kind is module.Database


class OpenEnvironment:
    """The environment of a running worker: its open resources, and its database if it has one."""

    def __init__(self, environment: Environment, db: Database | None = None) -> None:
        self._environment = environment
        self._db = db
        self._stack = AsyncExitStack()
        self._open: dict[Any, Any] = {}
        self.middleware = [one for part in environment.all() for one in part.middleware]

    async def open(self) -> None:
        """Run the start hooks, then open all resources. If one fails, close those that are open."""
        try:
            for part in self._environment.all():
                for stop in part.stops:
                    self._stack.push_async_callback(_call, stop)
                for start in part.starts:
                    await _call(start)
            for part in self._environment.all():
                for kind, factory in part.resources.items():
                    self._open[kind] = await self._stack.enter_async_context(_opened(factory))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the resources in reverse order, then run all stop hooks, even if one fails."""
        await self._stack.aclose()

    def fill(self, injected: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the resources of a handler's injected parameters."""
        return arguments | {name: self._resource(name, kind) for name, kind in injected.items()}

    def _resource(self, name: str, kind: Any) -> Any:
        if kind in self._open or not is_database(kind):
            return self._open[kind]
        if self._db is None:
            raise UsageError(
                f"this worker has no database for parameter {name}: it gets its tasks from another source",
                hint="run the task on a worker that opens the database",
            )
        return self._db

    async def through(
        self, context: Context, name: str, invoke: Callable[[], Awaitable[Outcome]], encode: Encode
    ) -> Outcome:
        """Run an attempt inside all middleware. The first declared middleware is the outermost."""
        ended: list[tuple[Any, Outcome]] = []

        async def innermost() -> Any:
            outcome = await invoke()
            if not isinstance(outcome, Complete):
                raise AttemptFailed(outcome)
            value = None if outcome.result is None else orjson.loads(outcome.result)
            ended.append((value, outcome))
            return value

        call: Next = innermost
        for middleware in reversed(self.middleware):
            call = _layer(middleware, context, call)
        try:
            value = await call()
        except AttemptFailed as error:
            return error.outcome
        return ended[-1][1] if ended and ended[-1][0] is value else encode(name, value)


def _layer(middleware: Middleware, context: Context, inner: Next) -> Next:
    async def call() -> Any:
        return await middleware(context, inner)

    return call


async def _call(hook: Hook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result


@asynccontextmanager
async def _opened(factory: Callable[[], Any]) -> AsyncIterator[Any]:
    if inspect.isasyncgenfunction(factory):
        async with asynccontextmanager(factory)() as value:
            yield value
    elif inspect.isgeneratorfunction(factory):
        with contextmanager(factory)() as value:
            yield value
    else:
        value = factory()
        yield await value if inspect.isawaitable(value) else value


def _provided(factory: Callable[[], Any]) -> Any:
    """Return the type of a resource from the return annotation of its factory."""
    kind = get_type_hints(factory).get("return")
    if inspect.isasyncgenfunction(factory) or inspect.isgeneratorfunction(factory):
        kind = next(iter(get_args(kind)), None)
    if kind is None:
        name = getattr(factory, "__name__", repr(factory))
        raise UsageError(
            f"resource {name} has no return annotation",
            hint=f"annotate it: async def {name}() -> AsyncIterator[Client]",
        )
    return kind
