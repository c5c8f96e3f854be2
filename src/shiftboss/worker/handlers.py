"""Handlers: which function runs which task type, and under what terms."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask
from shiftboss.worker.context import Context

Mode = Literal["async", "thread", "process"]
F = TypeVar("F", bound=Callable[..., Any])


class BadArguments(UsageError):
    """The task's params do not fit the handler's signature; trying again would not help."""


class Terms(TypedDict, total=False):
    """What a task may be given with its decorator; a plain number means seconds."""

    queue: str
    """Where its tasks wait; `default` unless given."""
    priority: int | None
    """0 to 100, higher goes first."""
    max_attempts: int | None
    """How often it may be tried before it is Failed."""
    backoff: timedelta | float | None
    """The pause before the second attempt; it grows from there."""
    backoff_factor: float | None
    """How much longer each further pause is than the one before; 2 unless given, 1 keeps it the same."""
    backoff_max: timedelta | float | None
    """The longest pause; an hour unless given."""
    origin: str | None
    """What asked for it, like `user_requested`: its priority follows from that unless one is given."""
    timeout: timedelta | float | None
    """The longest that one attempt may take."""
    concurrency_key: Callable[..., str | None] | None
    """Gets the task's arguments; limits per key count those with the same answer."""
    requires: dict[str, Any] | None
    """What a worker must have, like `{"gpu": True}`."""
    mode: Mode | None
    """`async`, `thread` or `process`; by the kind of function unless given."""


@dataclass(kw_only=True)
class Handler:
    """One function and the terms under which its tasks are enqueued and run."""

    name: str
    function: Callable[..., Any]
    mode: Mode
    queue: str = "default"
    priority: int | None = None
    max_attempts: int | None = None
    backoff: timedelta | None = None
    backoff_factor: float | None = None
    backoff_max: timedelta | None = None
    origin: str | None = None
    timeout: timedelta | None = None
    concurrency_key: Callable[..., str | None] | None = None
    requires: dict[str, Any] | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], name: str, terms: Terms) -> Handler:
        mode = terms.get("mode") or ("async" if inspect.iscoroutinefunction(function) else "thread")
        times = {
            "backoff": seconds(terms.get("backoff")),
            "backoff_max": seconds(terms.get("backoff_max")),
            "timeout": seconds(terms.get("timeout")),
        }
        given: dict[str, Any] = {**terms, **times, "mode": mode}
        return cls(name=name, function=function, **given)

    @cached_property
    def wants_context(self) -> bool:
        first = next(iter(inspect.signature(self.function).parameters.values()), None)
        return first is not None and (first.name == "ctx" or self.hints.get(first.name) is Context)

    @cached_property
    def hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function, include_extras=True)
        except NameError:  # a name that only the type checker knows
            return {}

    @cached_property
    def arguments(self) -> type[BaseModel] | None:
        """A model of the parameters; None when the function takes whatever comes."""
        fields: dict[str, Any] = {}
        for n, parameter in enumerate(inspect.signature(self.function).parameters.values()):
            if n == 0 and self.wants_context:
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                return None
            if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.POSITIONAL_ONLY:
                raise UsageError(
                    f"{self.name}: parameter {parameter.name} can not be filled by name",
                    hint="params of a task are named: use plain or keyword-only parameters",
                )
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (self.hints.get(parameter.name, Any), default)
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
        return create_model(f"{self.name} arguments", __config__=config, **fields)

    def bind(self, params: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the call, validated and converted."""
        model = self.arguments
        if model is None:
            return params
        try:
            # As the model keeps them: its fields are the parameters, and nothing else gets in.
            return model.model_validate(params).__dict__
        except ValidationError as error:
            problems = "; ".join(_problem(detail) for detail in error.errors(include_url=False))
            raise BadArguments(f"arguments of {self.name} are not valid: {problems}") from None

    def new_task(self, params: dict[str, Any], **terms: Any) -> NewTask:
        """A task for this handler; `terms` override the handler's own."""
        own: dict[str, Any] = {
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "backoff": self.backoff,
            "backoff_factor": self.backoff_factor,
            "backoff_max": self.backoff_max,
            "origin": self.origin,
            "timeout": self.timeout,
            "requires": self.requires,
            "concurrency_key": self.concurrency_key(**params) if self.concurrency_key else None,
        }
        return NewTask(task_type=self.name, params=params, **(own | terms))


@dataclass
class Handlers:
    """A set of handlers by name; rooms and users each have one, an app includes them all."""

    by_name: dict[str, Handler] = field(default_factory=dict)

    def task(self, name: str | None = None, **terms: Unpack[Terms]) -> Callable[[F], F]:
        """Decorate a function as the handler of a task type."""

        def decorate(function: F) -> F:
            self.add(Handler.of(function, name or f"{function.__module__}.{function.__qualname__}", terms))
            return function

        return decorate

    def add(self, handler: Handler) -> None:
        if handler.name in self.by_name:
            raise UsageError(f"two handlers are named {handler.name!r}", hint="give one of them another name")
        if handler.mode == "async" and not inspect.iscoroutinefunction(handler.function):
            raise UsageError(f"{handler.name} is not async", hint='write "async def", or mode="thread"')
        if handler.mode != "async" and inspect.iscoroutinefunction(handler.function):
            raise UsageError(f"{handler.name} is async and can not run as a {handler.mode}")
        if handler.mode == "process" and "<locals>" in handler.function.__qualname__:
            raise UsageError(
                f"{handler.name} can not run in a child process: it is defined inside a function",
                hint="move it to the top level of a module, where a child can import it",
            )
        self.by_name[handler.name] = handler

    def include(self, other: Handlers) -> None:
        for handler in other.by_name.values():
            if self.by_name.get(handler.name) is not handler:
                self.add(handler)

    def get(self, name: str) -> Handler | None:
        return self.by_name.get(name)

    def named(self, name: str) -> Handler:
        """The handler of that name, or an error that names the nearest."""
        handler = self.by_name.get(name)
        if handler is None:
            near = difflib.get_close_matches(name, self.by_name, n=1)
            hint = (
                f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(self.by_name)) or 'none'}"
            )
            raise UsageError(f"there is no handler {name!r}", hint=hint)
        return handler

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)


def seconds(value: timedelta | float | None) -> timedelta | None:
    """A plain number means seconds."""
    return timedelta(seconds=value) if isinstance(value, int | float) else value


def _problem(detail: Any) -> str:
    where = ".".join(map(str, detail["loc"]))
    return f"{where}: {detail['msg']}"
