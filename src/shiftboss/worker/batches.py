"""Batch handlers: one call for many tasks of a type, each with its own lease, options and outcome."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union, get_args

from shiftboss.model.errors import UsageError
from shiftboss.worker.encoding import hints_of
from shiftboss.worker.mark import Mark
from shiftboss.worker.threads import in_thread, reject, resolve
from shiftboss.worker.watchdog import running

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

#: The name of the argument of a batch task.
ITEM = "item"
#: Seconds that a cancelled coroutine has to end. After that it is abandoned.
STOP_SECONDS = 2.0


@dataclass(frozen=True)
class Batch:
    """How tasks are collected for one call: at most `max_size` tasks, for at most `max_wait` seconds."""

    max_size: int = 100
    max_wait: float = 0.1

    def __post_init__(self) -> None:
        if self.max_size < 1 or not 0 <= self.max_wait <= 3600:
            raise UsageError(
                f"a batch of {self.max_size} tasks within {self.max_wait} s is not possible",
                hint="use a max_size of at least 1, and a max_wait of 0 to 3600 seconds",
            )


def one_by_one(many: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Convert a function of a list of items to a function of one item, the signature of a single task."""
    parameters = list(inspect.signature(many).parameters.values())
    hints = hints_of(many)
    if not parameters or parameters[0].name == "ctx":
        raise UsageError(
            f"{name}: the first parameter of a batch handler is the list of items, not a context"
        )
    items = get_args(hints.get(parameters[0].name))
    item = parameters[0].replace(name=ITEM, annotation=items[0] if items else Any)

    if inspect.iscoroutinefunction(many):

        @functools.wraps(many)
        async def one(item: Any, **more: Any) -> Any:
            return only(name, await many([item], **more))
    else:

        @functools.wraps(many)
        def one(item: Any, **more: Any) -> Any:
            return only(name, many([item], **more))

    one.__signature__ = inspect.Signature([item, *parameters[1:]])  # type: ignore[attr-defined]
    rest = {name: hint for name, hint in hints.items() if name not in (parameters[0].name, "return")}
    one.__annotations__ = {ITEM: item.annotation, **rest, "return": _result(hints.get("return"))}
    return one


def _result(returned: Any) -> Any:
    """Return the type of one result: `str` for `list[str | Exception]`."""
    [inner, *_] = get_args(returned) or [Any]
    kinds = [kind for kind in get_args(inner) or [inner] if not _is_error(kind)]
    return inner if len(kinds) == len(get_args(inner) or [inner]) else Union[tuple(kinds)]  # noqa: UP007


def _is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def only(name: str, results: Any) -> Any:
    [value] = _results(name, results, 1)
    if isinstance(value, Exception):
        raise value
    return value


def _results(name: str, results: Any, count: int) -> list[Any]:
    if not isinstance(results, Sequence) or isinstance(results, str | bytes) or len(results) != count:
        returned = f"{len(results)} results" if isinstance(results, list | tuple) else repr(results)[:200]
        raise UsageError(
            f"{name} returned {returned} for {count} items",
            hint="return a list with one result per item, in order; an exception fails that item",
        )
    return list(results)


@dataclass(eq=False)
class BatchEntry:
    """One task that waits for the start or the end of its call."""

    lease: int
    item: Any
    done: asyncio.Future[Any]


@dataclass(eq=False)
class Gathering:
    """The tasks of one type that are collected for the next call."""

    handler: Handler
    batch: Batch
    more: dict[str, Any]
    entries: list[BatchEntry] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Batches:
    """The batches of one worker. With `eager`, a call does not wait for more tasks."""

    def __init__(self, mark: Mark, *, eager: bool = False) -> None:
        self._mark = mark
        self.eager = eager
        self._gathering: dict[str, Gathering] = {}
        self._calls: set[asyncio.Task[None]] = set()
        #: Called when a new batch starts to collect: tasks beyond the worker's concurrency can join it.
        self.on_room: Callable[[], None] = lambda: None
        #: How many tasks wait here or are part of a call.
        self.tasks = 0
        #: Calls that continued after all their tasks were stopped.
        self.abandoned = 0

    @property
    def slots(self) -> int:
        """How much of the worker's concurrency they use: one per call, whatever its size."""
        return len(self._gathering) + len(self._calls)

    @property
    def wanted(self) -> int:
        """How many more tasks fit into the batches that are being collected."""
        return sum(one.batch.max_size - len(one.entries) for one in self._gathering.values())

    def gathers(self, handler: Handler | None) -> bool:
        """Whether a task of this type can join a batch now."""
        return handler is not None and handler.name in self._gathering

    async def run(self, handler: Handler, lease: int, item: Any, more: dict[str, Any]) -> Any:
        """Return the result of one task, or raise its error."""
        assert handler.batch is not None
        gathering = self._gathering.get(handler.name)
        if gathering is None:
            gathering = self._gathering[handler.name] = Gathering(handler, handler.batch, more)
            wait = 0.0 if self.eager else gathering.batch.max_wait
            gathering.timer = asyncio.get_running_loop().call_later(wait, self._start, gathering)
            self.on_room()
        entry = BatchEntry(lease, item, asyncio.get_running_loop().create_future())
        gathering.entries.append(entry)
        self.tasks += 1
        if len(gathering.entries) >= gathering.batch.max_size:
            self._start(gathering)
        try:
            value = await entry.done
        finally:
            self.tasks -= 1
            self._leave(gathering, entry)
        if isinstance(value, Exception):
            raise value
        return value

    def _leave(self, gathering: Gathering, entry: BatchEntry) -> None:
        """Remove a task that was cancelled before the call."""
        if self._gathering.get(gathering.handler.name) is gathering:
            gathering.entries.remove(entry)
            if not gathering.entries:
                self._close(gathering)

    def _close(self, gathering: Gathering) -> None:
        del self._gathering[gathering.handler.name]
        if gathering.timer is not None:
            gathering.timer.cancel()

    def _start(self, gathering: Gathering) -> None:
        self._close(gathering)
        # The call runs without a lease: if it blocks or kills the worker, all its tasks are suspects.
        context = copy_context()
        context.run(running.set, 0)
        call = context.run(asyncio.get_running_loop().create_task, self._call(gathering))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        for entry in gathering.entries:
            entry.done.add_done_callback(functools.partial(self._end_unwanted, call, gathering.entries))

    def _end_unwanted(
        self, call: asyncio.Task[None], entries: list[BatchEntry], _: asyncio.Future[Any]
    ) -> None:
        """Cancel a call when all its tasks were cancelled or timed out."""
        if not call.cancelling() and not call.done() and all(entry.done.cancelled() for entry in entries):
            call.cancel()
            asyncio.get_running_loop().call_later(STOP_SECONDS, self._abandon, call)

    def _abandon(self, call: asyncio.Task[None]) -> None:
        if not call.done():
            self.abandoned += 1
            self._mark.give_up(call)

    async def _call(self, gathering: Gathering) -> None:
        handler, entries = gathering.handler, gathering.entries
        try:
            results = await self._results(handler, entries, gathering.more)
            for entry, value in zip(entries, _results(handler.name, results, len(entries)), strict=True):
                resolve(entry.done, value)
        except BaseException as error:
            for entry in entries:
                reject(entry.done, error)

    async def _results(self, handler: Handler, entries: list[BatchEntry], more: dict[str, Any]) -> Any:
        assert handler.many is not None
        call = functools.partial(handler.many, [entry.item for entry in entries], **more)
        leases = [entry.lease for entry in entries]
        if handler.mode == "thread":
            return await self._in_thread(call, handler.name, leases)
        return await self._marked(call, leases)

    async def _marked(self, call: Callable[[], Coroutine[Any, Any, Any]], leases: list[int]) -> Any:
        if len(leases) == 1:
            running.set(leases[0])
            return await self._mark.steps(leases[0], call())
        for lease in leases:
            self._mark.enter(lease)
        try:
            return await self._mark.steps(0, call())  # no single lease is at fault
        finally:
            for lease in leases:
                self._mark.leave(lease)

    async def _in_thread(self, call: Callable[[], Any], name: str, leases: list[int]) -> Any:
        try:
            return await in_thread(call, f"batch-{name}", self._mark, leases)
        except asyncio.CancelledError:
            self.abandoned += 1
            raise
