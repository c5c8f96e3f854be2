"""Installs the observer in the database before a run, and removes it and all data of the run afterwards."""

from __future__ import annotations

from pathlib import Path

from shiftboss.db import Database
from shiftboss.model.errors import UsageError

_OTHERS = """
SELECT (SELECT count(*) FROM public.tasks WHERE task_type NOT LIKE 'chaos.%') AS tasks,
    (SELECT count(*) FROM public.workers WHERE status = 'active' AND queues IS DISTINCT FROM ARRAY['chaos']
        AND last_heartbeat > now() - interval '1 minute') AS workers
"""


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
    await _execute(db, "observer.sql")


async def clean(db: Database) -> None:
    """Remove the observer, the tasks and the workers of a run."""
    await _execute(db, "clean.sql")


async def _execute(db: Database, name: str) -> None:
    async with db.transaction() as conn:
        await conn.execute((Path(__file__).parent / name).read_text())
