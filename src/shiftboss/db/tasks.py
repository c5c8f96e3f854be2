"""The queue: one method per SQL function of the same name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import psycopg
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from shiftboss import tracing
from shiftboss.db.connection import Row, again, translated
from shiftboss.db.locks import BOUNDED, deliver
from shiftboss.db.order import parents_first
from shiftboss.db.payload import as_jsonb, dumps, json_fields
from shiftboss.model import codec
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.task import (
    Cancel,
    Claimed,
    Enqueued,
    NewTask,
    Reason,
    Result,
    State,
    Status,
    Unreadable,
    new_id,
)

if TYPE_CHECKING:
    from shiftboss.db.database import Database

Held = Iterable[tuple[UUID, int]]
AnyConnection = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]

ENQUEUE = "SELECT id, created FROM shiftboss.enqueue(%s)"
# What COPY takes beside id, task_type and params, with the column's type.
COPIED = {
    "queue": "text",
    "priority": "int2",
    "tenant": "text",
    "run_at": "timestamptz",
    "deadline": "timestamptz",
    "timeout": "interval",
    "concurrency_key": "text",
    "max_attempts": "int2",
    "backoff": "interval",
    "backoff_factor": "float4",
    "backoff_max": "interval",
    "requires": "jsonb",
    "region": "text",
    "metadata": "jsonb",
}
# Columns that are never NULL.
DEFAULTS = {"queue": "default", "priority": 5, "max_attempts": 3}
CLAIM = "SELECT * FROM shiftboss.claim(%s, %s, %s, %s, %s, %s)"


class Tasks:
    """Everything that can be asked of `tasks`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def enqueue(
        self, tasks: Sequence[NewTask], conn: psycopg.AsyncConnection[Any] | None = None
    ) -> list[Enqueued]:
        """Put tasks into the queue, in the caller's transaction if `conn` is given. All of them or none."""
        with tracing.sending(tasks) as carried:
            if conn is not None:
                with translated():
                    return await _enqueue(carried, conn)
            return await again(lambda: self._enqueue(carried))

    async def _enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        async with self._db.connection() as own:
            return await _enqueue(tasks, own)

    async def copy(self, tasks: Iterable[NewTask]) -> int:
        """Put very many tasks in by COPY, the fastest way. All of them or none.

        What takes a look at other tasks (dedup_key, depends_on) or at the clock (delay) is for `enqueue`.
        """
        with tracing.sending(list(tasks)) as carried:
            return await self._copy(carried)

    async def _copy(self, tasks: Sequence[NewTask]) -> int:
        for task in tasks:
            _check_copy(task)
        extra = [name for name in COPIED if any(getattr(task, name) is not None for task in tasks)]
        columns = ", ".join(["id", "task_type", "params", *extra])
        async with self._db.transaction() as conn, conn.cursor() as cursor:
            async with cursor.copy(f"COPY public.tasks ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["uuid", "text", "jsonb", *(COPIED[name] for name in extra)])
                for task in tasks:
                    # ids in order of time: a third cheaper to insert than random ones
                    await copy.write_row(
                        [task.id or new_id(), task.task_type, *_copied(task, ["params", *extra])]
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
        """Take up to `limit` tasks that this worker may do; none if its name is another process's by now."""
        lanes, times = (list(marks), list(marks.values())) if marks else (None, None)
        try:
            async with (
                self._db.connection() as conn,
                conn.cursor(row_factory=args_row(Claimed), binary=True) as cursor,
            ):
                await cursor.execute(CLAIM, [worker_id, limit, lanes, times, lease, incarnation])
                return await _claimed(cursor)
        except DatabaseError as error:  # a timeout of the server's: fewer may get through
            if not error.timed_out or limit <= 1:
                raise
        return await self.claim(worker_id, max(limit // 10, 1), marks, lease, incarnation)

    async def assign(
        self, ids: Sequence[UUID], worker_id: str, lease: timedelta | None = None
    ) -> list[Claimed]:
        """Give chosen tasks to a chosen worker, as far as they can still be had."""
        async with (
            self._db.connection() as conn,
            conn.cursor(row_factory=args_row(Claimed), binary=True) as cursor,
        ):
            await cursor.execute("SELECT * FROM shiftboss.assign(%s, %s, %s)", [list(ids), worker_id, lease])
            return await _claimed(cursor)

    async def complete(self, held: Held, results: Sequence[bytes | None]) -> list[UUID]:
        """Finish a batch; results are encoded JSON. Returns the ids whose lease was stale.

        Raises TasksLocked when another session has locked some; the others are finished. So do the next.
        """
        encoded = None
        if any(result is not None for result in results):
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
        """End attempts that did not succeed: back to the queue, or Failed when no attempt is left.

        The next attempt starts after its delay (zero: at once); None leaves that to the task's backoff.
        """
        call = "shiftboss.fail({held}, %s::text[], %s::text[], %s::boolean[], %s::interval[])"
        errors = [codec.current().error(error) or "" for error in errors]
        return await self.under_lease(call, held, errors, kinds or None, retry or None, delays or None)

    async def defer(self, held: Held, delays: Sequence[timedelta], reasons: Sequence[str]) -> list[UUID]:
        """Give tasks back without spending an attempt; a delay of zero means at once."""
        reasons = [codec.current().text(reason) or "" for reason in reasons]
        return await self.under_lease(
            "shiftboss.defer({held}, %s::interval[], %s::text[])", held, delays, reasons
        )

    async def cancelled(self, held: Held) -> list[UUID]:
        """These were stopped because somebody asked for it."""
        return await self.under_lease("shiftboss.cancelled({held})", held)

    async def progress(
        self, held: Held, percents: Sequence[int], messages: Sequence[str | None]
    ) -> list[UUID]:
        """Show how far running tasks are."""
        call = "shiftboss.progress({held}, %s::smallint[], %s::text[])"
        words = [codec.current().text(message) for message in messages]
        return await self._call(call, list(held), [list(percents), words])

    async def extend(self, held: Held, by: timedelta) -> list[UUID]:
        """Hold on to these for `by` from now, whatever happens to the worker's own lease."""
        return await self._call("shiftboss.extend({held}, %s)", list(held), [by])

    async def under_lease(self, call: str, held: Held, *columns: Sequence[Any] | None) -> list[UUID]:
        """Call a function about these tasks; the ids whose lease was stale. Raises TasksLocked."""
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
        # The two arrays are written out here: the driver's dumper takes longer for them than the database.
        ids = "{" + ",".join([id.hex for id, _ in held]) + "}"
        leases = "{" + ",".join([str(lease) for _, lease in held]) + "}"
        sql = "SELECT " + call.format(held="%s::uuid[], %s::bigint[]") + " AS stale"
        sql += f" FROM {BOUNDED}" if bounded else ""
        row = await self._db.fetch_one(sql, [ids, leases, *params])
        assert row is not None
        stale: list[UUID] = row["stale"]
        return stale

    async def cancel(self, ids: Sequence[UUID], reason: str | None = None) -> list[Cancel]:
        """End queued tasks at once, ask running ones to stop."""
        rows = await self._db.fetch("SELECT * FROM shiftboss.cancel(%s, %s)", [list(ids), reason])
        return [Cancel(**row) for row in rows]

    async def retry(
        self, ids: Sequence[UUID], start: str | None = None, *, restart: bool = False
    ) -> list[UUID]:
        """Enqueue failed and cancelled tasks again, and return the ids of those that were.

        Results of steps are kept; `start` drops them from that step on, `restart` drops all.
        """
        query = "SELECT shiftboss.retry(%s, %s, %s) AS ids"
        row = await self._db.fetch_one(query, [list(ids), start, restart])
        return row["ids"] if row else []

    async def pause(self, kind: str, name: str, reason: str | None = None) -> bool:
        """Hold back a queue or a task type (`kind`: queue | task_type)."""
        return await self._flag("SELECT shiftboss.pause(%s, %s, %s) AS changed", [kind, name, reason])

    async def resume(self, kind: str, name: str) -> bool:
        return await self._flag("SELECT shiftboss.resume(%s, %s) AS changed", [kind, name])

    async def _flag(self, sql: str, params: list[Any]) -> bool:
        row = await self._db.fetch_one(sql, params)
        return bool(row and row["changed"])

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
        """Limit a queue or task type over the whole fleet; with no figure, take its limits away."""
        given = [kind, name, max_running, max_per_key, rate, rate_period, rate_per]
        await self._db.execute("SELECT shiftboss.set_limit(%s, %s, %s, %s, %s, %s, %s)", given)

    async def reset_limit(self, kind: str, name: str) -> bool:
        """Forget what an operator set; the limits in code hold again. False: no operator had set any."""
        return await self._flag("SELECT shiftboss.reset_limit(%s, %s) AS changed", [kind, name])

    async def declare_limits(self, limits: Sequence[dict[str, Any]]) -> list[str]:
        """What a worker has in its code, per task type; returns the types whose limits changed."""
        sql = "SELECT shiftboss.declare_limits(%s) AS changed"
        row = await self._db.fetch_one(sql, [Jsonb(list(limits), dumps=dumps)])
        return row["changed"] if row else []

    async def set_payload_limit(self, size: int) -> None:
        """How many bytes the params of a task may take in the database, for every client; needs its owner."""
        await self._db.execute("SELECT shiftboss.set_payload_limit(%s)", [size])

    async def watch(self, ids: Sequence[UUID]) -> list[Result]:
        """How these stand; the end of those still live will be announced on channel `shiftboss_results`."""
        rows = await self._db.fetch("SELECT * FROM shiftboss.watch(%s)", [list(ids)])
        return [Result(row["id"], row["status"], row["result_data"], row["error_message"]) for row in rows]

    async def prune(self, older: timedelta, limit: int = 1000) -> int:
        """Take away one batch of finished tasks older than `older`; 0 when there are none left."""
        row = await self._db.fetch_one("SELECT shiftboss.prune(%s, %s) AS n", [older, limit])
        return row["n"] if row else 0

    async def tidy(self, older: timedelta) -> None:
        """Housekeeping of lanes, events and statistics."""
        await self._db.execute("SELECT shiftboss.tidy(%s)", [older])

    async def why(self, id: UUID) -> list[Reason]:
        """Why a task waits, one reason a row."""
        return [Reason(**row) for row in await self._db.fetch("SELECT * FROM shiftboss.why(%s)", [id])]

    async def get(self, id: UUID) -> Row | None:
        """The whole row."""
        return await self._db.fetch_one("SELECT * FROM public.tasks WHERE id = %s", [id])

    async def state(self, id: UUID) -> State | None:
        """How a task stands, without its params and its result."""
        row = await self._db.fetch_one(
            "SELECT id, status, attempts, progress, progress_message AS message, worker_id,"
            " error_message AS error FROM public.tasks WHERE id = %s",
            [id],
        )
        return State(**row | {"status": Status(row["status"])}) if row else None

    async def attempts(self, id: UUID) -> list[Row]:
        """The history of one task, oldest attempt first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.attempts WHERE task_id = %s ORDER BY started_at, ended_at", [id]
        )


async def _claimed(cursor: psycopg.AsyncCursor[Claimed]) -> list[Claimed]:
    """All rows. One that Python cannot hold, like a number of 400 digits, does not take its batch along."""
    try:
        return await cursor.fetchall()
    except Exception:  # the rows are here already: it can only be about their values
        return [await _one(cursor, row) for row in range(cursor.rowcount)]


async def _one(cursor: psycopg.AsyncCursor[Claimed], row: int) -> Claimed:
    assert cursor.pgresult is not None
    try:
        await cursor.scroll(row, mode="absolute")
        task = await cursor.fetchone()
        assert task is not None
        return task
    except Exception as error:
        id, lease, task_type = (cursor.pgresult.get_value(row, column) or b"" for column in range(3))
        held = (UUID(bytes=id), int.from_bytes(lease, "big", signed=True), task_type.decode())
        return _unreadable(*held, reason=str(error))


def _unreadable(id: UUID, lease: int, task_type: str, reason: str) -> Claimed:
    """As much of a task as it takes to fail it."""
    now = datetime.now(UTC)
    return Claimed(
        id, lease, task_type, Unreadable(reason), attempt=1, max_attempts=1, queue="default", priority=5,
        tenant=None, timeout=None, deadline=None, created_at=now, ready_at=now, started_at=now, lane=0,
        run_id=None, metadata=None,
    )  # fmt: skip


def _check_copy(task: NewTask) -> None:
    task.check()
    for name in ("dedup_key", "depends_on", "on_dependency_failure", "delay", "origin", "run_id"):
        if getattr(task, name) is not None:
            raise UsageError(f"copy does not take {name}", hint="use enqueue for this task")


def _copied(task: NewTask, names: Sequence[str]) -> Iterator[Any]:
    texts = json_fields(task)
    for name in names:
        value = texts.get(name, getattr(task, name))
        yield _param(DEFAULTS.get(name) if value is None else value)


def _param(value: Any) -> Any:
    return as_jsonb(value) if isinstance(value, dict | orjson.Fragment) else value


async def _enqueue(tasks: Sequence[NewTask], conn: psycopg.AsyncConnection[Any]) -> list[Enqueued]:
    if len(tasks) == 1 and _plain_insert(tasks[0]):
        id, sql, params = _insert(tasks[0])
        await conn.execute(sql, params)
        return [Enqueued(id, True)]
    async with conn.cursor(row_factory=args_row(Enqueued)) as cursor:
        await cursor.execute(ENQUEUE, [encode(tasks)])
        return as_given(tasks, await cursor.fetchall())


def _plain_insert(task: NewTask) -> bool:
    """No dedup_key to be looked up, no priority that the rule by origin would take for the default."""
    return task.dedup_key is None and (task.origin is None or task.priority is None)


def _insert(task: NewTask) -> tuple[UUID, str, list[Any]]:
    """One task without a dedup_key as a plain INSERT, which costs half of what the function for many does."""
    fields = _fields(task)
    delay = fields.pop("delay", None)
    id = fields.setdefault("id", new_id())
    columns, values = ", ".join(fields), ", ".join(["%s"] * len(fields))
    if delay is not None:
        columns, values = columns + ", run_at", values + ", shiftboss.now() + %s"
    params = [_param(value) for value in fields.values()]
    sql = f"INSERT INTO public.tasks ({columns}) VALUES ({values})"  # noqa: S608 - our own names
    return id, sql, params if delay is None else [*params, delay]


def encode(tasks: Sequence[NewTask]) -> Jsonb:
    """The JSON that shiftboss.enqueue() takes; parents before their children."""
    return Jsonb([_fields(task) for task in parents_first(tasks)], dumps=dumps)


def as_given(tasks: Sequence[NewTask], rows: list[Enqueued]) -> list[Enqueued]:
    """What came back for `encode(tasks)`, in the order of `tasks`."""
    ordered = parents_first(tasks)
    if ordered is tasks:
        return rows
    made = {id(task): row for task, row in zip(ordered, rows, strict=True)}
    return [made[id(task)] for task in tasks]


def as_json(task: NewTask) -> dict[str, Any]:
    """What shiftboss.enqueue() takes for one task, in plain JSON."""
    plain: dict[str, Any] = orjson.loads(dumps(_fields(task)))
    return plain


def _fields(task: NewTask) -> dict[str, Any]:
    """The terms of a task, checked; params and metadata are JSON text."""
    task.check()
    given = {name: value for name in NewTask.__slots__ if (value := getattr(task, name)) is not None}
    if task.dedup_key is not None:
        given["dedup_key"] = codec.current().dedup_key(task.dedup_key)
    return given | json_fields(task)
