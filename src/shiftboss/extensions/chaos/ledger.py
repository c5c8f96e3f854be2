"""The ledger in which handlers record their actions, each entry exactly once."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from uuid import UUID

import psycopg

from shiftboss.model.task import new_id

#: The URL of the ledger. It does not use the proxies, so that faults do not affect it.
URL = "SHIFTBOSS_CHAOS_LEDGER"
_WRITE = """
INSERT INTO shiftboss_chaos.ledger (id, task, lease, what)
SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::bigint[], %s::text[]) ON CONFLICT DO NOTHING
"""
_PAUSE = 0.2  # seconds between two tries while the server is unreachable

Entry = tuple[UUID, UUID, int, str]


class EffectLedger:
    """Writes the entries of one event loop in batches. A write returns when its entry is stored."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Entry, asyncio.Future[None]]] = []
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def write(self, task: UUID, lease: int, what: str) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(((new_id(), task, lease, what), stored))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await stored

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self._store([list(column) for column in zip(*(entry for entry, _ in batch), strict=True)])
            for _, stored in batch:
                if not stored.done():
                    stored.set_result(None)

    async def _store(self, columns: list[list[Any]]) -> None:
        while True:
            try:
                if self._conn is None or self._conn.closed:
                    self._conn = await psycopg.AsyncConnection.connect(os.environ[URL], autocommit=True)
                await self._conn.execute(_WRITE, columns)
                return
            except psycopg.Error:
                if self._conn is not None:
                    await self._conn.close()
                await asyncio.sleep(_PAUSE)


def write(task: UUID, lease: int, what: str) -> None:
    """Write one entry from a thread or a child process."""
    columns = [[new_id()], [task], [lease], [what]]
    while True:
        try:
            with psycopg.connect(os.environ[URL], autocommit=True) as conn:
                conn.execute(_WRITE, columns)
                return
        except psycopg.Error:
            time.sleep(_PAUSE)
