"""Slots and their supervisors: one method per SQL function of the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson

from shiftboss.db.connection import Row
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db.database import Database

WORKER = (
    "SELECT component, last_seen, status, pid, current_job, details_json::text AS details_json,"
    " restart_count, last_restart, created_at FROM public.health"
)


# Details may hold what Python cannot, as a number of 400 digits; a supervisor has to go on.
SURVEY = (
    "SELECT component, queue, status, pid, process, last_seen, current_job, restart_count, restart_ages,"
    " restart_ordered, former::text, CASE jsonb_typeof(details -> 'tasks_done') WHEN 'number'"
    " THEN least((details ->> 'tasks_done')::numeric, 1e9)::int ELSE 0 END AS tasks_done"
    " FROM shiftboss.survey(%s)"
)


class Keep(Enum):
    """Leave the current job as it is; None would clear it."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


class Health:
    """Everything that can be asked of `health`.

    `by` names the component that writes: a worker may write its own row only, and not crashed or failed.
    Without it the writer is a supervisor, the leader or a person.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

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
        """A process takes its row, with the history of its former self."""
        await self._db.execute(
            "SELECT shiftboss.register_worker(%s, %s, %s, %s, %s, %s, %s)",
            [component, pid, status, None if details is None else dict(details), host, process, by],
        )

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
        """Beat; its `status` and `paused`. None: the row is gone, or another process (`pid`) has it."""
        return await self._db.fetch_one(
            "SELECT * FROM shiftboss.update_heartbeat(%s, %s, %s, %s, %s, %s, %s)",
            [
                component,
                status,
                None if current_job is KEEP else current_job,
                current_job is KEEP,
                pid,
                None if details is None else dict(details),
                by,
            ],
        )

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
        """Change the state, if the state machine allows it."""
        await self._db.execute(
            "SELECT shiftboss.update_status(%s, %s, %s, %s, %s, %s)",
            [component, status, pid, reason, process, by],
        )

    async def name_process(self, component: str, pid: int, process: str | None) -> None:
        """Tell which process sits in a slot, as soon as it is started."""
        await self._value("shiftboss.name_process(%s, %s, %s)", [component, pid, process])

    async def update_details(
        self, component: str, details: str | Mapping[str, Any], *, by: str | None = None
    ) -> None:
        """Patch `details_json` with a JSON object, given as text or as a mapping; other keys stay."""
        await self._db.execute(
            "SELECT shiftboss.update_details(%s, %s, %s)", [component, _object(details), by]
        )

    async def increment_restart_count(self, component: str, after: int | None = None) -> int:
        """Count one automatic restart; the new count. `after`: only if the count is still that."""
        return int(await self._value("shiftboss.increment_restart_count(%s, %s)", [component, after]))

    async def remove_worker(self, component: str, *, pid: int | None = None, by: str | None = None) -> bool:
        """Take the row away, `pid` given only if it is still that process's. False: it was not there."""
        return bool(await self._value("shiftboss.remove_worker(%s, %s, %s)", [component, pid, by]))

    async def get_worker(self, component: str) -> Row | None:
        """The row with the documented columns; `details_json` is text."""
        return await self._db.fetch_one(f"{WORKER} WHERE component = %s", [component])

    async def get_all_workers(self) -> list[Row]:
        """All rows with the documented columns, by component."""
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
        """Its process is dead: say so, and put its tasks back, in one step. False: it was known.

        `suspects` are the leases that may have stopped it; without any, all that it held are.
        """
        return bool(
            await self._value(
                "shiftboss.mark_crashed(%s, %s, %s, %s, %s::bigint[])",
                [component, reason, outcome, last_seen, list(suspects)],
            )
        )

    async def begin_supervisor(self, host: str, pid: int, slots: Mapping[str, int]) -> None:
        """Make a supervisor known, with the slots that it shall keep."""
        await self._value("shiftboss.begin_supervisor(%s, %s, %s)", [host, pid, dict(slots)])

    async def end_supervisor(self, host: str, pid: int) -> None:
        """A supervisor leaves."""
        await self._value("shiftboss.end_supervisor(%s, %s)", [host, pid])

    async def open_slot(self, host: str, queue: str, former: str | None = None) -> str:
        """Reserve a slot, if possible under its former name and with its history; its component."""
        return str(await self._value("shiftboss.open_slot(%s, %s, %s::jsonb)", [host, queue, former]))

    async def survey(self, host: str) -> list[Row]:
        """The slots of a host; also the sign of life of its supervisor. `former` is for open_slot, unread."""
        return await self._db.fetch(SURVEY, [host])

    async def wanted_slots(self, host: str) -> dict[str, int] | None:
        """How many slots the host's supervisor shall keep, by queue. None: the host is unknown."""
        row = await self._db.fetch_one("SELECT slots FROM shiftboss.supervisors WHERE host = %s", [host])
        return None if row is None else {str(queue): int(count) for queue, count in row["slots"].items()}

    async def take_restart_order(self, component: str) -> bool:
        """The manual restart has begun. False: nobody ordered one."""
        return bool(await self._value("shiftboss.take_restart_order(%s)", [component]))

    async def pause_workers(
        self, components: Sequence[str] | None = None, queue: str | None = None
    ) -> list[str]:
        """These finish what they do and claim nothing new: by name, by queue, or all. Which ones."""
        return await self._components("pause_workers", components, queue)

    async def resume_workers(
        self, components: Sequence[str] | None = None, queue: str | None = None
    ) -> list[str]:
        """These claim again: by name, by queue, or all. Which ones."""
        return await self._components("resume_workers", components, queue)

    async def restart_workers(
        self, components: Sequence[str] | None = None, queue: str | None = None
    ) -> list[Row]:
        """Order a restart by hand; per component whether a supervisor got it (`ordered`), and a `note`."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.restart_workers(%s, %s)", [_names(components), queue]
        )

    async def set_slots(self, queue: str, count: int, host: str | None = None) -> str:
        """Change how many slots a running supervisor keeps for a queue; its host."""
        return str(await self._value("shiftboss.set_slots(%s, %s, %s)", [queue, count, host]))

    async def watch_list(self) -> list[Row]:
        """Rows that should beat, for the leader."""
        return await self._db.fetch("SELECT * FROM shiftboss.watch_list()")

    async def tidy_health(self, older: timedelta) -> int:
        """Forget rows and supervisors that were silent for so long; how many rows."""
        return int(await self._value("shiftboss.tidy_health(%s)", [older]))

    async def slots(self) -> list[Row]:
        """Every slot as people see it."""
        return await self._db.fetch("SELECT * FROM shiftboss.slots ORDER BY component")

    async def metrics(self) -> Row:
        """Restarts, crashes, seconds since the last crash, workers per status."""
        row = await self._db.fetch_one("SELECT * FROM shiftboss.health_metrics")
        assert row is not None
        return row

    async def alerts(self) -> list[Row]:
        """What needs somebody's attention now: `alert`, `component`, `message`."""
        return await self._db.fetch("SELECT * FROM shiftboss.health_alerts ORDER BY alert, component")

    async def _value(self, call: str, params: Sequence[Any]) -> Any:
        row = await self._db.fetch_one(f"SELECT {call} AS value", params)
        assert row is not None
        return row["value"]

    async def _components(self, name: str, components: Sequence[str] | None, queue: str | None) -> list[str]:
        value = await self._value(f"ARRAY(SELECT shiftboss.{name}(%s, %s))", [_names(components), queue])
        return sorted(value)


def _names(components: Sequence[str] | None) -> list[str] | None:
    return None if components is None else list(components)


def _object(details: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = orjson.loads(details) if isinstance(details, str) else dict(details)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"details are not JSON: {error}", hint="pass a JSON object") from error
    if not isinstance(value, dict):
        raise UsageError("details must be a JSON object", hint='for example {"paused": true}')
    return value
