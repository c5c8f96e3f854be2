"""Task types: typed objects that call, enqueue and map a decorated function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from shiftboss.app.calls import Call
from shiftboss.app.handle import Group, Handle, as_id
from shiftboss.app.inline import inline_context
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import ResultInvalid
from shiftboss.model.task import DependencyPolicy
from shiftboss.worker.handlers import Handler
from shiftboss.worker.options import seconds

if TYPE_CHECKING:
    from shiftboss.app.app import App

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function decorated with `@app.task()`. `function` is the original function."""

    def __init__(self, app: App, handler: Handler, terms: Mapping[str, Any] | None = None) -> None:
        self.app = app
        self.handler = handler
        self.function: Callable[..., Any] = handler.function
        self._terms = dict(terms or {})
        self.__doc__ = handler.function.__doc__
        self.__name__ = handler.function.__name__
        self.__wrapped__ = handler.function

    @property
    def name(self) -> str:
        """The task type."""
        return self.handler.name

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: timedelta | float | None = None,
        run_at: datetime | None = None,
        deadline: datetime | None = None,
        timeout: timedelta | float | None = None,
        dedup_key: str | None = None,
        dedup_for: timedelta | float | None = None,
        debounce: timedelta | float | None = None,
        debounce_max: timedelta | float | None = None,
        concurrency_key: str | None = None,
        max_attempts: int | None = None,
        backoff: timedelta | float | None = None,
        backoff_factor: float | None = None,
        backoff_max: timedelta | float | None = None,
        origin: str | None = None,
        tenant: str | None = None,
        region: str | None = None,
        on_dependency_failure: DependencyPolicy | None = None,
        requires: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Self:
        """Return the same task with other options. Durations may be given in seconds.

        >>> import asyncio
        >>> from shiftboss import App
        >>> app = App("post")
        >>> @app.task()
        ... async def remind(name: str) -> None: ...
        >>> async def main() -> None:
        ...     tomorrow = remind.options(delay=86400, dedup_key="remind-ann")
        ...     one, two = await tomorrow.enqueue("Ann"), await tomorrow.enqueue("Ann")
        ...     print(one.id == two.id, two.created)
        >>> asyncio.run(main())
        True False
        """
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        spans = {"delay", "timeout", "backoff", "backoff_max", "dedup_for", "debounce", "debounce_max"}
        given |= {name: seconds(given[name]) for name in given.keys() & spans}
        return type(self)(self.app, self.handler, self._terms | given)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return a call that is not enqueued yet, for graphs and for `app.enqueue(..., conn=...)`."""
        return Call(self.handler, self._encode(args, kwargs), self.decode, dict(self._terms))

    def call_with_result(
        self, parents: Sequence[Call[Any]], places: int | list[int], *args: Any, **kwargs: Any
    ) -> Call[R]:
        """Return a call whose first argument is the result of `parents`; see `Call.then`."""
        first = next(iter(self.handler.signature.parameters.values()), None)
        if first is None or first.kind is first.VAR_KEYWORD:
            raise BadArguments(f"{self.name} has no parameter that can receive a result")
        params = self._encode(args, kwargs, missing=first.name) | ({} if parents else {first.name: []})
        results = {first.name: places} if parents else {}
        return Call(self.handler, params, self.decode, dict(self._terms), before=[*parents], results=results)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue one task. The arguments are checked before anything is stored."""
        return await self.app.enqueue(self.call(*args, **kwargs))

    async def map(self, inputs: Iterable[Any]) -> Group[R]:
        """Enqueue one task per input in a single statement. The input is the first argument.

        >>> import asyncio
        >>> from shiftboss import App
        >>> app = App("maths")
        >>> @app.task()
        ... async def square(n: int) -> int:
        ...     return n * n
        >>> async def main() -> None:
        ...     async with app.worker():
        ...         squares = await square.map(range(5))
        ...         print(await squares.results(timeout=30))
        >>> asyncio.run(main())
        [0, 1, 4, 9, 16]
        """
        call: Callable[..., Call[R]] = self.call
        return await self.app.enqueue_all([call(value) for value in inputs])

    async def starmap(self, inputs: Iterable[Mapping[str, Any]]) -> Group[R]:
        """Enqueue one task per mapping of named arguments in a single statement."""
        call: Callable[..., Call[R]] = self.call
        return await self.app.enqueue_all([call(**named) for named in inputs])

    def handle(self, id: UUID | str) -> Handle[R]:
        """Return the handle of a task of this type by its id."""
        return Handle(as_id(id), self.app, decode=self.decode)

    def _encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], missing: str | None = None
    ) -> dict[str, Any]:
        """Encode the arguments as JSON, except `missing`, which is filled in when the task runs."""
        signature = self.handler.signature
        known = signature.parameters.values()
        if missing is not None:
            signature = signature.replace(parameters=[one for one in known if one.name != missing])
        try:
            named = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(f"wrong arguments for {self.name}: {error}") from None
        for parameter in known:
            if parameter.kind is parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
        return self.handler.encode(dict(named), signature.parameters if missing else None)

    def decode(self, result: Any) -> R:
        """Convert a JSON result to the type that the function returns."""
        if self._returns is None:
            decoded: R = result
            return decoded
        try:
            return self._returns.validate_python(result)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ResultInvalid(
                f"the result of {self.name} does not match its return annotation: {first['msg']}",
                hint="correct the return annotation, or check which version of the function ran",
            ) from None

    @cached_property
    def _returns(self) -> TypeAdapter[R] | None:
        hint = self.handler.hints.get("return", Any)
        try:
            return None if hint is Any else TypeAdapter(hint)
        except PydanticUserError:  # Pydantic cannot validate this type
            return None


class AsyncTask(Task[P, R]):
    """The task of an `async def`. Awaiting a direct call runs it in this process, without the queue."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        context = inline_context(self.handler)
        call: Callable[..., Coroutine[Any, Any, R]] = self.function
        return await (call(context, *args, **kwargs) if context else call(*args, **kwargs))


class PlainTask(Task[P, R]):
    """The task of a plain `def`. A direct call runs it in this process, without the queue."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        context = inline_context(self.handler)
        call: Callable[..., R] = self.function
        return call(context, *args, **kwargs) if context else call(*args, **kwargs)
