"""Installs the observer in the database before a run, and removes it and all data of the run afterwards."""

from __future__ import annotations

from pathlib import Path

from shiftboss.db import Database
from shiftboss.extensions.chaos.tasks import QUEUE
from shiftboss.model.errors import UsageError

_OTHERS = """
SELECT (SELECT count(*) FROM public.tasks WHERE task_type NOT LIKE 'chaos.%') AS tasks,
    (SELECT count(*) FROM public.workers WHERE status = 'active' AND queues IS DISTINCT FROM ARRAY['chaos']
        AND last_heartbeat > now() - interval '1 minute') AS workers
"""
_REMOVE = (
    "DROP SCHEMA IF EXISTS shiftboss_chaos CASCADE",
    "CREATE TEMP TABLE chaos_gone AS SELECT id FROM public.tasks WHERE task_type LIKE 'chaos.%'",
    "DELETE FROM public.tasks WHERE id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.past_attempts WHERE task_id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.steps WHERE task_id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.parts WHERE task_id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.task_logs WHERE task_id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.dependencies WHERE child_id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.sent_events WHERE key LIKE 'chaos:%'",
    f"DELETE FROM shiftboss.lanes WHERE queue = '{QUEUE}'",  # noqa: S608
    "DELETE FROM shiftboss.limits WHERE name LIKE 'chaos.%'",
    f"DELETE FROM shiftboss.pauses WHERE name = '{QUEUE}' OR name LIKE 'chaos.%'",  # noqa: S608
    f"DELETE FROM public.workers WHERE queues = ARRAY['{QUEUE}']",  # noqa: S608
    "DELETE FROM public.health WHERE component LIKE '%worker:chaos:%'",
    "DELETE FROM shiftboss.task_schemas WHERE task_type LIKE 'chaos.%'",
    "DELETE FROM shiftboss.error_tallies WHERE task_id IN (SELECT id FROM chaos_gone)",
    "DELETE FROM shiftboss.worker_samples WHERE worker_id LIKE 'chaos-%'",
    f"DELETE FROM shiftboss.stats WHERE queue = '{QUEUE}'",  # noqa: S608
    "DROP TABLE chaos_gone",
)


async def require_alone(db: Database) -> None:
    """Raise UsageError for a database with other tasks or active workers."""
    found = (await db.fetch(_OTHERS))[0]
    if found["tasks"] or found["workers"]:
        raise UsageError(
            f"the database has {found['tasks']} other tasks and {found['workers']} other workers",
            hint="use another database, or pass --beside-other-tasks if faults may affect them",
        )


async def install(db: Database) -> None:
    if await db.fetch("SELECT FROM pg_namespace WHERE nspname = 'shiftboss_chaos'"):
        raise UsageError(
            "another run of chaos uses this database, or was killed",
            hint="if no run is active, run `shiftboss chaos --clean --database-url URL`",
        )
    async with db.transaction() as conn:
        await conn.execute((Path(__file__).parent / "observer.sql").read_text())


async def clean(db: Database) -> None:
    """Remove the observer, the tasks and the workers of a run. Events are kept."""
    async with db.transaction() as conn:
        for statement in _REMOVE:
            await conn.execute(statement)
