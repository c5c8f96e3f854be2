"""A named lock has one holder, also through a transaction-mode pooler, and goes with its holder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from tests.pooler import needs_pooler, pooler

from shiftboss.db import Database
from shiftboss.db.lock import NamedLock


@pytest.mark.parametrize("through", ["direct", pytest.param("pooler", marks=needs_pooler)])
async def test_one_holds_it_and_the_next_gets_it(
    database_url: str, through: str, eventually: Callable[..., Any]
) -> None:
    async with pooler(database_url, size=4) if through == "pooler" else nullcontext(database_url) as url:
        first, second = NamedLock(url, "office"), NamedLock(url, "office")
        assert await first.acquire()
        assert not await second.acquire()
        assert await first.held()
        assert not await second.held()
        await first.release()
        await eventually(second.acquire)
        assert not await first.acquire()
        await second.release()


@needs_pooler
async def test_a_holder_behind_a_pooler_learns_that_it_lost_it(db: Database, database_url: str) -> None:
    async with pooler(database_url) as url:
        lock = NamedLock(url, "office")
        assert await lock.acquire()
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        )
        assert not await lock.held()


async def test_a_held_lock_holds_up_nothing_else(db: Database, database_url: str) -> None:
    """Its transaction stays open: it must not keep old rows alive, nor end by itself."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(
            "ALTER DATABASE " + conn.info.dbname + " SET idle_in_transaction_session_timeout = '1ms'"
        )
    lock = NamedLock(database_url, "office")
    assert await lock.acquire()
    rows = await db.fetch(
        "SELECT a.backend_xid, a.backend_xmin FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()"
    )
    assert rows == [{"backend_xid": None, "backend_xmin": None}]
    assert await lock.held()
    await lock.release()
