"""Steps, waits, events and streams of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from shiftboss.db.family import Family
from shiftboss.db.payload import dumps
from shiftboss.model.codec import current
from shiftboss.model.step import Loaded, Part, Recorded, Step

if TYPE_CHECKING:
    import psycopg

    from shiftboss.db.connection import Row

STORE = "shiftboss.store_steps({held}, %s::text[], %s::int[], %s::float8[], %s::text[]::jsonb[],"
STORE += " %s::text[]::jsonb[])"
APPEND = "shiftboss.append_parts({held}, %s::text[], %s::text[]::jsonb[], %s::int[])"
SUSPEND = "shiftboss.suspend({held}, %s::text[]::jsonb[])"
SEND = "SELECT shiftboss.send_event(%s, %s, %s, %s, %s) AS woken"


class Steps(Family):
    async def load(self, ids: Sequence[UUID]) -> dict[UUID, Loaded]:
        """Return all steps of these tasks."""
        rows = await self._db.call_rows("load_steps", list(ids))
        return {row["id"]: loaded(row["steps"], row["ran"], row["most"], row["version"]) for row in rows}

    async def begin(self, tasks: Sequence[tuple[UUID, int, str | None]]) -> dict[UUID, Loaded]:
        """Load the steps for attempts (task, lease, version), and pin new tasks to their version."""
        found = await self.load([id for id, _, _ in tasks])
        new = [(id, lease, version) for id, lease, version in tasks if version and _unpinned(found.get(id))]
        if new:
            await self.pin([(id, lease) for id, lease, _ in new], [version for _, _, version in new])
        return found

    async def pin(self, held: Sequence[tuple[UUID, int]], versions: Sequence[str]) -> list[UUID]:
        """Let only workers of these versions continue the tasks. Return the ids whose lease was stale."""
        return await self._db.tasks.under_lease("shiftboss.pin_version({held}, %s::text[])", held, versions)

    async def store(self, steps: Sequence[Step]) -> list[UUID]:
        """Store step results and return the ids of tasks whose lease was stale. Raises TasksLocked."""
        sealed = current().json
        return await self._db.tasks.under_lease(
            STORE,
            [(step.task_id, step.lease) for step in steps],
            [step.name for step in steps],
            [step.ordinal for step in steps],
            [step.seconds for step in steps],
            [None if step.result is None else sealed(step.result).decode() for step in steps],
            [step.also and step.also.decode() for step in steps]
            if any(step.also for step in steps)
            else None,
        )

    async def suspend(
        self, held: Sequence[tuple[UUID, int]], waits: Sequence[list[dict[str, Any]]]
    ) -> list[UUID]:
        """Suspend tasks until all their waits have ended. Return the ids whose lease was stale."""
        texts = [orjson.dumps(sealed_waits(one)).decode() for one in waits]
        return await self._db.tasks.under_lease(SUSPEND, held, texts)

    async def append(self, parts: Sequence[Part]) -> list[UUID]:
        """Append to the streams of tasks. Return the ids whose lease was stale."""
        held = [(part.task_id, part.lease) for part in parts]
        texts = [current().json(part.text).decode() for part in parts]
        steps, places = [part.step for part in parts], [part.place or None for part in parts]
        return await self._db.tasks.under_lease(APPEND, held, steps, texts, places)

    async def parts(self, id: UUID, after: int = 0, limit: int = 500) -> list[Row]:
        """Return what a task has emitted after part number `after`, in order."""
        return await self._db.call_rows("read_parts", id, after, limit)

    async def status(self, id: UUID) -> str | None:
        """Return the status of a task, or None if it does not exist."""
        row = await self._db.fetch_one("SELECT status FROM public.tasks WHERE id = %s", [id])
        return row["status"] if row else None

    async def wake_due(self, limit: int = 1000) -> int:
        """End waits that are due, and deliver events that missed a concurrent wait. Return how many."""
        return await self._db.call_value(int, "wake_due", limit)

    async def wake_all_due(self, rounds: int = 20, limit: int = 1000) -> int:
        """Call `wake_due` until nothing is due, at most `rounds` times. Return how many waits ended."""
        total = 0
        for _ in range(rounds):
            total += (woken := await self.wake_due(limit))
            if woken < limit:
                break
        return total

    async def send_event(
        self,
        key: str,
        payload: Any = None,
        *,
        task: UUID | None = None,
        id: UUID | None = None,
        keep: timedelta | None = None,
        conn: psycopg.AsyncConnection[Any] | None = None,
    ) -> int:
        """Send an event and return how many waits it ended immediately.

        `task` limits the event to one task. Repeating a call with the same `id` has no effect. Tasks that
        start to wait within `keep` receive it too. With `conn`, it is sent in that connection's transaction.
        """
        value = None if payload is None else Jsonb(current().value(payload), dumps=dumps)
        params = [key, value, task, id, keep]
        if conn is not None:
            cursor = await conn.execute(SEND, params)
            found: Any = await cursor.fetchone()
            return int(found["woken"] if isinstance(found, dict) else found[0])
        return await self._db.value(int, SEND, params)

    async def set_event_retention(self, keep: timedelta) -> None:
        """Set how long events are kept by default."""
        await self._db.call("set_event_retention", keep)

    async def approvals(self, task: UUID | None = None, limit: int = 500) -> list[Row]:
        """Return the open questions of tasks to people, oldest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.approvals WHERE (%(task)s::uuid IS NULL OR task_id = %(task)s)"
            " ORDER BY asked_at, task_id, name, ordinal LIMIT %(limit)s",
            {"task": task, "limit": limit},
        )

    async def answer(self, task: UUID, name: str, ordinal: int, answer: Any, by: str) -> None:
        """Answer a question. Raises DatabaseError if the task no longer waits for it."""
        value = None if answer is None else Jsonb(current().value(answer), dumps=dumps)
        await self._db.call("answer", task, name, ordinal, value, by)

    async def of(self, id: UUID) -> list[Row]:
        """Return the steps and waits of one task, oldest first."""
        return await self._db.fetch(
            "SELECT kind, name, ordinal, state, result, attempt, started_at, ended_at, until, event_key,"
            " child_id, question, schema, answered_by FROM shiftboss.steps WHERE task_id = %s AND ordinal > 0"
            " ORDER BY started_at, ended_at, name, ordinal",
            [id],
        )


def sealed_waits(waits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Encrypt the questions of waits. The arguments of child tasks are already encrypted."""
    return [
        one | {"question": current().text(one["question"])} if "question" in one else one for one in waits
    ]


def _unpinned(loaded: Loaded | None) -> bool:
    return loaded is not None and loaded.version is None


def loaded(steps: list[Any] | None, ran: float, most: int, version: str | None = None) -> Loaded:
    """Convert a row of `load_steps`."""
    found = {
        (kind, name, ordinal): Recorded(state, result, child and UUID(child))
        for kind, name, ordinal, state, result, child in steps or ()
    }
    return Loaded(found, ran, most, version)
