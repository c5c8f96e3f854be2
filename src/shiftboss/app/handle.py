"""Handles: waiting for the results of tasks that somebody else runs."""

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
    """One task in the queue. `created` is False when its dedup_key was live already: this is that task."""

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
        """What the task returned, as soon as it has. Raises TaskFailed, TaskCancelled or ResultTimeout."""
        return self.unwrap(await self.wait(timeout))

    def unwrap(self, outcome: Result) -> R_co:
        """The value of a result, or its error raised."""
        raise_unless_complete(outcome)
        if isinstance(outcome.result, Sealed):
            raise KeyMissing(f"the result of task {self.id}", outcome.result.key)
        value: R_co = self._decode(outcome.result) if self._decode else outcome.result
        return value

    async def wait(self, timeout: float | None = None) -> Result:
        """How the task ended, as soon as it has, good or bad. Raises ResultTimeout."""
        [outcome] = await (await self._app.connection()).mailbox.wait([self.id], timeout)
        return outcome

    async def follow(self, every: float = 0.5) -> AsyncIterator[State]:
        """The state now, and again whenever it changes, until the task has ended.

        Progress is looked at `every` so many seconds; the end comes at once. An outage of the database is
        waited out.
        """
        last: State | None = None
        async for state in (await self._app.connection()).mailbox.states(self.id, every):
            if state != last:
                yield state
            last = state

    async def stream(self, after: int = 0) -> AsyncIterator[Streamed]:
        """What the task emits, in order, until it ends; `after` continues behind that part.

        A part with `discard` announces that the task runs again, and names the parts that this takes back.
        """
        steps = (await self._app.database()).steps
        async for part in follow(steps, self.id, after):
            yield part

    async def status(self) -> Status:
        """How the task stands now."""
        return Status((await self.look())["status"])

    async def look(self) -> dict[str, Any]:
        """The whole row: status, attempts, progress, progress_message, worker_id and so on."""
        row = await (await self._app.database()).tasks.get(self.id)
        if row is None:
            raise self._gone()
        return row

    async def cancel(self, reason: str | None = None) -> Cancel:
        """End it if it is queued, ask it to stop if it runs."""
        cancels = await (await self._app.database()).tasks.cancel([self.id], reason)
        if not cancels:
            raise self._gone()
        return cancels[0]

    async def retry(self) -> bool:
        """Start it over if it failed or was cancelled. False: it has not, or its dedup_key is live."""
        return bool(await (await self._app.database()).tasks.retry([self.id]))

    def _gone(self) -> NotFound:
        return NotFound(f"there is no task {self.id}", hint="it may have been pruned")

    async def why(self) -> list[Reason]:
        """Why it waits, one reason each, with what to do about it."""
        return await (await self._app.database()).tasks.why(self.id)


def as_id(id: UUID | str) -> UUID:
    """The id of a task, also from text."""
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise UsageError(f"{id!r} is not the id of a task", hint="ids are UUIDs: `handle.id`") from None


class Group(Generic[T_co]):
    """Handles that belong together."""

    def __init__(self, handles: Sequence[Handle[T_co]], app: App) -> None:
        self.handles = list(handles)
        self._app = app

    def __iter__(self) -> Iterator[Handle[T_co]]:
        return iter(self.handles)

    def __len__(self) -> int:
        return len(self.handles)

    async def outcomes(self, timeout: float | None = None) -> list[Result]:
        """How each ended, good or bad, in order."""
        mailbox = (await self._app.connection()).mailbox
        return await mailbox.wait([handle.id for handle in self.handles], timeout)

    async def results(self, timeout: float | None = None) -> list[T_co]:
        """All results in order; the first that failed is raised, once all have ended."""
        outcomes = await self.outcomes(timeout)
        return [handle.unwrap(outcome) for handle, outcome in zip(self.handles, outcomes, strict=True)]


def raise_unless_complete(outcome: Result) -> None:
    if outcome.status == Status.FAILED:
        raise TaskFailed(outcome.id, outcome.error)
    if outcome.status == Status.CANCELLED:
        raise TaskCancelled(outcome.id, outcome.error)
