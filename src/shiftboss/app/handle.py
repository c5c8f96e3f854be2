"""Handles of enqueued tasks: results, status, progress, cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from shiftboss.db.stream import Streamed, follow
from shiftboss.model.codec import KeyMissing, Sealed
from shiftboss.model.errors import NotFound, TaskCancelled, TaskFailed, UsageError
from shiftboss.model.task import Cancel, Reason, Result, State, Status

if TYPE_CHECKING:
    from shiftboss.app.app import App

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Handle(Generic[R_co]):
    """An enqueued task. `created` is False if the dedup key matched an existing task, which this is."""

    def __init__(
        self, id: UUID, app: App, *, decode: Callable[[Any], R_co] | None = None, created: bool = True
    ) -> None:
        self.id = id
        self.created = created
        self._app = app
        self._decode = decode

    def __repr__(self) -> str:
        return f"<handle of task {self.id}>"

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait for the task and return its result. Raises TaskFailed, TaskCancelled or ResultTimeout."""
        return self.unwrap(await self.wait(timeout))

    def unwrap(self, outcome: Result) -> R_co:
        """Return the value of a completed outcome, or raise its error."""
        raise_unless_complete(outcome)
        if isinstance(outcome.result, Sealed):
            raise KeyMissing(f"the result of task {self.id}", outcome.result.key)
        value: R_co = self._decode(outcome.result) if self._decode else outcome.result
        return value

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait until the task ends and return its outcome, success or failure. Raises ResultTimeout."""
        [outcome] = await (await self._app.connection()).mailbox.wait([self.id], timeout)
        return outcome

    async def follow(self, every: float = 0.5) -> AsyncIterator[State]:
        """Yield the task's state now and after each change, until it ends.

        Progress is polled `every` seconds; the end is reported immediately. During a database outage the
        iterator waits.
        """
        last: State | None = None
        async for state in (await self._app.connection()).mailbox.states(self.id, every):
            if state != last:
                yield state
            last = state

    async def stream(self, after: int = 0) -> AsyncIterator[Streamed]:
        """Yield what the task emits, in order, until it ends. `after` skips parts up to that number.

        A part with `discard` means that the task runs again, and lists the parts that are no longer valid.
        """
        steps = (await self._app.database()).steps
        async for part in follow(steps, self.id, after):
            yield part

    async def status(self) -> Status:
        """Return the task's current status."""
        return Status((await self.look())["status"])

    async def look(self) -> dict[str, Any]:
        """Return the task's row: status, attempts, progress, progress_message, worker_id and so on."""
        row = await (await self._app.database()).tasks.get(self.id)
        if row is None:
            raise self._gone()
        return row

    async def cancel(self, reason: str | None = None) -> Cancel:
        """Cancel the task if it is queued, or ask it to stop if it is running."""
        cancels = await (await self._app.database()).tasks.cancel([self.id], reason)
        if not cancels:
            raise self._gone()
        return cancels[0]

    async def retry(self, start: str | None = None, *, restart: bool = False) -> bool:
        """Enqueue a failed or cancelled task again, and return whether it was possible.

        It is not possible in any other status, or while another task has the same dedup key. Results of its
        steps are kept; `start` drops them from that step on, `restart` drops all.
        """
        return bool(await (await self._app.database()).tasks.retry([self.id], start, restart=restart))

    def _gone(self) -> NotFound:
        return NotFound(f"there is no task {self.id}", hint="it may have been pruned")

    async def why(self) -> list[Reason]:
        """Return the reasons why the task waits, each with advice."""
        return await (await self._app.database()).tasks.why(self.id)


def as_id(id: UUID | str) -> UUID:
    """Convert text to a task id."""
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise UsageError(f"{id!r} is not the id of a task", hint="ids are UUIDs: `handle.id`") from None


class Group(Generic[T_co]):
    """The handles of tasks that were enqueued together."""

    def __init__(self, handles: Sequence[Handle[T_co]], app: App) -> None:
        self.handles = list(handles)
        self._app = app

    def __iter__(self) -> Iterator[Handle[T_co]]:
        return iter(self.handles)

    def __len__(self) -> int:
        return len(self.handles)

    async def outcomes(self, timeout: float | None = None) -> list[Result]:
        """Wait for all tasks and return their outcomes in order, successes and failures."""
        mailbox = (await self._app.connection()).mailbox
        return await mailbox.wait([handle.id for handle in self.handles], timeout)

    async def results(self, timeout: float | None = None) -> list[T_co]:
        """Wait for all tasks and return their results in order, or raise the first error."""
        outcomes = await self.outcomes(timeout)
        return [handle.unwrap(outcome) for handle, outcome in zip(self.handles, outcomes, strict=True)]


def raise_unless_complete(outcome: Result) -> None:
    if outcome.status == Status.FAILED:
        raise TaskFailed(outcome.id, outcome.error)
    if outcome.status == Status.CANCELLED:
        raise TaskCancelled(outcome.id, outcome.error)
