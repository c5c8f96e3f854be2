"""The SQL functions of tracked runs, one method each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.model.codec import current
from shiftboss.model.errors import NotFound, UsageError


class StartedRun(NamedTuple):
    """The run of a job; `created` is False if the same job was already pending or running."""

    id: UUID
    created: bool


class Runs(Family):
    """Reads and writes the table `worker_runs`."""

    async def start_run(
        self,
        bot: str,
        city: str | None = None,
        category: str | None = None,
        params: dict[str, Any] | None = None,
        *,
        queue: str = "default",
        requested_by: str | None = None,
    ) -> StartedRun:
        """Create a run and its task, or return the active run of the same job."""
        return await self._started("start_run", bot, city, category, _sealed(params), queue, requested_by)

    async def retry_run(
        self, id: UUID, *, queue: str = "default", requested_by: str | None = None
    ) -> StartedRun:
        """Start a new run that refers to the old one and continues where that one stopped."""
        return await self._started("retry_run", id, queue, requested_by)

    async def _started(self, function: str, *given: Any) -> StartedRun:
        [row] = await self._db.call_rows(function, *given)
        return StartedRun(row["id"], row["created"])

    async def cancel_run(self, id: UUID, reason: str | None = None) -> None:
        """Cancel a run: at once while it is pending, through its worker while it is running."""
        await self._db.call("cancel_run", id, current().text(reason))

    async def amend_run(
        self, id: UUID, city: str | None, category: str | None, params: dict[str, Any]
    ) -> UUID | None:
        """Fill in unset values of a pending run, and return its task, or None if it has started."""
        if current():  # SQL cannot merge encrypted params
            params = params | (await self.get(id) or {}).get("params", {})
        return await self._db.call_value(UUID, "amend_run", id, city, category, _sealed(params))

    async def report_run(
        self,
        id: UUID,
        lease: int,
        percent: int,
        counters: dict[str, Any] | None = None,
        checkpoint: dict[str, Any] | None = None,
        message: str | None = None,
    ) -> bool:
        """Report progress. Returns False if the caller no longer holds the run and must stop."""
        sealed = None if checkpoint is None else current().value(checkpoint)
        text = current().text(message)
        return await self._db.call_value(bool, "report_run", id, lease, percent, counters, sealed, text)

    async def get(self, id: UUID) -> Row | None:
        return await self._db.fetch_one("SELECT * FROM shiftboss.runs WHERE id = %s", [id])

    async def find(self, id: UUID) -> Row:
        """Return a run. Raises `NotFound`."""
        row = await self.get(id)
        if row is None:
            raise NotFound(f"there is no run {id}", hint="to list runs: shiftboss runs list")
        return row

    async def named(self, ids: Sequence[UUID]) -> list[Row]:
        """Return the runs with these ids."""
        if not ids:
            return []
        return await self._db.fetch("SELECT * FROM shiftboss.runs WHERE id = ANY (%s)", [list(ids)])

    async def kept(self, id: UUID) -> Row:
        """Return the stored counters and checkpoint of a run."""
        row = await self._db.fetch_one(
            "SELECT checkpoint, counters FROM public.worker_runs WHERE id = %s", [id]
        )
        return row or {}

    async def active(self) -> list[Row]:
        """Return pending and running runs, oldest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.runs WHERE status IN ('pending', 'running') ORDER BY created_at, id"
        )

    async def latest_ended(self) -> list[Row]:
        """Return the latest run of each bot that has ended in the last week."""
        return await self._db.fetch(
            "SELECT DISTINCT ON (bot) * FROM (SELECT * FROM public.worker_runs"
            " WHERE created_at > shiftboss.now() - interval '7 days' ORDER BY created_at DESC LIMIT 2000) r"
            " WHERE status IN ('finished', 'failed') ORDER BY bot, finished_at DESC LIMIT 200"
        )

    async def list_runs(
        self,
        *,
        bot: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[Row]:
        """Return runs, newest first."""
        return await self._db.fetch(
            "SELECT r.* FROM shiftboss.list_runs(%s, %s, %s, %s, %s) l JOIN shiftboss.runs r USING (id)"
            " ORDER BY r.created_at DESC, r.id DESC",
            [bot, status, since, limit, offset],
        )

    async def count_runs(
        self, *, bot: str | None = None, status: str | None = None, since: datetime | None = None
    ) -> int:
        return await self._db.call_value(int, "count_runs", bot, status, since)


def _sealed(params: dict[str, Any] | None) -> dict[str, Any]:
    """Encrypt params so that SQL still recognises the same job."""
    sealed: dict[str, Any] = current().value(params, repeatable=True) if params else {}
    return sealed


def run_id(text: str) -> UUID:
    """Parse the id of a run that a user gave."""
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a run id", hint="`shiftboss runs list` lists the runs") from None
