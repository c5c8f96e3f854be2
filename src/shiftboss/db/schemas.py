"""The arguments of task types: what workers publish, and new tasks checked against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Json

from shiftboss.db.connection import Row
from shiftboss.db.payload import dumps
from shiftboss.model.arguments import check_arguments
from shiftboss.model.codec import sealed_whole
from shiftboss.model.errors import UnknownTaskType
from shiftboss.model.task import NewTask
from shiftboss.model.terms import fill_in

if TYPE_CHECKING:
    from shiftboss.db.database import Database

COLUMNS = "task_type, schema, version, worker_id, published_at"


class Schemas:
    """Everything that can be asked of `shiftboss.task_schemas`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def publish(self, worker_id: str, schemas: Sequence[Mapping[str, Any]]) -> list[str]:
        """What a worker has in its code (name, schema, version); the types whose schema changed."""
        row = await self._db.fetch_one(
            "SELECT shiftboss.publish_schemas(%s, %s) AS changed",
            [worker_id, Json(list(schemas), dumps=dumps)],
        )
        return row["changed"] if row else []

    async def all(self) -> list[Row]:
        """Every type with a published schema."""
        return await self._db.fetch(f"SELECT {COLUMNS} FROM shiftboss.task_schemas ORDER BY task_type")  # noqa: S608

    async def get(self, task_type: str) -> Row | None:
        query = f"SELECT {COLUMNS} FROM shiftboss.task_schemas WHERE task_type = %s"  # noqa: S608
        return await self._db.fetch_one(query, [task_type])

    async def check(self, tasks: Sequence[NewTask], *, strict: bool = False) -> list[str]:
        """Refuse arguments that do not fit, and fill in the terms that the task's type declares.

        Return a warning for each type that no worker knows. With `strict`, refuse those as well.
        """
        types = sorted({task.task_type for task in tasks})
        rows = await self._db.fetch("SELECT * FROM shiftboss.known_types(%s)", [types])
        schemas = {row["task_type"]: row["schema"] for row in rows}
        unknown = [await self._unknown(row["task_type"]) for row in rows if not row["known"]]
        if strict and unknown:
            raise unknown[0]
        for task in tasks:
            schema = schemas.get(task.task_type)
            if schema is not None:
                fill_in(task, schema)
            if sealed_whole(task.params):  # run again by a process that has no key
                continue
            if schema is not None and "shiftboss.results" not in (task.metadata or {}):  # some are to come
                check_arguments(task.task_type, task.params, schema)
        return [f"{error.message}: {error.hint}" for error in unknown]

    async def _unknown(self, task_type: str) -> UnknownTaskType:
        known = {row["task_type"] for row in await self.all()}
        near = get_close_matches(task_type, known - {task_type}, n=1)
        hint = f"did you mean {near[0]}?" if near else "it waits until a worker has it"
        return UnknownTaskType(f"no worker knows the task type {task_type!r}", hint=hint)
