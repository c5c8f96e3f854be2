"""Slots and their supervisors. Each method calls the SQL function of the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final
from uuid import UUID

import orjson

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.model.errors import UsageError

WORKER = (
    "SELECT component, last_seen, status, pid, current_job, details_json::text AS details_json,"
    " restart_count, last_restart, created_at FROM public.health"
)


# Convert in SQL: details may contain numbers that Python cannot represent, and the supervisor must not fail.
SURVEY = (
    "SELECT component, queue, status, pid, process, last_seen, current_job, restart_count, restart_ages,"
    " restart_ordered, former::text, CASE jsonb_typeof(details -> 'tasks_done') WHEN 'number'"
    " THEN least((details ->> 'tasks_done')::numeric, 1e9)::int ELSE 0 END AS tasks_done"
    " FROM shiftboss.survey(%s)"
)


#: Names of slots. None: all, or those of a queue.
Names = Sequence[str] | None


class Keep(Enum):
    """The type of `KEEP`, which leaves the current job unchanged. None clears it."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class Health(Family):
    """The rows of `health`.

    `by` names the component that writes: a worker may write only its own row, and may not set crashed or
    failed. Without `by`, the writer is a supervisor, the leader or a person.
    """

    async def register_worker(
        self,
        component: str,
        pid: int | None,
        status: str = "starting",
        *,
        details: Mapping[str, Any] | None = None,
        host: str | None = None,
        process: str | None = None,
        by: str | None = None,
    ) -> None:
        """Register a process. It takes over the history of the slot's previous process."""
        given = None if details is None else dict(details)
        await self._db.call("register_worker", component, pid, status, given, host, process, by)

    async def update_heartbeat(
        self,
        component: str,
        status: str = "healthy",
        current_job: UUID | str | Keep | None = KEEP,
        *,
        pid: int | None = None,
        details: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> Row | None:
        """Record a heartbeat and return `status` and `paused`.

        Returns None if the row is gone or belongs to another process than `pid`.
        """
        keep, job = (True, None) if current_job is KEEP else (False, current_job)
        given = None if details is None else dict(details)
        rows = await self._db.call_rows("update_heartbeat", component, status, job, keep, pid, given, by)
        return rows[0] if rows else None

    async def update_status(
        self,
        component: str,
        status: str,
        pid: int | None = None,
        *,
        reason: str | None = None,
        process: str | None = None,
        by: str | None = None,
    ) -> None:
        """Change the status if the state machine allows it."""
        await self._db.call("update_status", component, status, pid, reason, process, by)

    async def name_process(self, component: str, pid: int, process: str | None) -> None:
        """Record which process runs in a slot, as soon as it is started."""
        await self._db.call("name_process", component, pid, process)

    async def update_details(
        self, component: str, details: str | Mapping[str, Any], *, by: str | None = None
    ) -> None:
        """Merge a JSON object, given as text or as a mapping, into `details_json`."""
        await self._db.call("update_details", component, _object(details), by)

    async def increment_restart_count(self, component: str, after: int | None = None) -> int:
        """Count an automatic restart and return the new count. With `after`, only if the count equals it."""
        return await self._db.call_value(int, "increment_restart_count", component, after)

    async def remove_worker(self, component: str, *, pid: int | None = None, by: str | None = None) -> bool:
        """Remove the row, with `pid` only if it belongs to that process. Return whether it was there."""
        return await self._db.call_value(bool, "remove_worker", component, pid, by)

    async def get_worker(self, component: str) -> Row | None:
        """Return the row with the documented columns. `details_json` is text."""
        return await self._db.fetch_one(f"{WORKER} WHERE component = %s", [component])

    async def get_all_workers(self) -> list[Row]:
        """Return all rows with the documented columns, ordered by component."""
        return await self._db.fetch(f"{WORKER} ORDER BY component")

    async def mark_crashed(
        self,
        component: str,
        reason: str,
        *,
        outcome: str = "crashed",
        last_seen: float | None = None,
        suspects: Sequence[int] = (),
    ) -> bool:
        """Mark a process as dead and requeue its tasks atomically. False if it was already marked.

        `suspects` are the leases whose tasks may have caused the crash. Without any, all its leases are.
        """
        return await self._db.value(
            bool,
            "SELECT shiftboss.mark_crashed(%s, %s, %s, %s, %s::bigint[])",
            [component, reason, outcome, last_seen, list(suspects)],
        )

    async def begin_supervisor(self, host: str, pid: int, slots: Mapping[str, int]) -> None:
        """Register a supervisor with the slots it should keep."""
        await self._db.call("begin_supervisor", host, pid, dict(slots))

    async def end_supervisor(self, host: str, pid: int) -> None:
        """Unregister a supervisor."""
        await self._db.call("end_supervisor", host, pid)

    async def open_slot(self, host: str, queue: str, former: str | None = None) -> str:
        """Reserve a slot and return its component. `former` restores its name and history if possible."""
        return await self._db.value(
            str, "SELECT shiftboss.open_slot(%s, %s, %s::jsonb)", [host, queue, former]
        )

    async def survey(self, host: str) -> list[Row]:
        """Return the slots of a host, and record a heartbeat of its supervisor."""
        return await self._db.fetch(SURVEY, [host])

    async def wanted_slots(self, host: str) -> dict[str, int] | None:
        """Return how many slots the host's supervisor should keep by queue, or None for an unknown host."""
        row = await self._db.fetch_one("SELECT slots FROM shiftboss.supervisors WHERE host = %s", [host])
        return None if row is None else {str(queue): int(count) for queue, count in row["slots"].items()}

    async def take_restart_order(self, component: str) -> bool:
        """Clear the order for a manual restart. Return whether there was one."""
        return await self._db.call_value(bool, "take_restart_order", component)

    async def pause_workers(self, components: Names = None, queue: str | None = None) -> list[str]:
        """Stop workers from claiming new tasks: by name, by queue, or all. Return their names."""
        return await self._components("pause_workers", components, queue)

    async def resume_workers(self, components: Names = None, queue: str | None = None) -> list[str]:
        """Let workers claim again: by name, by queue, or all. Return their names."""
        return await self._components("resume_workers", components, queue)

    async def restart_workers(self, components: Names = None, queue: str | None = None) -> list[Row]:
        """Order manual restarts. Return for each component whether it was `ordered`, and a `note`."""
        return await self._db.call_rows("restart_workers", _listed(components), queue)

    async def set_slots(self, queue: str, count: int, host: str | None = None) -> str:
        """Change how many slots a running supervisor keeps for a queue, and return its host."""
        return await self._db.call_value(str, "set_slots", queue, count, host)

    async def watch_list(self) -> list[Row]:
        """Return the rows that should have heartbeats, for the leader."""
        return await self._db.call_rows("watch_list")

    async def tidy_health(self, older: timedelta) -> int:
        """Delete rows and supervisors without a heartbeat for this long. Return the number of rows."""
        return await self._db.call_value(int, "tidy_health", older)

    async def slots(self) -> list[Row]:
        """Return every slot for display."""
        return await self._db.fetch("SELECT * FROM shiftboss.slots ORDER BY component")

    async def metrics(self) -> Row:
        """Return restarts, crashes, seconds since the last crash, and workers per status."""
        return (await self._db.fetch("SELECT * FROM shiftboss.health_metrics"))[0]

    async def alerts(self) -> list[Row]:
        """Return what needs attention now: `alert`, `component`, `message`."""
        return await self._db.fetch("SELECT * FROM shiftboss.health_alerts ORDER BY alert, component")

    async def _components(self, function: str, components: Names, queue: str | None) -> list[str]:
        rows = await self._db.call_rows(function, _listed(components), queue)
        return sorted(row[function] for row in rows)


def _listed(components: Names) -> list[str] | None:
    return None if components is None else list(components)


def _object(details: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = orjson.loads(details) if isinstance(details, str) else dict(details)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"details are not JSON: {error}", hint="pass a JSON object") from error
    if not isinstance(value, dict):
        raise UsageError("details must be a JSON object", hint='for example {"paused": true}')
    return value
