"""What a coordinator asks of the database for the many workers it speaks for: one method per SQL function."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row
from shiftboss.model.worker import Member, Orders

if TYPE_CHECKING:
    from shiftboss.db.database import Database


WAITING = (
    "SELECT lane, queue, task_type, priority, tenant, weight, requires::text, ids, regions"
    " FROM shiftboss.waiting(%s, %s, %s)"
)
# Its moments may be such as Python knows none of: infinity, or before Christ.
ASSIGN_MANY = (
    "SELECT worker_id, id, lease, task_type, params, attempt, max_attempts, queue, priority, tenant,"
    " timeout, shiftboss.civil(deadline),"
    " shiftboss.civil(created_at), shiftboss.civil(ready_at), started_at, run_id, metadata"
    " FROM shiftboss.assign_many(%s::uuid[], %s)"
)


class Given(NamedTuple):
    """A task that was given to a worker; params and metadata are JSON text, handed on as they are."""

    worker_id: str
    id: UUID
    lease: int
    task_type: str
    params: str
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    tenant: str | None
    timeout: timedelta | None
    deadline: datetime | None
    created_at: datetime
    ready_at: datetime
    started_at: datetime
    run_id: UUID | None
    metadata: str | None


class Ended(NamedTuple):
    """How one attempt of one worker ended, as `shiftboss.report` takes it."""

    worker_id: str
    id: UUID
    lease: int
    outcome: str
    text: str | None
    seconds: float
    delay: float
    final: bool


class Enrolled(NamedTuple):
    taken: bool
    resumed: bool


class Fleet:
    """Sessions, batches of beats, assignments and reports, and how workers are."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def enroll(self, member: Member, secret: bytes, former: bytes | None, fresh: timedelta) -> Enrolled:
        """Join through a coordinator; with the secret of the former session, go on with it."""
        row = await self._db.fetch_one(
            "SELECT * FROM shiftboss.enroll(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                member.id,
                secret,
                former,
                fresh,
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
            ],
        )
        assert row is not None
        return Enrolled(**row)

    async def session(self, worker_id: str) -> Row | None:
        """A worker's session: its secret, the worker's row, and the tasks it holds as (id, lease)."""
        return await self._db.fetch_one(
            "SELECT s.secret, w.*, ARRAY(SELECT t.id FROM public.tasks t WHERE t.status = 'In Progress'"
            " AND t.worker_id = w.id ORDER BY t.lease) AS held_ids,"
            " ARRAY(SELECT t.lease FROM public.tasks t WHERE t.status = 'In Progress'"
            " AND t.worker_id = w.id ORDER BY t.lease) AS held_leases"
            " FROM shiftboss.sessions s JOIN public.workers w ON w.id = s.worker_id WHERE s.worker_id = %s",
            [worker_id],
        )

    async def attach(self, worker_id: str, coordinator: str) -> None:
        """Its stream is open at this coordinator."""
        await self._db.execute(
            "UPDATE shiftboss.sessions SET coordinator = %s WHERE worker_id = %s", [coordinator, worker_id]
        )

    async def detach(self, coordinator: str, worker_id: str | None = None) -> None:
        """No stream is open there any more, of one worker or of any."""
        await self._db.execute(
            "UPDATE shiftboss.sessions SET coordinator = NULL WHERE coordinator = %(c)s"
            " AND (%(w)s::text IS NULL OR worker_id = %(w)s)",
            {"c": coordinator, "w": worker_id},
        )

    async def beats(self, beats: Sequence[dict[str, Any]]) -> dict[str, Orders]:
        """Beats of many workers; the orders of each that is known."""
        rows = await self._db.fetch("SELECT * FROM shiftboss.beats(%s)", [Jsonb(list(beats))])
        return {row.pop("id"): Orders(known=True, **row) for row in rows}

    async def waiting(self, limit: int, marks: Mapping[int, datetime] | None = None) -> list[Row]:
        """The head of each lane that may be worked on now."""
        lanes, times = (list(marks), list(marks.values())) if marks else (None, None)
        rows = await self._db.fetch(WAITING, [limit, lanes, times])
        for row in rows:
            if row["requires"] is not None:  # PostgreSQL's numbers are longer than any of ours
                row["requires"] = json.loads(row["requires"], parse_int=float)
        return rows

    async def assign_many(self, ids: Sequence[UUID], workers: Sequence[str]) -> list[Given]:
        """Give each task to its worker, as far as both still stand."""
        async with (
            self._db.connection() as conn,
            conn.cursor(row_factory=args_row(Given), binary=True) as cursor,
        ):
            await cursor.execute(
                ASSIGN_MANY,
                [_array(id.hex for id in ids), list(workers)],
            )
            return await cursor.fetchall()

    async def foreign_leases(self, worker_id: str, held: Sequence[tuple[UUID, int]]) -> list[UUID]:
        """Those that somebody else holds by that very lease."""
        ids, leases = [id for id, _ in held], [lease for _, lease in held]
        row = await self._db.fetch_one(
            "SELECT shiftboss.foreign_leases(%s, %s, %s) AS ids", [worker_id, ids, leases]
        )
        return row["ids"] if row else []

    async def report(self, ended: Sequence[Ended]) -> set[UUID]:
        """End attempts of many workers and count them, all or none; the stale ids."""
        row = await self._db.fetch_one(
            "SELECT shiftboss.report(%s, %s::uuid[], %s::bigint[], %s, %s::text[], %s::float8[],"
            " %s::float8[], %s::boolean[]) AS stale",
            [
                [one.worker_id for one in ended],
                _array(one.id.hex for one in ended),
                _array(str(one.lease) for one in ended),
                [one.outcome for one in ended],
                [one.text for one in ended],
                _array(repr(one.seconds) for one in ended),
                _array(repr(one.delay) for one in ended),
                _array(str(one.final) for one in ended),
            ],
        )
        return set(row["stale"]) if row else set()

    async def announce_coordinator(
        self, name: str, workers: int, figures: dict[str, Any], reasons: Mapping[int, tuple[str, str]]
    ) -> None:
        """A sign of life, with figures, and why lanes wait that can not be served now."""
        words = [reason for reason, _ in reasons.values()]
        details = [detail for _, detail in reasons.values()]
        await self._db.execute(
            "SELECT shiftboss.announce_coordinator(%s, %s, %s, %s, %s::bigint[], %s::text[], %s::text[])",
            [name, os.getpid(), workers, figures, list(reasons), words, details],
        )

    async def withdraw_coordinator(self, name: str) -> None:
        """It ends."""
        await self._db.execute("SELECT shiftboss.withdraw_coordinator(%s)", [name])

    async def coordinators(self) -> list[Row]:
        """Coordinators that gave a sign of life lately, with their figures."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.coordinators WHERE seen_at > shiftboss.now() - interval '30 seconds'"
            " ORDER BY name"
        )

    async def standing(self, worker_ids: Sequence[str]) -> list[Row]:
        """Whether each may be given tasks now."""
        return await self._db.fetch(
            "SELECT w.id, w.paused, w.draining OR shiftboss.ending(w) AS draining, h.status"
            " FROM public.workers w JOIN shiftboss.worker_health h ON h.worker_id = w.id"
            " WHERE w.id = ANY (%s)",
            [list(worker_ids)],
        )

    async def health(self, worker_id: str | None = None) -> list[Row]:
        """WorkerHealth of one worker or of all, by id."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.worker_health WHERE %(w)s::text IS NULL OR worker_id = %(w)s"
            " ORDER BY worker_id",
            {"w": worker_id},
        )

    async def load(self, queue: str | None = None, window: timedelta = timedelta(minutes=1)) -> Row:
        """The figures that the autoscaler decides on."""
        row = await self._db.fetch_one("SELECT * FROM shiftboss.load(%s, %s)", [queue, window])
        assert row is not None
        return row


def _array(words: Iterable[str]) -> str:
    """An array of words that need no quotes, written out: the driver's dumper takes much longer for it."""
    return "{" + ",".join(words) + "}"
