"""The registry of workers. Each method calls the SQL function of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.model.errors import DatabaseError
from shiftboss.model.worker import Member, Orders


class Workers(Family):
    async def register(self, member: Member) -> None:
        """Register a worker. A previous process of the same name loses its tasks.

        Rejected if another process has registered under this name since this one started.
        """
        await self._db.call(
            "register",
            member.id,
            member.instance_type,
            member.queues,
            member.capabilities.as_json(),
            member.resource_limits.as_json(),
            member.region,
            member.host,
            member.pid,
            member.version,
            member.incarnation,
            timedelta(seconds=member.lease_seconds),
            member.metadata,
            timedelta(seconds=member.age_seconds),
        )
        if member.schemas:
            await self._db.schemas.publish(member.id, member.schemas)

    async def beat(
        self,
        worker_id: str,
        leases: Sequence[int] | None = None,
        usage: dict[str, Any] | None = None,
        stats: list[dict[str, Any]] | None = None,
        incarnation: UUID | None = None,
    ) -> Orders:
        """Extend all leases of the worker, store its figures, and return its orders.

        With `incarnation`, the worker is unknown once another process has registered under its name.
        """
        held = None if leases is None else list(leases)
        [row] = await self._db.call_rows("beat", worker_id, held, usage, _rows(stats), incarnation)
        return Orders(**row)

    async def beat_process(
        self,
        worker_id: str,
        leases: Sequence[int] | None,
        usage: dict[str, Any] | None,
        stats: list[dict[str, Any]] | None,
        incarnation: UUID | None,
        *,
        slot: Row | None = None,
        process: Row | None = None,
    ) -> tuple[Orders, Row]:
        """Call `beat` and update the rows of the process. Return its orders and errors about the rows."""
        held = None if leases is None else list(leases)
        [row] = await self._db.call_rows(
            "beat_process", worker_id, held, usage, _rows(stats), incarnation, slot, process
        )
        trouble: Row = row.pop("trouble")
        return Orders(**row), trouble

    async def keep_process(self, slot: Row | None, process: Row | None) -> Row:
        """Update the rows of a process whose leases are renewed elsewhere. Return errors about the rows."""
        return await self._db.call_value(Row, "keep_process", slot, process)

    async def unsupervised(self, queue: str | None = None) -> list[str]:
        """Return the ids of the active workers that no supervisor keeps, all or those of one queue."""
        rows = await self._db.fetch(
            "SELECT w.id FROM public.workers w WHERE w.status = 'active'"
            " AND (%(queue)s::text IS NULL OR %(queue)s = ANY (w.queues))"
            " AND NOT EXISTS (SELECT FROM public.health h WHERE w.id IN (h.member_id, h.component))"
            " ORDER BY w.id",
            {"queue": queue},
        )
        return [row["id"] for row in rows]

    async def count_work(self, worker_id: str, stats: list[dict[str, Any]]) -> None:
        """Add a worker's finished work to the statistics of this minute."""
        await self._db.call("count_work", worker_id, _rows(stats))

    async def leave(self, worker_id: str, status: str = "inactive", incarnation: UUID | None = None) -> int:
        """Unregister a worker and requeue its tasks without spending attempts. Return their number.

        Waits at most two seconds for a task that another session has locked.
        """
        return await self._db.value(
            int,
            "SELECT shiftboss.leave(%s, %s, %s) FROM pg_catalog.set_config('lock_timeout', '2s', true)",
            [worker_id, status, incarnation],
        )

    async def lose_worker(
        self, worker_ids: Sequence[str], outcome: str = "lost", reason: str | None = None
    ) -> int:
        """End every attempt of these workers as spent. Return the number of tasks."""
        return await self._db.call_value(int, "lose_worker", list(worker_ids), outcome, reason)

    async def worker_died(
        self, worker_id: str, outcome: str, reason: str, suspects: Sequence[int] | None = None
    ) -> int:
        """End the attempts of a dead worker; only suspects spend one. Return the number of tasks."""
        call = "SELECT shiftboss.worker_died(%s, %s, %s, %s::bigint[])"
        return await self._db.value(int, call, [worker_id, outcome, reason, list(suspects or ())])

    async def rescue(self, limit: int = 1000) -> Row:
        """Run one round of the rescuer and return what it did. After a timeout, tries fewer tasks."""
        try:
            return (await self._db.call_rows("rescue", limit))[0]
        except DatabaseError as error:
            if not error.timed_out or limit <= 1:
                raise
        return await self.rescue(max(limit // 10, 1))

    async def set_flags(
        self, worker_id: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> bool:
        """Pause, resume or drain one worker, at the latest with its next heartbeat. False if unknown."""
        changed = await self._db.execute(
            "UPDATE public.workers SET paused = coalesce(%s, paused), draining = coalesce(%s, draining)"
            " WHERE id = %s",
            [paused, draining, worker_id],
        )
        await self._db.execute("SELECT pg_notify('shiftboss_orders', %s)", [worker_id])
        return changed > 0

    async def health(self, worker_id: str | None = None) -> list[Row]:
        """Return the health of one worker or of all, ordered by id."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.worker_health WHERE %(w)s::text IS NULL OR worker_id = %(w)s"
            " ORDER BY worker_id",
            {"w": worker_id},
        )

    async def get(self, worker_id: str) -> Row | None:
        return await self._db.fetch_one("SELECT * FROM public.workers WHERE id = %s", [worker_id])


def _rows(stats: list[dict[str, Any]] | None) -> Jsonb | None:
    return None if stats is None else Jsonb(stats)
