"""A listener whose event loop is blocked does not leave a server session stuck."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db import listen as module
from shiftboss.db.listen import MISSED, Notice, Statement, listen

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


async def test_notices_that_arrive_during_an_answer_do_not_wait_for_the_next_one(
    db: Database, database_url: str
) -> None:
    """The driver receives them with the reply, and the socket is silent afterwards."""

    def answer(notice: Notice) -> Statement | None:
        return ("SELECT pg_sleep(1)", []) if notice.payload == "first" else None

    notices = listen(database_url, ["news"], answer)
    assert await anext(notices) == MISSED
    await db.execute("NOTIFY news, 'first'")
    assert (await anext(notices)).payload == "first"
    async with asyncio.timeout(module.QUIET / 2):
        while True:  # the answer runs now
            if await db.fetch(f"{SESSIONS} AND false OR query = 'SELECT pg_sleep(1)' AND state = 'active'"):
                break
        await db.execute("NOTIFY news, 'second'")
        assert (await anext(notices)).payload == "second"
    await notices.aclose()


async def test_an_answer_without_end_makes_the_listener_reconnect(
    db: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER", 0.2)
    notices = listen(database_url, ["news"], lambda notice: ("SELECT pg_sleep(3600)", []))
    assert await anext(notices) == MISSED
    await db.execute("NOTIFY news, 'first'")
    async with asyncio.timeout(30):
        assert (await anext(notices)).payload == "first"
        assert await anext(notices) == MISSED
    await notices.aclose()
