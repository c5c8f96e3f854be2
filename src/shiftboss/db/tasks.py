"""The queue: one method per SQL function of the same name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import psycopg
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row, translated
from shiftboss.model.errors import UsageError
from shiftboss.model.task import (
    Cancel,
    Claimed,
    Enqueued,
    NewTask,
    Reason,
    Result,
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
        if conn is not None:
            with translated():
                return await _enqueue(tasks, conn)
        async with self._db.connection() as own:
            return await _enqueue(tasks, own)

    async def copy(self, tasks: Iterable[NewTask]) -> int:
        """Put very many tasks in by COPY, the fastest way. All of them or none.

        What takes a look at other tasks (dedup_key, depends_on) or at the clock (delay) is for `enqueue`.
        """
        tasks = list(tasks)
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
                        [task.id or new_id(), task.task_type, _json(task), *_copied(task, extra)]
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
        async with (
            self._db.connection() as conn,
            conn.cursor(row_factory=args_row(Claimed), binary=True) as cursor,
        ):
            await cursor.execute(CLAIM, [worker_id, limit, lanes, times, lease, incarnation])
            return await _claimed(cursor)

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
        """Finish a batch; results are encoded JSON. Returns the ids whose lease was stale, as the next do."""
        encoded = None
        if any(result is not None for result in results):
            encoded = [None if result is None else result.decode() for result in results]
        return await self._end("shiftboss.complete({held}, %s::text[]::jsonb[])", held, [encoded])

    async def fail(
        self,
        held: Held,
        errors: Sequence[str],
        kinds: Sequence[str] | None = None,
        retry: Sequence[bool] | None = None,
    ) -> list[UUID]:
        """End attempts that did not succeed: back to the queue, or Failed when no attempt is left."""
        params = [list(errors), list(kinds) if kinds else None, list(retry) if retry else None]
        return await self._end("shiftboss.fail({held}, %s::text[], %s::text[], %s::boolean[])", held, params)

    async def defer(self, held: Held, delays: Sequence[timedelta], reasons: Sequence[str]) -> list[UUID]:
        """Give tasks back without spending an attempt; a delay of zero means at once."""
        return await self._end(
            "shiftboss.defer({held}, %s::interval[], %s::text[])", held, [list(delays), list(reasons)]
        )

    async def cancelled(self, held: Held) -> list[UUID]:
        """These were stopped because somebody asked for it."""
        return await self._end("shiftboss.cancelled({held})", held, [])

    async def progress(
        self, held: Held, percents: Sequence[int], messages: Sequence[str | None]
    ) -> list[UUID]:
        """Show how far running tasks are."""
        return await self._end(
            "shiftboss.progress({held}, %s::smallint[], %s::text[])", held, [list(percents), list(messages)]
        )

    async def extend(self, held: Held, by: timedelta) -> list[UUID]:
        """Hold on to these for `by` from now, whatever happens to the worker's own lease."""
        return await self._end("shiftboss.extend({held}, %s)", held, [by])

    async def _end(self, call: str, held: Held, params: list[Any]) -> list[UUID]:
        # The two arrays are written out here: the driver's dumper takes longer for them than the database.
        held = list(held)
        ids = "{" + ",".join([id.hex for id, _ in held]) + "}"
        leases = "{" + ",".join([str(lease) for _, lease in held]) + "}"
        sql = "SELECT " + call.format(held="%s::uuid[], %s::bigint[]") + " AS stale"
        row = await self._db.fetch_one(sql, [ids, leases, *params])
        assert row is not None
        stale: list[UUID] = row["stale"]
        return stale

    async def cancel(self, ids: Sequence[UUID], reason: str | None = None) -> list[Cancel]:
        """End queued tasks at once, ask running ones to stop."""
        rows = await self._db.fetch("SELECT * FROM shiftboss.cancel(%s, %s)", [list(ids), reason])
        return [Cancel(**row) for row in rows]

    async def retry(self, ids: Sequence[UUID]) -> list[UUID]:
        """Start dead letters and cancelled tasks over; returns those that were."""
        row = await self._db.fetch_one("SELECT shiftboss.retry(%s) AS ids", [list(ids)])
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
    ) -> None:
        """Limit a queue or task type over the whole fleet; with no figure, take its limits away."""
        await self._db.execute(
            "SELECT shiftboss.set_limit(%s, %s, %s, %s, %s, %s)",
            [kind, name, max_running, max_per_key, rate, rate_period],
        )

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

    async def attempts(self, id: UUID) -> list[Row]:
        """The history of one task, oldest attempt first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.attempts WHERE task_id = %s ORDER BY started_at, ended_at", [id]
        )


async def _claimed(cursor: psycopg.AsyncCursor[Claimed]) -> list[Claimed]:
    """All rows. One that Python can not hold, like a number of 400 digits, does not take its batch along."""
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
    for name in names:
        value = getattr(task, name)
        value = DEFAULTS.get(name) if value is None else value
        yield Jsonb(value, dumps=dumps) if isinstance(value, dict) else value


def enqueue_sync(tasks: Sequence[NewTask], conn: psycopg.Connection[Any]) -> list[Enqueued]:
    """Enqueue on the caller's own synchronous connection, in its transaction."""
    with translated(), conn.cursor(row_factory=args_row(Enqueued)) as cursor:
        cursor.execute(ENQUEUE, [encode(tasks)])
        return as_given(tasks, cursor.fetchall())


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
    task.check()
    _json(task)
    fields = _fields(task)
    delay = fields.pop("delay", None)
    id = fields.setdefault("id", new_id())
    columns, values = ", ".join(fields), ", ".join(["%s"] * len(fields))
    if delay is not None:
        columns, values = columns + ", run_at", values + ", shiftboss.now() + %s"
    params = [Jsonb(value, dumps=dumps) if isinstance(value, dict) else value for value in fields.values()]
    sql = f"INSERT INTO public.tasks ({columns}) VALUES ({values})"  # noqa: S608 - our own names
    return id, sql, params if delay is None else [*params, delay]


def encode(tasks: Sequence[NewTask]) -> Jsonb:
    """The JSON that shiftboss.enqueue() takes; parents before their children."""
    for task in tasks:
        task.check()
        _json(task)
    return Jsonb([_fields(task) for task in _parents_first(tasks)], dumps=dumps)


def as_given(tasks: Sequence[NewTask], rows: list[Enqueued]) -> list[Enqueued]:
    """What came back for `encode(tasks)`, in the order of `tasks`."""
    ordered = _parents_first(tasks)
    if ordered is tasks:
        return rows
    made = {id(task): row for task, row in zip(ordered, rows, strict=True)}
    return [made[id(task)] for task in tasks]


def _parents_first(tasks: Sequence[NewTask]) -> Sequence[NewTask]:
    """The very same, if no parent comes after its child."""
    here = {task.id: task for task in tasks if task.id is not None}
    if _in_order(tasks, set(here)):
        return tasks
    try:
        order = TopologicalSorter(
            {id: [p for p in t.depends_on or () if p in here] for id, t in here.items()}
        )
        ranked = [here[id] for id in order.static_order()]
    except CycleError as error:
        raise UsageError(
            "tasks depend on each other in a cycle: " + " → ".join(map(str, error.args[1]))
        ) from None
    return [*ranked, *(task for task in tasks if task.id is None)]


def _in_order(tasks: Sequence[NewTask], coming: set[UUID]) -> bool:
    for task in tasks:
        if task.depends_on and not coming.isdisjoint(task.depends_on):
            return False
        if task.id is not None:
            coming.discard(task.id)
    return True


def as_json(task: NewTask) -> dict[str, Any]:
    """What shiftboss.enqueue() takes for one task, in plain JSON."""
    plain: dict[str, Any] = orjson.loads(dumps(_fields(task)))
    return plain


def _fields(task: NewTask) -> dict[str, Any]:
    return {name: value for name in NewTask.__slots__ if (value := getattr(task, name)) is not None}


def _json(task: NewTask) -> Jsonb:
    """The task's params as JSON, refused if they are not; how large they may be, the database knows."""
    try:
        orjson.dumps(task.params, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError) as error:
        raise UsageError(f"params of {task.task_type} are not JSON: {error}") from None
    return Jsonb(task.params)


def dumps(value: Any) -> bytes:
    """JSON that PostgreSQL can store."""
    text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    if b"\\u0000" in text:
        raise UsageError(
            "a NUL character can not be stored in PostgreSQL", hint="remove \\x00 from the task's text"
        )
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} seconds"
    raise TypeError(f"{type(value).__name__} is not JSON")
