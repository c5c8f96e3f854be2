"""Handlers: the functions that run task types, and their options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar, Unpack

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from shiftboss.model.arguments import BadArguments, secret, signature
from shiftboss.model.errors import UsageError
from shiftboss.model.sources import similar
from shiftboss.model.task import NewTask
from shiftboss.model.terms import (
    KEYS,
    PERIODS,
    PUBLISHED_TERMS,
    fields,
    needs_argument,
    template_key,
    type_key,
)
from shiftboss.worker.batches import Batch, one_by_one
from shiftboss.worker.blocking import SyncContext
from shiftboss.worker.context import Context, current
from shiftboss.worker.encoding import hints_of
from shiftboss.worker.engines import requiring
from shiftboss.worker.middleware import Environment, Injected, is_database
from shiftboss.worker.options import (
    SPANS,
    AllTerms,
    Key,
    Mode,
    check_engine,
    check_keys,
    check_limits,
    limits,
    refuse_unknown,
    seconds,
)
from shiftboss.worker.retries import Errors, Pause, errors
from shiftboss.worker.schemas import schema_of

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = 60


@dataclass(kw_only=True)
class Handler:
    """A function and the options with which its tasks are enqueued and run."""

    name: str
    function: Callable[..., Any]
    mode: Mode
    engine: str | None = None
    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    backoff: timedelta | None = None
    backoff_factor: float | None = None
    backoff_max: timedelta | None = None
    pause: Pause | None = None
    retry_on: Errors | None = None
    give_up_on: Errors | None = None
    origin: str | None = None
    timeout: timedelta | None = None
    concurrency_key: Key | None = None
    dedup_key: Key | None = None
    dedup_for: timedelta | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None
    requires: dict[str, Any] | None = None
    max_running: int | None = None
    max_per_key: int | None = None
    rate: int | None = None
    rate_period: timedelta | None = None
    rate_per: str | None = None
    environment: Environment | None = None
    """The middleware, hooks and resources of the app that declares it."""
    version: str | None = None
    compatible: list[str] = field(default_factory=list)
    batch: Batch | None = None
    many: Callable[..., Any] | None = None
    """The function of a batch handler; `function` calls it for one item."""

    @classmethod
    def of(cls, function: Callable[..., Any], name: str, terms: AllTerms) -> Handler:
        refuse_unknown(name, terms, AllTerms.__annotations__)
        batch = terms.get("batch")
        check_engine(name, terms)
        if batch is not None and terms.get("mode") == "process":
            raise UsageError(f"{name}: a batch handler cannot run in a child process", hint='mode="thread"')
        backoff = terms.get("backoff")
        given: dict[str, Any] = {
            **terms,
            **{term: seconds(terms.get(term)) for term in SPANS},  # type: ignore[arg-type]
            "mode": _mode(function, terms),
            "backoff": None if callable(backoff) else seconds(backoff),
            "pause": backoff if callable(backoff) else None,
            "retry_on": errors("retry_on", terms.get("retry_on")),
            "give_up_on": errors("give_up_on", terms.get("give_up_on")),
        }
        if (engine := terms.get("engine")) is not None:
            given["requires"] = requiring(terms.get("requires"), engine)
        version = terms.get("version")
        given["version"] = None if version is None else str(version)
        given["compatible"] = [str(one) for one in terms.get("compatible") or ()]
        if batch is not None:
            given |= {"batch": Batch(batch) if isinstance(batch, int) else batch, "many": function}
            function = one_by_one(function, name)
        handler = cls(name=name, function=function, **given)
        check_limits(handler)
        check_keys(handler)
        return handler

    @property
    def versions(self) -> list[str]:
        """The versions whose started tasks it can continue."""
        return [] if self.version is None else [self.version, *self.compatible]

    @cached_property
    def wants_context(self) -> bool:
        first = next(iter(inspect.signature(self.function).parameters.values()), None)
        kinds = (Context, SyncContext)
        return first is not None and (first.name == "ctx" or self.hints.get(first.name) in kinds)

    @cached_property
    def injected(self) -> dict[str, Any]:
        """The parameters that a worker fills with resources, with their annotated types."""
        asked = {
            name: self.hints.get(name)
            for name, parameter in inspect.signature(self.function).parameters.items()
            if isinstance(parameter.default, Injected) or self.provided(self.hints.get(name))
        }
        for name, kind in asked.items():
            if not self.provided(kind):
                raise UsageError(
                    f"{self.name}: there is no resource for parameter {name} of type {kind!r}",
                    hint="declare it with @app.resource",
                )
            if self.mode == "process":
                raise UsageError(
                    f"{self.name} runs in a child process, so {name} cannot be injected",
                    hint="open the resource inside the function, once, with functools.cache",
                )
        return asked

    def provided(self, kind: Any) -> bool:
        if kind is None:
            return False
        return is_database(kind) or (
            self.environment is not None and self.environment.factory(kind) is not None
        )

    @cached_property
    def signature(self) -> inspect.Signature:
        """The arguments of a task: the function's signature without the context and injected resources."""
        whole = inspect.signature(self.function)
        parameters = list(whole.parameters.values())[1 if self.wants_context else 0 :]
        return whole.replace(parameters=[one for one in parameters if one.name not in self.injected])

    @cached_property
    def hints(self) -> dict[str, Any]:
        return hints_of(self.function)

    @cached_property
    def arguments(self) -> type[BaseModel] | None:
        """A model of the parameters, or None if the function accepts any keyword argument."""
        fields: dict[str, Any] = {}
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                return None
            if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.POSITIONAL_ONLY:
                raise UsageError(
                    f"{self.name}: parameter {parameter.name} cannot be passed by name",
                    hint="task arguments are passed by name: use plain or keyword-only parameters",
                )
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (self.hints.get(parameter.name, Any), default)
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
        return create_model(f"{self.name} arguments", __config__=config, **fields)

    def bind(
        self, params: dict[str, Any], only: Collection[str] | None = None, *, show: bool = False
    ) -> dict[str, Any]:
        """Validate and convert the arguments of a call; with `only`, just these.

        Errors have the given values only with `show`, for the caller: those of a worker are stored.
        """
        if not isinstance(params, dict):  # plain SQL can insert any JSON
            given = orjson.dumps(params).decode()[:100]
            raise BadArguments(f"params of {self.name} must be a JSON object, not {given}")
        model = self.arguments
        if model is None:
            return params
        if only is not None:
            fields: Any = {name: (f.annotation, f) for name, f in model.model_fields.items() if name in only}
            model = create_model(model.__name__, __config__=model.model_config, **fields)
        try:
            # The fields of the model are exactly the parameters.
            bound: dict[str, Any] = model.__pydantic_validator__.validate_python(params).__dict__
            return bound
        except ValidationError as error:
            schema = schema_of(self)
            problems = "; ".join(
                _problem(detail, show and not secret(schema, next(iter(detail["loc"]), "")))
                for detail in error.errors(include_url=False)
            )
            raise BadArguments(
                f"arguments of {self.name} are not valid: {problems}",
                hint=f"{self.name} takes {signature(schema)}",
            ) from None

    def encode(self, params: dict[str, Any], only: Collection[str] | None = None) -> dict[str, Any]:
        """Validate the arguments of a call as `bind` does, and return them as plain JSON data."""
        # A handler that enqueues a task fails with the error, which is then stored.
        bound = self.bind(params, only, show=current.get() is None)
        return {name: self._encoded(name, bound[name]) for name in params}

    def _encoded(self, name: str, value: Any) -> Any:
        try:
            return to_jsonable_python(value)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            problem = f"argument {name} of {self.name} cannot be stored as JSON: {error}"
            hint = "pass plain data, a dataclass, a Pydantic model, or an id that the handler looks up"
            raise BadArguments(problem, hint=hint) from None

    def new_task(self, params: dict[str, Any], **terms: Any) -> NewTask:
        """Return a task for this handler; `terms` override the handler's options."""
        own: dict[str, Any] = {name: getattr(self, name) for name in PUBLISHED_TERMS}
        own |= {option: self._key(option, params) for option in KEYS if option not in terms}
        if own.get("dedup_key") is not None:
            own |= {name: getattr(self, name) for name in PERIODS}
        return NewTask(task_type=self.name, params=params, **(own | terms))

    def _key(self, option: str, params: dict[str, Any]) -> str | None:
        """Return the key that a template or function makes of the arguments, including defaults."""
        source: Key | None = getattr(self, option)
        if source is None:
            return None
        given = self._defaults | params
        if isinstance(source, str):
            return template_key(self.name, option, source, _plain(given, fields(source)))
        try:
            key = source(**given)
        except Exception as error:
            missing = inspect.signature(self.function).parameters.keys() - given.keys()
            if known := missing & inspect.signature(source).parameters.keys():
                raise needs_argument(self.name, option, min(known)) from None
            problem = f"the {option} of {self.name} failed: {type(error).__name__}: {error}"
            raise UsageError(problem, hint="it is called with all arguments of the task, by name") from error
        return None if key is None else type_key(self.name, option, str(key))

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        found = inspect.signature(self.function).parameters.values()
        return {one.name: one.default for one in found if not _no_default(one.default)}


@dataclass
class Handlers:
    """A set of handlers by name. An app can include other sets."""

    by_name: dict[str, Handler] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    parts: list[Handlers] = field(default_factory=list)
    """Included sets. What is added to them later is included before the handlers are first used."""
    discover: Callable[[], None] | None = None
    """Adds handlers of modules that are not imported yet, once, before the handlers are first used."""

    def task(self, name: str | None = None, **terms: Unpack[AllTerms]) -> Callable[[F], F]:
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
            raise UsageError(f"{handler.name} is async and cannot run in a {handler.mode}")
        if handler.mode == "process" and "<locals>" in handler.function.__qualname__:
            raise UsageError(
                f"{handler.name} cannot run in a child process: it is defined inside a function",
                hint="move it to the top level of a module, where a child can import it",
            )
        if handler.environment is None:
            handler.environment = self.environment
        if handler.mode == "process":
            declared(handler.function)[handler.name] = handler
        self.by_name[handler.name] = handler

    def include(self, other: Handlers) -> None:
        self.environment.parts.append(other.environment)
        self.parts.append(other)
        self._adopt(other)

    def complete(self, above: tuple[Handlers, ...] = ()) -> None:
        """Add what is still to be discovered, here and in included sets; `above` include this one."""
        discover, self.discover = self.discover, None
        if discover is not None:
            discover()
        for part in self.parts:
            if not any(part is one for one in (*above, self)):
                part.complete((*above, self))
                self._adopt(part)

    def _adopt(self, other: Handlers) -> None:
        for handler in other.by_name.values():
            if self.by_name.get(handler.name) is not handler:
                self.add(handler)

    def of_engine(self, engine: str | None) -> Handlers:
        """Return the handlers that run in this engine. None: in the worker or its child processes."""
        kept = {handler.name: handler for handler in self if handler.engine == engine}
        return Handlers(kept, self.environment)

    def limits(self) -> list[dict[str, Any]]:
        """Return the limits in code of every task type, as the database takes them."""
        return [limits(handler) for handler in self]

    def schemas(self) -> list[dict[str, Any]]:
        """Return the JSON Schema of every task type's arguments, as the database takes them."""
        return [
            {"name": handler.name, "schema": schema_of(handler), "version": handler.version}
            for handler in self
        ]

    def get(self, name: str) -> Handler | None:
        return self.by_name.get(name)

    def named(self, name: str) -> Handler:
        """Return the handler with that name, or raise an error that suggests the nearest name."""
        self.complete()
        handler = self.by_name.get(name)
        if handler is None:
            near = similar(name, self.by_name)
            hint = (
                f"did you mean {near}?"
                if near
                else f"the handlers are: {', '.join(sorted(self.by_name)) or 'none'}"
            )
            raise UsageError(f"there is no handler {name!r}", hint=hint)
        return handler

    def __iter__(self) -> Iterator[Handler]:
        self.complete()
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)


def _mode(function: Callable[..., Any], terms: AllTerms) -> Mode:
    if terms.get("engine") is not None:
        return "process"
    return terms.get("mode") or ("async" if inspect.iscoroutinefunction(function) else "thread")


def declared(function: Callable[..., Any]) -> dict[str, Handler]:
    """Return the handlers of a function by task type. A child process reads its options there."""
    kept: dict[str, Handler] = getattr(function, "__dict__", {}).setdefault("__shiftboss_handlers__", {})
    return kept


def _no_default(value: Any) -> bool:
    return value is inspect.Parameter.empty or isinstance(value, Injected)


def _plain(given: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: to_jsonable_python(given[name]) for name in names if name in given}


def _problem(detail: Any, show: bool) -> str:
    """Describe a problem, with the given value if it is short and plain; others may contain anything."""
    problem = f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
    given = detail["input"]
    if detail["type"] in ("missing", "extra_forbidden") or not show:
        return problem
    if not isinstance(given, str | int | float | None):
        return f"{problem} (given: {type(given).__name__})"
    value = repr(given)
    return f"{problem} (given: {value if len(value) <= SHOWN else f'{value[:SHOWN]}…'})"
