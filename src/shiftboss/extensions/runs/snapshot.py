"""Adds runs to the metrics snapshot and to the live updates of the page."""

from __future__ import annotations

from uuid import UUID

from shiftboss.db import Database, Row
from shiftboss.extensions.runs.store import Runs


async def current_runs(db: Database) -> list[Row]:
    return await db.family(Runs).active()


async def changed_runs(db: Database, payloads: list[str]) -> list[tuple[str, Row]]:
    return [("run", row) for row in await db.family(Runs).named([UUID(id) for id in payloads])]
