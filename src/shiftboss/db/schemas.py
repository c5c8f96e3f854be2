"""Argument schemas that workers publish, and checks of new tasks against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Json

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.db.payload import dumps
from shiftboss.model.arguments import check_arguments
from shiftboss.model.codec import sealed_whole
from shiftboss.model.errors import UnknownTaskType
from shiftboss.model.sources import similar
from shiftboss.model.task import NewTask
from shiftboss.model.terms import fill_in

COLUMNS = "task_type, schema, version, worker_id, published_at"


class Schemas(Family):
    async def publish(self, worker_id: str, schemas: Sequence[Mapping[str, Any]]) -> list[str]:
        """Publish the schemas of a worker (name, schema, version). Return the types that changed."""
        return await self._db.call_value(
            list[str], "publish_schemas", worker_id, Json(list(schemas), dumps=dumps)
        )

    async def all(self) -> list[Row]:
        """Return every task type with a published schema."""
        return await self._db.fetch(f"SELECT {COLUMNS} FROM shiftboss.task_schemas ORDER BY task_type")  # noqa: S608

    async def get(self, task_type: str) -> Row | None:
        query = f"SELECT {COLUMNS} FROM shiftboss.task_schemas WHERE task_type = %s"  # noqa: S608
        return await self._db.fetch_one(query, [task_type])

    async def check(
        self, tasks: Sequence[NewTask], *, strict: bool = False, keyed: bool = False
    ) -> list[str]:
        """Check arguments against the schemas, and fill in the options that the task types declare.

        Return a warning for each type that no worker serves, and for each key that only Python can compute,
        unless the tasks are already `keyed`. With `strict`, raise UnknownTaskType for unknown types.
        """
        types = sorted({task.task_type for task in tasks})
        rows = await self._db.call_rows("known_types", types)
        schemas = {row["task_type"]: row["schema"] for row in rows}
        unknown = [await self._unknown(row["task_type"]) for row in rows if not row["known"]]
        if strict and unknown:
            raise unknown[0]
        warnings = [f"{error.message}: {error.hint}" for error in unknown]
        for task in tasks:
            schema = schemas.get(task.task_type)
            if schema is None or sealed_whole(task.params):  # sealed: a retry by a process without the key
                continue
            if "shiftboss.results" not in (task.metadata or {}):  # otherwise some arguments are added later
                check_arguments(task.task_type, task.params, schema)
            computed = fill_in(task, schema)
            warnings += [] if keyed else [_computed(task.task_type, name) for name in computed]
        return list(dict.fromkeys(warnings))

    async def _unknown(self, task_type: str) -> UnknownTaskType:
        known = {row["task_type"] for row in await self.all()}
        near = similar(task_type, known - {task_type})
        hint = f"did you mean {near}?" if near else "the task waits until a worker serves this type"
        return UnknownTaskType(f"no worker serves the task type {task_type!r}", hint=hint)


def _computed(task_type: str, option: str) -> str:
    return f"this task has no {option}: {task_type} computes it with a Python function, which is not at hand"
