"""A connection that is cut in the middle of a response: no write is reported but not made, or refused permanently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.db.lease import Lease
from shiftboss.model.errors import DatabaseUnavailable
from tests.cutter import Cutter

WRITE = "INSERT INTO marks VALUES (%s) RETURNING n"
Write = Callable[[Database, int], Awaitable[Any]]


def error(code: str) -> bytes:
    """A FATAL error as PostgreSQL and PgBouncer send one."""
    fields = b"SFATAL\0VFATAL\0C" + code.encode() + b"\0Mcut off\0\0"
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


async def by_statement(db: Database, n: int) -> Any:
    return await db.fetch_one(WRITE, [n])


async def in_transaction(db: Database, n: int) -> Any:
    async with db.transaction() as conn:
        return await (await conn.execute(WRITE, [n])).fetchone()


async def under_lease(db: Database, n: int) -> Any:
    lease = Lease(db, "office", 60.0, {})
    lease.token = HELD
    return await db.under(lease).fetch_one(WRITE, [n])


HELD: Any = None


@pytest.fixture
async def held(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await db.execute("CREATE TABLE marks (n int)")
    lease = Lease(db, "office", 60.0, {})
    assert await lease.acquire()
    await lease._stop_renewing()
    monkeypatch.setitem(globals(), "HELD", lease.token)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("settings", [None, "SELECT set_config('TimeZone', 'UTC', true)"], ids=["", "pooled"])
@pytest.mark.parametrize("write", [by_statement, in_transaction, under_lease])
@pytest.mark.parametrize("commits", [True, False])
async def test_a_cut_answer_is_no_success_and_no_refusal(
    db: Database, database_url: str, write: Write, settings: str | None, commits: bool
) -> None:
    n = 0
    async with (
        Cutter(database_url, b"INSERT INTO marks") as cutter,
        await Database.open(cutter.url) as through,
    ):
        through._in_each_transaction = settings
        cutter.commits = commits
        for tail in (b"", error("57P01"), error("57P01") + error("08P01")):
            cutter.tail, cutter.let, cutter.cut = tail, 0, True
            while cutter.cut:
                n, cutter.cut = n + 1, False
                told = await outcome(write(through, n))
                there = await db.fetch("SELECT n FROM marks WHERE n = %s", [n])
                assert told is None or [told] == there, f"reported and not made, after {cutter.let} messages"
                assert commits or there == []
                cutter.let += 1
            assert told == ({"n": n} if commits else None)


async def outcome(call: Awaitable[Any]) -> Any:
    """What the call returns; None if the database went away, which is the only error that may come."""
    try:
        async with asyncio.timeout(10):
            return await call
    except DatabaseUnavailable:
        return None
