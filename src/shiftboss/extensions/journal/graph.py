"""The task graph of an import: three tasks per entry, then three per user that wait for all its entries.

An active task is not created again: later tasks wait for the existing one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from shiftboss.db import Connection, Database
from shiftboss.extensions.journal.entry import digest
from shiftboss.extensions.journal.pipeline import ENTRY_STAGES, USER_STAGES
from shiftboss.extensions.journal.rows import Revision
from shiftboss.extensions.journal.vectors import VECTORS
from shiftboss.model.task import NewTask
from shiftboss.worker.batches import ITEM

QUEUE = "journal"
PREFIX = "journal."
ORIGIN = "batch_processing"

Rows = Sequence[Revision]


async def enqueue(
    db: Database, rows: Rows, *, origin: str = ORIGIN, conn: Connection | None = None
) -> list[UUID]:
    """Enqueue the tasks of these entries (id, user_id, revision) atomically, and return all task ids."""
    if not rows:
        return []
    if conn is not None:
        return await _enqueue(db, rows, origin, conn)
    async with db.transaction() as own:
        return await _enqueue(db, rows, origin, own)


async def _enqueue(db: Database, rows: Rows, origin: str, conn: Connection) -> list[UUID]:
    made: list[UUID] = []
    waits: dict[Any, list[UUID]] = {}
    for stage in ENTRY_STAGES:
        tasks = [_entry_task(stage, row, origin, waits.get(row["id"])) for row in rows]
        ids = [task.id for task in await db.tasks.enqueue(tasks, conn)]
        waits = {row["id"]: [task] for row, task in zip(rows, ids, strict=True)}
        made += ids
    users: dict[str, list[UUID]] = defaultdict(list)
    for row in rows:
        users[row["user_id"]] += waits[row["id"]]
    for stage in USER_STAGES:
        tasks = [_user_task(stage, user, origin, before) for user, before in users.items()]
        ids = [task.id for task in await db.tasks.enqueue(tasks, conn)]
        users = {user: [task] for user, task in zip(users, ids, strict=True)}
        made += ids
    return made


def _entry_task(stage: str, row: Revision, origin: str, depends_on: list[UUID] | None) -> NewTask:
    return NewTask(
        task_type=PREFIX + stage,
        # A batch handler receives its items under the name ITEM.
        params={ITEM if stage == VECTORS.name else "entry_id": str(row["id"])},
        queue=QUEUE,
        origin=origin,
        dedup_key=f"{PREFIX}{stage}:{row['id']}:{row['revision']}",
        depends_on=depends_on,
    )


def _user_task(stage: str, user: str, origin: str, depends_on: list[UUID]) -> NewTask:
    return NewTask(
        task_type=PREFIX + stage,
        params={"user_id": user},
        queue=QUEUE,
        origin=origin,
        # A running task may have missed these entries, so the key depends on the tasks to wait for.
        dedup_key=f"{PREFIX}{stage}:{user}:{digest(sorted(map(str, depends_on)))[:16]}",
        depends_on=depends_on,
        # Run even if the analysis of an entry failed.
        on_dependency_failure="run",
    )
