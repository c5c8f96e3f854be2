"""The database calls of a coordinator, one method per SQL function."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8BinaryLoader

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.db.locks import BOUNDED, deliver
from shiftboss.model.worker import Member, Orders

# Few lanes have tasks with regions, and one long text is read faster than an array.
WAITING = """
SELECT lane, queue, task_type, priority, tenant, weight, requires::text, array_to_string(ids, ',') AS ids,
    CASE WHEN array_remove(regions, NULL) <> '{}' THEN regions END AS regions
FROM shiftboss.waiting(%s, %s, %s)
"""
# The columns are the fields of the message Assignment.
ASSIGN_EACH = """
SELECT worker_id, (task).id::text AS task_id, (task).lease, (task).task_type,
    (task).params::text AS params_json, (task).attempt, (task).max_attempts, (task).queue,
    (task).priority, (task).tenant,
    extract(epoch FROM (task).timeout)::float8 AS timeout_seconds, (task).deadline AS deadline_us,
    (task).created_at AS created_us, (task).ready_at AS ready_us, (task).started_at AS started_us,
    (task).run_id::text, (task).metadata::text AS metadata_json, (task).crashes, (task).lane
FROM shiftboss.assign_each(%s::uuid[], %s::text[])
"""
REPORT = (
    "SELECT shiftboss.report(%s::text[], %s::uuid[], %s::bigint[], %s::text[], %s::text[],"  # noqa: S608 - our own words
    f" %s::float8[], %s::float8[], %s::boolean[]) AS stale FROM {BOUNDED}"
)
#: Microseconds from 1970 to 2000, where PostgreSQL starts to count.
SINCE_1970 = 946_684_800_000_000


class EndedAttempt(NamedTuple):
    """The outcome of one attempt, as `shiftboss.report` expects it."""

    worker_id: str
    id: str
    lease: int
    outcome: str
    text: str | None
    seconds: float
    delay: float
    final: bool


class Enrolled(NamedTuple):
    taken: bool
    resumed: bool


class FleetStore(Family):
    """Sessions of workers, and batches of heartbeats, assignments and reports."""

    async def enroll(self, member: Member, secret: bytes, former: bytes | None, fresh: timedelta) -> Enrolled:
        """Register a worker. With the secret of its previous session, that session continues."""
        [row] = await self._db.call_rows(
            "enroll",
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
        )
        enrolled = Enrolled(**row)
        if member.schemas and not enrolled.taken:
            await self._db.schemas.publish(member.id, member.schemas)
        return enrolled

    async def session(self, worker_id: str) -> Row | None:
        """Return the session of a worker: its secret, the worker's row and the tasks that it holds."""
        return await self._db.fetch_one(
            "SELECT s.secret, w.*, ARRAY(SELECT t.id::text FROM public.tasks t WHERE t.status = 'In Progress'"
            " AND t.worker_id = w.id ORDER BY t.lease) AS held_ids,"
            " ARRAY(SELECT t.lease FROM public.tasks t WHERE t.status = 'In Progress'"
            " AND t.worker_id = w.id ORDER BY t.lease) AS held_leases"
            " FROM shiftboss.sessions s JOIN public.workers w ON w.id = s.worker_id WHERE s.worker_id = %s",
            [worker_id],
        )

    async def attach(self, worker_id: str, coordinator: str) -> None:
        """Record that the worker's stream is open at this coordinator."""
        await self._db.execute(
            "UPDATE shiftboss.sessions SET coordinator = %s, attached_at = shiftboss.now()"
            " WHERE worker_id = %s",
            [coordinator, worker_id],
        )

    async def detach(self, coordinator: str, worker_id: str | None = None) -> None:
        """Record that no stream of one worker, or of any, is open at this coordinator."""
        await self._db.execute(
            "UPDATE shiftboss.sessions SET coordinator = NULL WHERE coordinator = %(c)s"
            " AND (%(w)s::text IS NULL OR worker_id = %(w)s)",
            {"c": coordinator, "w": worker_id},
        )

    async def beats(self, beats: Sequence[dict[str, Any]]) -> dict[str, Orders]:
        """Store the heartbeats of many workers and return the orders of each known worker."""
        rows = await self._db.call_rows("beats", Jsonb(list(beats)))
        return {row.pop("id"): Orders(known=True, **row) for row in rows}

    async def waiting(self, limit: int, marks: Mapping[int, datetime] | None = None) -> list[Row]:
        """Return the head of each lane that is not paused or at its limit."""
        lanes, times = (list(marks), list(marks.values())) if marks else (None, None)
        rows = await self._db.fetch(WAITING, [limit, lanes, times])
        for row in rows:
            row["ids"] = row["ids"].split(",")
            if row["requires"] is not None:  # PostgreSQL's numbers may exceed 64 bits
                row["requires"] = json.loads(row["requires"], parse_int=float)
        return rows

    async def assign_each(self, ids: Sequence[str], workers: Sequence[str]) -> list[Row]:
        """Assign each task to its worker if both are still available.

        Returns the worker_id of each assigned task and the fields of its message, with times in microseconds.
        """
        # The plain row factory: texts stay encrypted.
        async with self._db.connection() as conn, conn.cursor(binary=True, row_factory=dict_row) as cursor:
            cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)
            await cursor.execute(ASSIGN_EACH, [_array(ids), _texts(workers)])
            rows = await cursor.fetchall()
        for row in rows:
            row["created_us"] += SINCE_1970
            row["ready_us"] += SINCE_1970
            row["started_us"] += SINCE_1970
            if row["deadline_us"] is not None:
                row["deadline_us"] += SINCE_1970
        return rows

    async def foreign_leases(self, worker_id: str, held: Sequence[tuple[str, int]]) -> list[UUID]:
        """Return the tasks that another worker holds with that lease."""
        ids, leases = [id for id, _ in held], [lease for _, lease in held]
        query = "SELECT shiftboss.foreign_leases(%s, %s::uuid[], %s)"
        return await self._db.value(list[UUID], query, [worker_id, ids, leases])

    async def held_by(self, worker_id: str, held: Sequence[tuple[UUID, int]]) -> set[UUID]:
        """Return the tasks that this worker holds with that lease."""
        rows = await self._db.fetch(
            "SELECT t.id FROM unnest(%s::uuid[], %s::bigint[]) u (id, lease)"
            " JOIN public.tasks t ON t.id = ANY (ARRAY[u.id]) AND t.lease = u.lease"
            " WHERE t.worker_id = %s AND t.status = 'In Progress'",
            [[id for id, _ in held], [lease for _, lease in held], worker_id],
        )
        return {row["id"] for row in rows}

    async def work(
        self, queues: Sequence[str] | None, requires: Row | None, age: timedelta
    ) -> tuple[int, int]:
        """Return how many tasks have been ready for that long, up to 10,000 per lane, and how many run."""
        [row] = await self._db.call_rows("work_at_hand", queues, requires, age)
        return int(row["ready"]), int(row["running"])

    async def attempted(self, worker_id: str, ids: Iterable[UUID]) -> list[UUID]:
        """Return the tasks that this worker holds, or was the last to hold."""
        rows = await self._db.fetch(
            "SELECT id FROM public.tasks WHERE id = ANY (%s) AND %s IN (worker_id, last_worker_id)",
            [list(ids), worker_id],
        )
        return [row["id"] for row in rows]

    async def report(self, ended: Sequence[EndedAttempt]) -> set[UUID]:
        """End attempts of many workers, count them, and return the IDs of stale reports.

        Raise TasksLocked if another session has locked some of the tasks; the others are ended.
        """

        async def send(places: Sequence[int]) -> list[UUID]:
            return await self._report([ended[n] for n in places])

        return set(await deliver(self._db, [one.id for one in ended], send))

    async def _report(self, ended: Sequence[EndedAttempt]) -> list[UUID]:
        return await self._db.value(
            list[UUID],
            REPORT,
            [
                _texts([one.worker_id for one in ended]),
                _array([one.id for one in ended]),
                _array([str(one.lease) for one in ended]),
                _array([one.outcome for one in ended]),
                _texts([one.text for one in ended]),
                _array([repr(one.seconds) for one in ended]),
                _array([repr(one.delay) for one in ended]),
                _array([str(one.final) for one in ended]),
            ],
        )

    async def announce_coordinator(
        self, name: str, workers: int, figures: dict[str, Any], reasons: Mapping[int, tuple[str, str]]
    ) -> None:
        """Store that a coordinator is alive, its statistics, and why lanes wait."""
        words = [reason for reason, _ in reasons.values()]
        details = [detail for _, detail in reasons.values()]
        await self._db.execute(
            "SELECT shiftboss.announce_coordinator(%s, %s, %s, %s, %s::bigint[], %s::text[], %s::text[])",
            [name, os.getpid(), workers, figures, list(reasons), words, details],
        )

    async def withdraw_coordinator(self, name: str) -> None:
        """Delete a coordinator that stops."""
        await self._db.call("withdraw_coordinator", name)

    async def coordinators(self) -> list[Row]:
        """Return the running coordinators with their statistics."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.coordinators WHERE seen_at > shiftboss.now() - interval '30 seconds'"
            " ORDER BY name"
        )

    async def standing(self, worker_ids: Sequence[str]) -> list[Row]:
        """Return the workers that are paused, draining or not healthy."""
        return await self._db.fetch(
            "SELECT w.id, w.paused OR w.draining OR shiftboss.ending(w) AS shut, h.status"
            " FROM public.workers w JOIN shiftboss.worker_health h ON h.worker_id = w.id"
            " WHERE w.id = ANY (%s::text[])"
            " AND (w.paused OR w.draining OR shiftboss.ending(w) OR h.status <> 'healthy')",
            [_texts(worker_ids)],
        )


def _array(words: Iterable[str]) -> str:
    """Return an array literal of words that need no quotes, much faster than the driver does."""
    return "{" + ",".join(words) + "}"


def _texts(texts: Sequence[str | None]) -> str:
    """Return an array literal of any texts."""
    literals = {text: "NULL" if text is None else _quoted(text) for text in set(texts)}
    return _array([literals[text] for text in texts])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
