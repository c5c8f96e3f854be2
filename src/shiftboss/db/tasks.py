"""The queue. Each method calls the SQL function of the same name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from shiftboss import tracing
from shiftboss.db.claims import claimed_row, read_claimed
from shiftboss.db.connection import Row, again, translated
from shiftboss.db.encoding import (
    COPIED,
    ENQUEUE,
    as_given,
    check_copy,
    copied,
    encode,
    insert,
    is_plain_insert,
)
from shiftboss.db.family import Family
from shiftboss.db.gather import Gatherer
from shiftboss.db.locks import BOUNDED, deliver
from shiftboss.db.payload import dumps
from shiftboss.model import codec
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Cancel, Claimed, Enqueued, NewTask, Reason, Result, State, Status, new_id

if TYPE_CHECKING:
    from shiftboss.db.database import Database

Held = Iterable[tuple[UUID, int]]
CLAIM = "SELECT * FROM shiftboss.claim(%s, %s, %s, %s, %s, %s)"


class Tasks(Family):
    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._gatherer = Gatherer(self._store, self._enqueue_one)

    async def enqueue(
        self, tasks: Sequence[NewTask], conn: psycopg.AsyncConnection[Any] | None = None
    ) -> list[Enqueued]:
        """Enqueue all tasks or none, in the caller's transaction if `conn` is given."""
        with tracing.sending(tasks) as carried:
            if conn is not None:
                with translated():
                    return await _enqueue(carried, conn)
            if len(carried) == 1:
                return [await self._gatherer.enqueue(carried[0])]
            return await again(lambda: self._enqueue(carried))

    async def _enqueue_one(self, task: NewTask) -> Enqueued:
        return (await again(lambda: self._enqueue([task])))[0]

    async def _store(self, sql: str, params: list[Any]) -> None:
        async with self._db.connection() as conn:
            await conn.execute(sql, params)

    async def _enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        async with self._db.connection() as own:
            return await _enqueue(tasks, own)

    async def copy(self, tasks: Iterable[NewTask]) -> int:
        """Enqueue all tasks or none with COPY, the fastest way for large numbers. Return their number.

        Tasks with a dedup_key, depends_on or delay need `enqueue`.
        """
        with tracing.sending(list(tasks)) as carried:
            return await self._copy(carried)

    async def _copy(self, tasks: Sequence[NewTask]) -> int:
        for task in tasks:
            check_copy(task)
        extra = [name for name in COPIED if any(getattr(task, name) is not None for task in tasks)]
        columns = ", ".join(["id", "task_type", "params", *extra])
        async with self._db.transaction() as conn, conn.cursor() as cursor:
            async with cursor.copy(f"COPY public.tasks ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["uuid", "text", "jsonb", *(COPIED[name] for name in extra)])
                for task in tasks:
                    # Time-ordered ids are a third cheaper to insert than random ones.
                    await copy.write_row(
                        [task.id or new_id(), task.task_type, *copied(task, ["params", *extra])]
                    )
            return cursor.rowcount

    async def claim(
        self,
        worker_id: str,
        limit: int = 1,
        marks: Mapping[int, datetime] | None = None,
        lease: timedelta | None = None,
        incarnation: UUID | None = None,
    ) -> list[Claimed]:
        """Claim up to `limit` tasks that this worker may run.

        Returns none if another process has registered under this name since.
        """
        lanes, times = (list(marks), list(marks.values())) if marks else (None, None)
        try:
            async with (
                self._db.connection() as conn,
                conn.cursor(row_factory=claimed_row, binary=True) as cursor,
            ):
                await cursor.execute(CLAIM, [worker_id, limit, lanes, times, lease, incarnation])
                return await read_claimed(cursor)
        except DatabaseError as error:  # after a statement timeout, a smaller claim may succeed
            if not error.timed_out or limit <= 1:
                raise
        return await self.claim(worker_id, max(limit // 10, 1), marks, lease, incarnation)

    async def assign(
        self, ids: Sequence[UUID], worker_id: str, lease: timedelta | None = None
    ) -> list[Claimed]:
        """Claim these tasks for this worker, as far as they are still available."""
        async with (
            self._db.connection() as conn,
            conn.cursor(row_factory=claimed_row, binary=True) as cursor,
        ):
            await cursor.execute("SELECT * FROM shiftboss.assign(%s, %s, %s)", [list(ids), worker_id, lease])
            return await read_claimed(cursor)

    async def complete(self, held: Held, results: Sequence[bytes | None]) -> list[UUID]:
        """Complete tasks with results in encoded JSON. Return the ids whose lease was stale.

        If another session has locked some of the tasks, the others are completed and TasksLocked is raised.
        The same applies to `fail`, `defer` and `cancelled`.
        """
        encoded = None
        if results.count(None) < len(results):
            sealed = codec.current().json
            encoded = [None if result is None else sealed(result).decode() for result in results]
        return await self.under_lease("shiftboss.complete({held}, %s::text[]::jsonb[])", held, encoded)

    async def fail(
        self,
        held: Held,
        errors: Sequence[str],
        kinds: Sequence[str] | None = None,
        retry: Sequence[bool] | None = None,
        delays: Sequence[timedelta | None] | None = None,
    ) -> list[UUID]:
        """Fail attempts: tasks return to the queue, or become Failed if no attempt is left.

        The next attempt starts after its delay. A delay of None means the task's backoff.
        """
        call = "shiftboss.fail({held}, %s::text[], %s::text[], %s::boolean[], %s::interval[])"
        errors = [codec.current().error(error) or "" for error in errors]
        return await self.under_lease(call, held, errors, kinds or None, retry or None, delays or None)

    async def defer(self, held: Held, delays: Sequence[timedelta], reasons: Sequence[str]) -> list[UUID]:
        """Return tasks to the queue after a delay, without spending an attempt."""
        return await self.under_lease(
            "shiftboss.defer({held}, %s::interval[], %s::text[])", held, delays, reasons
        )

    async def cancelled(self, held: Held) -> list[UUID]:
        """Report running tasks that were stopped on request as cancelled."""
        return await self.under_lease("shiftboss.cancelled({held})", held)

    async def progress(
        self, held: Held, percents: Sequence[int], messages: Sequence[str | None]
    ) -> list[UUID]:
        """Store the progress of running tasks. Return the ids whose lease was stale."""
        call = "shiftboss.progress({held}, %s::smallint[], %s::text[])"
        texts = [codec.current().text(message) for message in messages]
        return await self._call(call, list(held), [list(percents), texts])

    async def extend(self, held: Held, by: timedelta) -> list[UUID]:
        """Extend the leases of tasks to `by` from now, regardless of the worker's own lease."""
        return await self._call("shiftboss.extend({held}, %s)", list(held), [by])

    async def under_lease(self, call: str, held: Held, *columns: Sequence[Any] | None) -> list[UUID]:
        """Call a function on these tasks. Return the ids whose lease was stale. Raises TasksLocked."""
        held = list(held)

        async def send(places: Sequence[int]) -> list[UUID]:
            if len(places) == len(held):
                return await self._call(call, held, [c and list(c) for c in columns], bounded=True)
            parts = [c and [c[n] for n in places] for c in columns]
            return await self._call(call, [held[n] for n in places], parts, bounded=True)

        return await deliver(self._db, [id for id, _ in held], send)

    async def _call(
        self, call: str, held: list[tuple[UUID, int]], params: list[Any], *, bounded: bool = False
    ) -> list[UUID]:
        # Format the two arrays here: the driver's dumper takes longer for them than the database.
        ids = "{" + ",".join([id.hex for id, _ in held]) + "}"
        leases = "{" + ",".join([str(lease) for _, lease in held]) + "}"
        sql = "SELECT " + call.format(held="%s::uuid[], %s::bigint[]")
        sql += f" FROM {BOUNDED}" if bounded else ""
        return await self._db.value(list[UUID], sql, [ids, leases, *params])

    async def cancel(self, ids: Sequence[UUID], reason: str | None = None) -> list[Cancel]:
        """Cancel queued tasks immediately, and ask running tasks to stop."""
        sealed = codec.current().text(reason)
        rows = await self._db.fetch("SELECT * FROM shiftboss.cancel(%s, %s)", [list(ids), sealed])
        return [Cancel(**row) for row in rows]

    async def retry(
        self, ids: Sequence[UUID], start: str | None = None, *, restart: bool = False
    ) -> list[UUID]:
        """Enqueue failed and cancelled tasks again, and return the ids of those that were.

        Results of steps are kept; `start` drops them from that step on, `restart` drops all.
        """
        call = "SELECT shiftboss.retry(%s, %s, %s)"
        return await self._db.value(list[UUID], call, [list(ids), start, restart])

    async def run_now(self, ids: Sequence[UUID]) -> list[UUID]:
        """Make tasks due that wait for a time, and return the ids of those that were changed."""
        return await self._db.value(list[UUID], "SELECT shiftboss.run_now(%s)", [list(ids)])

    async def pause(self, kind: str, name: str, reason: str | None = None) -> bool:
        """Pause a queue or a task type (`kind`: queue | task_type). Return whether it was running."""
        return await self._db.value(bool, "SELECT shiftboss.pause(%s, %s, %s)", [kind, name, reason])

    async def resume(self, kind: str, name: str) -> bool:
        return await self._db.value(bool, "SELECT shiftboss.resume(%s, %s)", [kind, name])

    async def set_limit(
        self,
        kind: str,
        name: str,
        *,
        max_running: int | None = None,
        max_per_key: int | None = None,
        rate: int | None = None,
        rate_period: timedelta | None = None,
        rate_per: str = "all",
    ) -> None:
        """Limit a queue or task type across the whole fleet. Without figures, remove its limits."""
        given = [kind, name, max_running, max_per_key, rate, rate_period, rate_per]
        await self._db.execute("SELECT shiftboss.set_limit(%s, %s, %s, %s, %s, %s, %s)", given)

    async def reset_limit(self, kind: str, name: str) -> bool:
        """Remove limits set by an operator, so that limits in code apply. Return whether there were any."""
        return await self._db.value(bool, "SELECT shiftboss.reset_limit(%s, %s)", [kind, name])

    async def declare_limits(self, limits: Sequence[dict[str, Any]]) -> list[str]:
        """Store the limits that a worker declares in code. Return the types whose limits changed."""
        call = "SELECT shiftboss.declare_limits(%s)"
        return await self._db.value(list[str], call, [Jsonb(list(limits), dumps=dumps)])

    async def set_payload_limit(self, size: int) -> None:
        """Set the maximum size of params in bytes, for every client. Requires the schema's owner."""
        await self._db.execute("SELECT shiftboss.set_payload_limit(%s)", [size])

    async def watch(self, ids: Sequence[UUID]) -> list[Result]:
        """Return the results of tasks. The end of unfinished ones is notified on `shiftboss_results`."""
        rows = await self._db.fetch("SELECT * FROM shiftboss.watch(%s)", [list(ids)])
        return [Result(row["id"], row["status"], row["result_data"], row["error_message"]) for row in rows]

    async def prune(self, older: timedelta, limit: int = 1000) -> int:
        """Delete one batch of finished tasks older than `older`. Return their number."""
        return await self._db.value(int, "SELECT shiftboss.prune(%s, %s)", [older, limit])

    async def tidy(self, older: timedelta) -> None:
        """Delete old lanes, events and statistics."""
        await self._db.execute("SELECT shiftboss.tidy(%s)", [older])

    async def why(self, id: UUID) -> list[Reason]:
        """Return the reasons why a task waits."""
        return [Reason(**row) for row in await self._db.fetch("SELECT * FROM shiftboss.why(%s)", [id])]

    async def get(self, id: UUID) -> Row | None:
        """Return the row of a task, or None."""
        return await self._db.fetch_one("SELECT * FROM public.tasks WHERE id = %s", [id])

    async def state(self, id: UUID) -> State | None:
        """Return the state of a task without its params and result, or None."""
        row = await self._db.fetch_one(
            "SELECT id, status, attempts, progress, progress_message AS message, worker_id,"
            " error_message AS error FROM public.tasks WHERE id = %s",
            [id],
        )
        return State(**row | {"status": Status(row["status"])}) if row else None

    async def attempts(self, id: UUID) -> list[Row]:
        """Return the attempts of a task, oldest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.attempts WHERE task_id = %s ORDER BY started_at, ended_at", [id]
        )


async def _enqueue(tasks: Sequence[NewTask], conn: psycopg.AsyncConnection[Any]) -> list[Enqueued]:
    if len(tasks) == 1 and is_plain_insert(tasks[0]):
        id, sql, params = insert(tasks[0])
        await conn.execute(sql, params)
        return [Enqueued(id, True)]
    async with conn.cursor(row_factory=args_row(Enqueued)) as cursor:
        await cursor.execute(ENQUEUE, [encode(tasks)])
        return as_given(tasks, await cursor.fetchall())
