"""Paged lists of tasks that stay fast beside millions of rows and stable while rows arrive.

Each status is ordered by its own timestamp (created, started or ended), which is indexed. A list of all
statuses merges the five. Pages are delimited by key, not by offset. Filters without an index (task type,
text in params) search a bounded stretch of the list, so a page may be short and still have a successor.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.db.insights.rows import ListedTask
from shiftboss.model.codec import shown
from shiftboss.model.errors import UsageError

STRETCH = 20_000
PREVIEW = 300

ORDER: dict[str, str] = {
    "Queued": "created_at",
    "In Progress": "coalesce(generation_started_at, created_at)",
    "Complete": "generation_processed_at",
    "Failed": "generation_processed_at",
    "Cancelled": "generation_processed_at",
}

# Encrypted params are truncated after decryption.
_COLUMNS = f"""id, status, task_type, queue, priority,
    CASE WHEN params ? '$enc' THEN params::text ELSE left(params::text, {PREVIEW}) END AS params_preview,
    attempts, max_attempts, coalesce(worker_id, last_worker_id) AS worker_id, created_at,
    generation_started_at AS started_at, generation_processed_at AS ended_at, run_at, error_message,
    wait_reason, progress, progress_message, run_id, tenant,
    cancel_requested_at IS NOT NULL AND status = 'In Progress' AS cancelling, at"""


class BadCursor(UsageError):
    """The cursor of a task list is not valid."""


class Key(NamedTuple):
    """The position of a row in the list. Newer rows have greater keys."""

    at: datetime
    id: UUID

    def encode(self) -> str:
        return base64.urlsafe_b64encode(f"{self.at.isoformat()} {self.id}".encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, cursor: str) -> Key:
        try:
            text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
            at, _, id = text.partition(" ")
            timestamp = datetime.fromisoformat(at)
            if timestamp.tzinfo is None:
                raise ValueError("no time zone")
            return cls(timestamp, UUID(id))
        except (ValueError, binascii.Error):
            raise BadCursor("the cursor is not valid", hint="use `next` of the previous page") from None


@dataclass(frozen=True, kw_only=True)
class TaskFilter:
    """Selects tasks. `since` and `until` refer to the timestamp of the status: created, started or ended."""

    status: str | None = None
    task_type: str | None = None
    queue: str | None = None
    worker_id: str | None = None
    run_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None

    def statuses(self) -> Sequence[str]:
        if self.status is None:
            return list(ORDER)
        if self.status not in ORDER:
            raise UsageError(f"there is no status {self.status!r}", hint=f"one of: {', '.join(ORDER)}")
        return [self.status]


class TaskPage(NamedTuple):
    """Tasks, newest first. `next` is the cursor of the next page, or None at the end."""

    items: list[ListedTask]
    next: str | None


class TaskList(Family):
    async def page(self, wanted: TaskFilter, cursor: str | None = None, limit: int = 50) -> TaskPage:
        """Return one page. Rows that arrive or change meanwhile move to the front, never to a later page."""
        before = Key.decode(cursor) if cursor else None
        lists, bound = [], None
        for status in wanted.statuses():
            rows, end = await self._stretch(status, wanted, before, limit)
            lists.append(rows)
            bound = max(filter(None, (bound, end)), default=None)
        merged = list(heapq.merge(*lists, key=_key, reverse=True))
        if bound is not None:  # at least one list was not searched below this key
            merged = [row for row in merged if _key(row) >= bound]
        items = merged[:limit]
        last = _key(items[-1]) if len(items) == limit else bound
        return TaskPage(items, last.encode() if last else None)

    async def _stretch(
        self, status: str, wanted: TaskFilter, before: Key | None, limit: int
    ) -> tuple[list[ListedTask], Key | None]:
        """Return rows of one status, and the key at which the search stopped, if it did."""
        inner, outer, params = _conditions(status, wanted, before)
        source = f"FROM public.tasks WHERE {inner} ORDER BY {ORDER[status]} DESC, id DESC"
        stretch = STRETCH // len(wanted.statuses())
        listed = f"SELECT *, {ORDER[status]} AS at {source} LIMIT {stretch}"
        rows = await self._db.fetch_as(
            ListedTask,
            f"SELECT {_COLUMNS} FROM ({listed}) s WHERE {outer}"  # noqa: S608 -- constants only
            f" ORDER BY at DESC, id DESC LIMIT {int(limit)}",
            params,
        )
        for row in rows:
            row["params_preview"] = shown(row["params_preview"])[:PREVIEW]
        if len(rows) == limit or outer == "true":
            return rows, None
        end = await self._db.fetch_one(
            f"SELECT {ORDER[status]} AS at, id {source} OFFSET {stretch - 1} LIMIT 1", params
        )
        return rows, _key(end) if end else None

    async def detail(self, id: UUID) -> Row | None:
        """Return one task with all its attempts and the reasons why it waits, or None."""
        task = await self._db.tasks.get(id)
        if task is None:
            return None
        task["attempts_made"] = await self._db.tasks.attempts(id)
        task["why"] = [reason._asdict() for reason in await self._db.tasks.why(id)]
        return task

    async def ids(self, wanted: TaskFilter, limit: int = 1000) -> list[UUID]:
        """Return the tasks that a bulk action applies to: those that match, except those with a run_id."""
        found: list[UUID] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await self.page(wanted, cursor, limit)
            found += [row["id"] for row in page.items if row["run_id"] is None]
            cursor = page.next
            if cursor is None:
                break
        return found[:limit]

    async def types(self) -> list[str]:
        """Return the known task types."""
        names = "SELECT DISTINCT task_type FROM shiftboss.every_lane() ORDER BY 1 LIMIT 1000"
        rows = await self._db.fetch(names)
        return [row["task_type"] for row in rows]


def _key(row: ListedTask | Row) -> Key:
    return Key(row["at"], row["id"])


def _conditions(status: str, wanted: TaskFilter, before: Key | None) -> tuple[str, str, dict[str, Any]]:
    """Return the conditions that an index supports, those that need the rows, and the parameters of both."""
    at = ORDER[status]
    inner, outer = [f"status = '{status}'", f"{at} IS NOT NULL"], ["true"]
    params: dict[str, Any] = {}
    if before is not None:
        inner.append(f"({at}, id) < (%(at)s, %(id)s)")
        params |= {"at": before.at, "id": before.id}
    for name, operator in (("since", ">="), ("until", "<")):
        if (value := getattr(wanted, name)) is not None:
            inner.append(f"{at} {operator} %({name})s")
            params[name] = value
    if wanted.run_id is not None:
        inner.append("run_id = %(run_id)s")
        params["run_id"] = wanted.run_id
    for name, column in (
        ("task_type", "task_type"),
        ("queue", "queue"),
        ("worker_id", "coalesce(worker_id, last_worker_id)"),
    ):
        if (value := getattr(wanted, name)) is not None:
            outer.append(f"{column} = %({name})s")
            params[name] = value
    if wanted.text:
        outer.append("params::text ILIKE %(text)s")
        params["text"] = f"%{_literal(wanted.text)}%"
    if len(outer) > 1:
        outer.remove("true")
    return " AND ".join(inner), " AND ".join(outer), params


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
