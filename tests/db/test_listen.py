"""A listener whose event loop is blocked does not leave a server session stuck."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

from shiftboss.db import Database
from shiftboss.db.listen import MISSED, Notice, listen

SESSIONS = """
SELECT state, backend_xmin, wait_event FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'LISTEN %'
"""


IDLE = [("idle", None, "ClientRead")]
LOUD = "SELECT pg_notify('news', %s || '-' || n || repeat('x', 7900)) FROM generate_series(1, 100) n"


def shout(url: str, count: int) -> list[tuple[str, str | None, str | None]]:
    """More notices than any socket holds; how the listening session is after that."""
    with psycopg.connect(url, autocommit=True) as conn:
        for n in range(count):
            conn.execute(LOUD, [n])
        deadline = time.monotonic() + 10
        while True:  # the session may still be sending, which ends if anybody reads
            sessions = conn.execute(SESSIONS).fetchall()
            if sessions == IDLE or time.monotonic() > deadline:
                return sessions


async def test_a_blocked_loop_holds_back_no_snapshot(db: Database, database_url: str) -> None:
    notices = listen(database_url, ["news"])
    assert await anext(notices) == MISSED
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(shout, database_url, 40).result() == IDLE  # blocks this event loop
    assert (await anext(notices)).channel == "news"
    await notices.aclose()


async def test_a_loop_that_was_blocked_for_long_hears_that_it_missed_some(
    db: Database, database_url: str
) -> None:
    notices = listen(database_url, ["news"])
    assert await anext(notices) == MISSED
    await db.execute("SELECT pg_notify('news', n::text) FROM generate_series(1, 30000) n")
    await db.execute("SELECT pg_notify('news', 'last')")
    heard = []
    async with asyncio.timeout(10):
        async for notice in notices:
            heard.append(notice)
            if notice.payload == "last":
                break
    await notices.aclose()
    assert MISSED in heard or len(heard) == 30001
    assert heard[-1] == Notice("news", "last")
